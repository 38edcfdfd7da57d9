//! `lycosa metrics`: everything that is measured, as text for monitors; `lycosa check --recount`: the proof of the numbers of
//! tasks on a running server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use lycosa_client::Value;
use lycosa_metrics::{Scope, Snapshot, Target};
use serde_json::json;

use crate::arguments::{MetricsArguments, MetricsFormat};
use crate::outcome::Outcome;
use crate::output::{done, line, table};
use crate::payload;
use crate::session::Session;
use crate::values::{counted, is_true, number_of};

/// How long a walk over a tube's tasks may take.
const LONGEST: Duration = Duration::from_secs(60 * 60);
const NO_TUBES: &str = "the server returned no tubes";

/// `lycosa metrics`
pub(crate) fn run(arguments: &MetricsArguments) -> anyhow::Result<Outcome> {
    let session = Session::open(&arguments.client)?;
    let snapshot = snapshot(&session, arguments.tube.as_deref())?;
    if let Some(tube) = &arguments.tube
        && snapshot.tubes.is_empty()
    {
        bail!(
            "tube {tube:?} does not exist, or the user may not look at it (`lycosa tube list` shows the tubes)"
        );
    }
    let mut text = String::new();
    match arguments.format {
        MetricsFormat::Prometheus => {
            let scope = match arguments.tube {
                Some(_) => Scope::Tubes,
                None => Scope::All(arguments.tubes),
            };
            lycosa_metrics::write_prometheus(&snapshot, None, scope, Target::default(), &mut text);
        }
        MetricsFormat::Tarantool => lycosa_metrics::write_tarantool(&snapshot, &mut text),
        MetricsFormat::Graphite => {
            let now = snapshot.instance.as_ref().map_or(0.0, |instance| instance.now);
            lycosa_metrics::graphite_lines(&snapshot, &arguments.prefix, now as u64, &mut text);
        }
    }
    done(text.trim_end())
}

/// All pages of `queue.status`; of one tube only that.
fn snapshot(session: &Session, tube: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut options = tube.map(|tube| Value::map([("tube", tube)]));
    loop {
        let page =
            session.ask("queue.status", options.into_iter().collect(), "the server returned no status")?;
        let Some(next) = snapshot.add_page(&page.encode())? else { return Ok(snapshot) };
        options = Some(Value::map([("after", next)]));
    }
}

/// `lycosa check --recount`: walks over the tasks of all tubes of the server whose data folder this is.
pub(crate) fn recount(folder: &Path, json: bool) -> anyhow::Result<Outcome> {
    let session = Session::open_admin(folder)?;
    let names = session.ask("queue.tube", Vec::new(), NO_TUBES)?;
    let names = names.as_array().context(NO_TUBES)?;
    let mut rows = Vec::new();
    let mut wrong = 0_u64;
    for name in names.iter().filter_map(Value::as_str) {
        let answer = session.call_waiting(&format!("queue.tube.{name}:recount"), Vec::new(), LONGEST)?;
        let found = answer.first().filter(|found| found.get("agrees").is_some());
        let found =
            found.with_context(|| format!("tube {name}: the queue does not run, so nothing is counted"))?;
        let agrees = is_true(found, "agrees");
        wrong += u64::from(!agrees);
        if json {
            line(json!({ "tube": name, "recount": payload::to_json(found) }))?;
            continue;
        }
        let count = |of: &str| {
            let states = ["ready", "taken", "delayed", "buried"];
            states.map(|state| found.get(of).map_or(0, |of| number_of(of, state)).to_string()).join("/")
        };
        let verdict = if agrees { "agrees" } else { "DIFFERS" };
        rows.push(vec![name.to_owned(), count("found"), count("kept"), count("indexed"), verdict.to_owned()]);
    }
    if !json {
        table(&["TUBE", "FOUND", "KEPT", "INDEXED", ""], &rows)?;
        let tubes = counted(names.len() as u64, "tube");
        line(format_args!("{tubes} recounted (ready/taken/delayed/buried), {wrong} differ"))?;
    }
    if wrong > 0 {
        bail!(
            "{}: the count that the server keeps differs from the tasks. This is a fault of the server: please report it with \
             the output above and the server's log",
            counted(wrong, "tube")
        );
    }
    Ok(Outcome::Done)
}
