//! The clients' own account of every reply that reached them: tasks that were put exist, finished tasks do not.
//!
//! The account knows nothing of the server, of the model or of the disk. A client was told that a task was put: every
//! later start must find the task. Exceptions are a task that a later request may have ended, and one with a ttl that
//! may be over. A task of which a client knows that it was finished must never be found again. A request that was made
//! and not answered may have happened or not, and may yet happen.
//!
//! Ids begin anew when a tube is emptied or dropped. So the account of a tube begins anew too when a client asks for that;
//! an earlier request that is still under way may concern the tasks that come after, and counts for them.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_store::Store;
use lycosa_tuple::mp::{Kind, Reader};

use crate::agreement::rows;
use crate::model::Task;
use crate::plan::TubePlan;
use crate::request::{Request, RowChange, Settlement};
use crate::violation::{Checked, Violation, hold};

/// The account of the tasks of one tube since it was emptied last.
#[derive(Debug, Default)]
struct Account {
    /// Payloads of tasks of which a client knows that they were put.
    put: BTreeMap<u64, Vec<u8>>,
    /// Tasks that a client may have ended.
    doomed: BTreeSet<u64>,
    /// Requests under way that may end or write a task. Whenever they are handled they concern the task that has the id
    /// then, be it one that was put long after they were sent, and after the tube was emptied.
    under_way: Vec<Concern>,
    /// Tasks of which a client knows that they are finished.
    finished: BTreeSet<u64>,
    /// Tasks that a client may have written past the queue, with an id of its own choice.
    written: BTreeSet<u64>,
    /// Requests under way that empty the tube.
    wipes: u32,
    /// A job may have ended tasks, or brought ended ones back: the ledger cannot say which.
    is_steered: bool,
    /// The step at which it was last unclear whether the tube was being emptied. Requests sent before count for nothing.
    unclear: u64,
}

/// The accounts of all tubes.
#[derive(Debug)]
pub(crate) struct Ledger {
    accounts: Vec<Account>,
}

fn is_wipe(request: &Request) -> bool {
    matches!(request, Request::Truncate { .. } | Request::Drop { .. })
}

/// What a request may do to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concern {
    id: u64,
    /// It may have written the task past the queue; otherwise it may have ended it.
    is_insert: bool,
}

fn concerns(request: &Request) -> Vec<Concern> {
    let end = |id| Concern { id, is_insert: false };
    match *request {
        Request::Ack { id, .. } | Request::Delete { id, .. } => vec![end(id)],
        Request::Settle { ref token, how: Settlement::Ack, .. } => {
            token.split('-').nth(1).and_then(|id| id.parse().ok()).map(end).into_iter().collect()
        }
        Request::AckMany { ref ids, .. } => ids.iter().copied().map(end).collect(),
        Request::Row { id, ref change, .. } if *change != RowChange::Select => {
            vec![Concern { id, is_insert: matches!(change, RowChange::Insert(_)) }]
        }
        _ => Vec::new(),
    }
}

impl Account {
    fn note(&mut self, Concern { id, is_insert }: Concern) {
        self.doomed.insert(id);
        if is_insert {
            self.written.insert(id);
        }
    }

    /// The tube is going to be emptied: nothing is known of its later tasks, but that requests under way may
    /// concern them.
    fn clear(&mut self) {
        self.put.clear();
        self.doomed.clear();
        self.written.clear();
        self.finished.clear();
        for place in 0..self.under_way.len() {
            self.note(self.under_way[place]);
        }
    }
}

impl Ledger {
    pub(crate) fn new(tubes: usize) -> Self {
        Self { accounts: (0..tubes).map(|_| Account::default()).collect() }
    }

    /// A client sends a request.
    pub(crate) fn sent(&mut self, request: &Request) {
        let Some(account) = request.tube().and_then(|tube| self.accounts.get_mut(tube)) else { return };
        for concern in concerns(request) {
            account.under_way.push(concern);
            account.note(concern);
        }
        if is_wipe(request) {
            account.clear();
            account.wipes += 1;
        }
        account.is_steered |= matches!(request, Request::Steer { what, .. } if what.may_end_tasks());
    }

    /// No client will get an answer to a request: it was handled before, or never will be.
    pub(crate) fn abandoned(&mut self, request: &Request, step: u64) {
        let Some(account) = request.tube().and_then(|tube| self.accounts.get_mut(tube)) else { return };
        for done in concerns(request) {
            if let Some(place) = account.under_way.iter().position(|concern| *concern == done) {
                account.under_way.swap_remove(place);
            }
        }
        if is_wipe(request) {
            account.wipes -= 1;
            account.unclear = step;
        }
    }

    /// A client reads the answer to a request that it sent at the step `sent`: the values of a success, or an error.
    pub(crate) fn answered(
        &mut self,
        request: &Request,
        sent: u64,
        step: u64,
        values: Option<&[u8]>,
        plans: &[TubePlan],
    ) {
        self.abandoned(request, step);
        let Some(tube) = request.tube().filter(|tube| !plans[*tube].temporary) else { return };
        let account = &mut self.accounts[tube];
        if account.wipes > 0 || sent <= account.unclear {
            return;
        }
        let tasks = values.map_or_else(Vec::new, |values| tasks(request, values));
        for (place, (id, data)) in tasks.into_iter().enumerate() {
            let options = match request {
                Request::Put { options, .. } => Some(options),
                Request::PutMany { options, .. } => options.iter().cycle().nth(place),
                _ => None,
            };
            match options {
                Some(options) => {
                    if options.ttl.or(plans[tube].ttl).is_some() {
                        account.doomed.insert(id);
                    }
                    account.put.insert(id, data.to_vec());
                }
                None => _ = account.finished.insert(id),
            }
        }
    }

