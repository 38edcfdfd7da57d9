//! `lycosa promote --shadow`, `lycosa follow --shadow`: what the first seconds of a replica as the master would do, read from its spaces.
//!
//! Nothing is changed. Of each kind of thing at most [`LIMIT`] are looked at; if there are more, the answer says so.
//!
//! Absent: what clients will do, and what the old master still sends.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::bail;
use lycosa_client::{Array, Response, Value};
use lycosa_tuple::mp::Reader;
use serde_json::json;

use crate::outcome::Outcome;
use crate::output;
use crate::session::Session;
use crate::space_pages::{ALL, EQ, LE, number, select, shown_text, space, text, tuples};
use crate::values::{array_of, float, is_true, now, text_of, time};

/// Tuples of one kind that are looked at.
const LIMIT: u32 = 10_000;

/// Indexes of a tube's space: by state, and by deadline.
const BY_STATE: u32 = 1;
const BY_DEADLINE: u32 = 2;

/// The longest that a start waits for rows of the old master.
const LONGEST_WAIT: f64 = 20.0;

/// The text about a queue without `_queue_taken_2`.
const OLD_MODULE: &str = "the master's queue module is an old one: it has no space _queue_taken_2. The promotion replaces _queue_taken \
    by it; on the way back that module cannot take tasks. Bring the module up to date and restart the Tarantool, best before \
    the change-over";

/// A tube's line.
#[derive(Debug, Default)]
struct Rehearsal {
    tube: String,
    kind: String,
    is_temporary: bool,
    taken: u64,
    /// Taken tasks that no session could finish: they become ready at the start.
    released: u64,
    /// Taken tasks whose session ends within the time that is looked at.
    released_later: u64,
    ttr_over: u64,
    delay_over: u64,
    /// Ready and buried tasks that die.
    ttl_over: u64,
}

/// The known sessions.
struct Sessions {
    /// Owners are replicated.
    in_replicaset: bool,
    /// The master's module keeps owners in `_queue_taken`, which a promotion replaces.
    is_old_module: bool,
    /// Seconds.
    ttr: f64,
    /// Microseconds since the epoch at which each one ends at the latest.
    ends: HashMap<Vec<u8>, u64>,
    /// Session by tube and task.
    owners: HashMap<(u64, u64), Vec<u8>>,
    /// Ends of leases by tube and task, in microseconds since the epoch.
    leases: HashMap<(u64, u64), u64>,
}

struct Look<'a> {
    session: &'a Session,
    is_complete: bool,
}

impl Look<'_> {
    fn page(&mut self, space: u32, index: u32, iterator: u32, key: Vec<Value>) -> anyhow::Result<Response> {
        let key = Array::from(key);
        let page = select(self.session, space, index, iterator, key, LIMIT)?;
        self.is_complete &= page.len() < LIMIT as usize;
        Ok(page)
    }

    /// Number of a space, and whether it is temporary.
    fn space(&self, name: &str) -> anyhow::Result<Option<(u32, bool)>> {
        let found = space(self.session, name)?;
        Ok(found.map(|(id, row)| {
            let flags = row.as_array().and_then(|fields| fields.get(5));
            (id, flags.is_some_and(|flags| is_true(flags, "temporary")))
        }))
    }

    /// How many tasks in that state have a deadline up to `until`.
    fn due(&mut self, space: u32, state: &str, until: u64) -> anyhow::Result<u64> {
        let page = self.page(space, BY_DEADLINE, LE, vec![state.into(), until.into()])?;
        Ok(tuples(&page).take_while(|row| text(*row, 1) == Some(state.as_bytes())).count() as u64)
    }
}