    /// Something of what clients were told was lost, and might be: nothing is known any more.
    pub(crate) fn forget(&mut self, step: u64) {
        for account in &mut self.accounts {
            let is_steered = account.is_steered;
            *account = Account { unclear: step, is_steered, ..Account::default() };
        }
    }

    /// The process has ended; a start has found `store`.
    pub(crate) fn check(&self, store: &Store, plans: &[TubePlan]) -> Checked {
        for (account, plan) in self.accounts.iter().zip(plans) {
            let mut found = BTreeMap::new();
            for row in rows(store, &plan.name)?.unwrap_or_default() {
                let id = Reader::new(&row[1..]).uint();
                let task = Task::read(&row, plan.kind);
                let (Ok(id), Some(task)) = (id, task) else {
                    return Err(Violation(format!("tube {} holds something that is no task", plan.name)));
                };
                found.insert(id, task.data);
            }
            let is_certain = |id: &u64| !account.is_steered && !account.doomed.contains(id);
            for (id, data) in account.put.iter().filter(|(id, _)| is_certain(id)) {
                hold!(
                    found.get(id).is_some_and(|found| **found == **data),
                    "a client was told that task {id} of tube {} was put, and it is not there",
                    plan.name
                );
            }
            for id in account.finished.difference(&account.written) {
                hold!(
                    !found.contains_key(id),
                    "a client was told that task {id} of tube {} was finished, and it is there",
                    plan.name
                );
            }
        }
        Ok(())
    }
}

/// Ids and payloads of the tasks that a request has put or finished, as its answer shows them.
fn tasks<'a>(request: &Request, values: &'a [u8]) -> Vec<(u64, &'a [u8])> {
    let read = || {
        let mut reader = Reader::new(values);
        let mut count = reader.array().ok().filter(|count| *count == 1)?;
        match request {
            Request::Put { .. }
            | Request::Ack { .. }
            | Request::Delete { .. }
            | Request::Settle { how: Settlement::Ack, .. } => {}
            Request::PutMany { .. } | Request::AckMany { .. } => {
                if reader.kind().ok()? != Kind::Array {
                    return None;
                }
                count = reader.array().ok()?;
            }
            _ => return None,
        }
        (0..count).map(|_| task(reader.raw().ok()?)).collect()
    };
    read().unwrap_or_default()
}

/// Id and payload of a value, if it is a task.
fn task(value: &[u8]) -> Option<(u64, &[u8])> {
    let mut reader = Reader::new(value);
    if reader.kind().ok()? != Kind::Array || reader.array().ok()? != 3 {
        return None;
    }
    let id = reader.uint().ok()?;
    reader.skip().ok()?;
    Some((id, reader.rest()))
}

#[cfg(test)]
mod tests {
    use lycosa_store::Store;

    use super::*;
    use crate::plan::Plan;
    use crate::random::Random;
    use crate::request::{Payload, PutOptions};

    fn plans() -> Vec<TubePlan> {
        let mut tube = Plan::new(0, &mut Random::new(0)).tubes.remove(0);
        (tube.temporary, tube.ttl) = (false, None);
        vec![tube]
    }

    /// The answer to what concerns task 3.
    const TASK: &[u8] = &[0x91, 0x93, 3, 0xa1, b'r', 7];

    /// An account that knows of task 3, which was put after the tube had been emptied. `before`: sent before all that.
    fn after_a_wipe(ledger: &mut Ledger, before: Option<&Request>) {
        let put = Request::Put { tube: 0, data: Payload(vec![7]), options: PutOptions::default() };
        let wipe = Request::Truncate { tube: 0 };
        before.into_iter().for_each(|request| ledger.sent(request));
        ledger.sent(&wipe);
        ledger.answered(&wipe, 2, 3, Some(&[0x90]), &plans());
        ledger.sent(&put);
        ledger.answered(&put, 4, 5, Some(TASK), &plans());
    }

    fn check(ledger: &Ledger) -> Checked {
        ledger.check(&Store::new(lycosa_store::Settings::default()), &plans())
    }

    #[test]
    fn a_request_from_before_a_wipe_may_end_a_task_from_after_it() {
        let delete = Request::Delete { tube: 0, id: 3 };
        let mut ledger = Ledger::new(1);
        after_a_wipe(&mut ledger, None);
        check(&ledger).unwrap_err();
        let mut ledger = Ledger::new(1);
        after_a_wipe(&mut ledger, Some(&delete));
        check(&ledger).unwrap();
        ledger.answered(&delete, 1, 6, Some(TASK), &plans());
        check(&ledger).unwrap();
    }

    #[test]
    fn a_request_that_was_answered_before_a_wipe_is_over() {
        let delete = Request::Delete { tube: 0, id: 3 };
        let mut ledger = Ledger::new(1);
        ledger.sent(&delete);
        ledger.abandoned(&delete, 0);
        after_a_wipe(&mut ledger, None);
        check(&ledger).unwrap_err();
    }
}