/// Rehearses the promotion of the server behind `session`, up to `horizon` after it. `info` is its `box.info`.
pub(crate) fn run(session: &Session, info: &Value, horizon: Duration, json: bool) -> anyhow::Result<Outcome> {
    if !is_true(info, "ro") {
        bail!("--shadow: the server takes writes already, there is nothing to rehearse");
    }
    let now = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
    let until = now.saturating_add(u64::try_from(horizon.as_micros()).unwrap_or(u64::MAX));
    let mut look = Look { session, is_complete: true };
    let sessions = sessions(&mut look, now)?;
    let mut lines = Vec::new();
    if let Some((queue, _)) = look.space("_queue")? {
        let rows = look.page(queue, 0, ALL, Vec::new())?;
        for row in tuples(&rows) {
            let part = |field| shown_text(row, field);
            if let (Some(tube), Some(id), Some(space), Some(kind)) =
                (part(0), number(row, 1), part(2), part(3))
            {
                lines.push(rehearse(&mut look, &sessions, (tube, id, &space, kind), until)?);
            }
        }
    }
    let wait = startup(info);
    let ending = sessions.ends.values().filter(|end| **end <= until).count();
    if json {
        let tubes = lines.iter().map(|line| {
            json!({
                "tube": line.tube, "type": line.kind, "temporary": line.is_temporary, "taken": line.taken,
                "released_at_start": line.released, "released_with_sessions": line.released_later,
                "ttr_over": line.ttr_over, "delay_over": line.delay_over, "ttl_over": line.ttl_over,
            })
        });
        return output::done(json!({
            "shadow": true, "horizon_seconds": horizon.as_secs_f64(), "startup_seconds": wait,
            "in_replicaset": sessions.in_replicaset, "session_ttr": sessions.ttr,
            "old_module": sessions.is_old_module,
            "sessions": sessions.ends.len(), "sessions_ending": ending, "tubes": tubes.collect::<Vec<_>>(),
            "complete": look.is_complete,
        }));
    }
    output::line(format_args!(
        "nothing is changed; this is what the first {} as the master would do:",
        time(horizon)
    ))?;
    output::line(format_args!("the queue would wait {wait:.3} s for rows of the old master, and then run"))?;
    output::line(sessions.fate(ending))?;
    if sessions.is_old_module {
        output::line(OLD_MODULE)?;
    }
    if sessions.in_replicaset && lines.iter().any(|line| line.is_temporary) {
        output::line("temporary tubes stand against queue.in_replicaset: it would be off")?;
    }
    print_table(lines)?;
    if !look.is_complete {
        output::line(format_args!("of some kinds there are {LIMIT} or more: these counts are lower bounds"))?;
    }
    Ok(Outcome::Done)
}

impl Sessions {
    /// What becomes of the sessions, of which `ending` end within the horizon.
    fn fate(&self, ending: usize) -> String {
        match (self.in_replicaset, self.ttr > 0.0) {
            (true, true) => format!(
                "{} queue sessions go on for {} s each unless their clients come; {ending} of them end in this time",
                self.ends.len(),
                self.ttr
            ),
            (true, false) => {
                "queue.ttr is 0: all queue sessions end, and their tasks become ready".to_owned()
            }
            (false, _) => {
                let all =
                    "queue.in_replicaset is off: owners are not replicated, so all taken tasks become ready";
                match self.leases.len() {
                    0 => all.to_owned(),
                    count => format!("{all}, but for {count} with a lease"),
                }
            }
        }
    }
}

/// Prints a line for each tube.
fn print_table(lines: Vec<Rehearsal>) -> anyhow::Result<Outcome> {
    let heading =
        ["tube", "type", "taken", "released", "with sessions", "ttr over", "delay over", "dead by ttl"];
    let rows = lines.into_iter().map(|line| -> Vec<String> {
        let name = if line.is_temporary { format!("{} (temporary)", line.tube) } else { line.tube };
        let counts =
            [line.taken, line.released, line.released_later, line.ttr_over, line.delay_over, line.ttl_over];
        [name, line.kind].into_iter().chain(counts.map(|count| count.to_string())).collect()
    });
    output::table(&heading, rows)
}

fn sessions(look: &mut Look<'_>, now: u64) -> anyhow::Result<Sessions> {
    let configuration = look.session.call("box.cfg", Vec::new())?.into_iter().next().unwrap_or(Value::Nil);
    let ttr = configuration.get("queue.ttr").and_then(float).unwrap_or_default();
    let kept = u64::try_from(Duration::try_from_secs_f64(ttr).unwrap_or_default().as_micros());
    let mut sessions = Sessions {
        in_replicaset: false,
        is_old_module: look.space("_queue")?.is_some() && look.space("_queue_taken_2")?.is_none(),
        ttr,
        ends: HashMap::new(),
        owners: HashMap::new(),
        leases: HashMap::new(),
    };
    if let Some((leases, _)) = look.space("_lycosa_leases")? {
        let leases = look.page(leases, 0, ALL, Vec::new())?;
        sessions.leases = tuples(&leases)
            .filter_map(|row| number(row, 0).zip(number(row, 1)).zip(number(row, 4)))
            .collect();
    }
    let (Some((shared, _)), Some((taken, is_temporary))) =
        (look.space("_queue_shared_sessions")?, look.space("_queue_taken_2")?)
    else {
        return Ok(sessions);
    };
    sessions.in_replicaset = !is_temporary;
    for row in tuples(&look.page(shared, 0, ALL, Vec::new())?) {
        let Some(id) = text(row, 0) else { continue };
        let is_active = row.field(2).is_some_and(|field| Reader::new(field).bool() == Ok(true));
        let stored = number(row, 1).filter(|_| !is_active);
        let end = stored.unwrap_or(now.saturating_add(kept.unwrap_or(u64::MAX)));
        sessions.ends.insert(id.to_vec(), if ttr > 0.0 { end } else { now });
    }
    let taken = look.page(taken, 0, ALL, Vec::new())?;
    sessions.owners = tuples(&taken)
        .filter_map(|row| number(row, 0).zip(number(row, 1)).zip(text(row, 3).map(<[u8]>::to_vec)))
        .collect();
    Ok(sessions)
}

fn rehearse(
    look: &mut Look<'_>,
    sessions: &Sessions,
    (tube, id, space, kind): (String, u64, &str, String),
    until: u64,
) -> anyhow::Result<Rehearsal> {
    let mut line = Rehearsal { tube, kind, ..Rehearsal::default() };
    let Some((space, is_temporary)) = look.space(space)? else { return Ok(line) };
    line.is_temporary = is_temporary;
    let page = look.page(space, BY_STATE, EQ, vec!["t".into()])?;
    let taken: HashSet<u64> = tuples(&page).filter_map(|row| number(row, 0)).collect();
    line.taken = taken.len() as u64;
    for task in taken {
        if let Some(end) = sessions.leases.get(&(id, task)).filter(|_| !is_temporary) {
            // In tubes with deadlines the end of a lease is counted below, as the task's next event.
            line.ttr_over += u64::from(*end <= until);
            continue;
        }
        let owner = sessions.owners.get(&(id, task)).filter(|_| sessions.in_replicaset);
        match owner.and_then(|owner| sessions.ends.get(owner)) {
            None => line.released += 1,
            Some(_) if sessions.ttr <= 0.0 => line.released += 1,
            Some(end) => line.released_later += u64::from(*end <= until),
        }
    }
    if line.kind.ends_with("ttl") {
        line.ttr_over = look.due(space, "t", until)?;
        line.delay_over = look.due(space, "~", until)?;
        line.ttl_over = look.due(space, "r", until)? + look.due(space, "!", until)?;
    }
    Ok(line)
}

/// Seconds that the queue would be in STARTUP.
fn startup(info: &Value) -> f64 {
    let following = array_of(info, "masters").iter().filter(|master| text_of(master, "status") == "follow");
    let waits = following.map(|master| {
        let number = |name| master.get(name).and_then(float).unwrap_or_default();
        2.0 * number("lag") - number("idle")
    });
    waits.fold(0.0, f64::max).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_twice_the_greatest_lag_since_a_master_was_heard() {
        let master = |status: &str, lag, idle| {
            let number = |number| Value::Double(number);
            Value::map([("status", Value::from(status)), ("lag", number(lag)), ("idle", number(idle))])
        };
        let info = |masters: Vec<Value>| Value::map([("masters", Value::Array(masters))]);
        assert_eq!(startup(&info(Vec::new())), 0.0);
        assert_eq!(startup(&info(vec![master("follow", 0.5, 0.25), master("stopped", 9.0, 0.0)])), 0.75);
        assert_eq!(startup(&info(vec![master("follow", 0.5, 5.0)])), 0.0);
        assert_eq!(startup(&info(vec![master("follow", 500.0, 0.0)])), LONGEST_WAIT);
    }
}
