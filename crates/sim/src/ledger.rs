//! The clients' own account of every reply that reached them: what was put is there, what was finished is gone.
//!
//! The account knows nothing of the server, of the model or of the disk. A task of which somebody was told that it was
//! put must be found by every later start, unless somebody has since asked for something that may have ended it, or it had
//! a life that may be over. A task of which somebody was told that it was finished must never be found again. What was
//! asked for and not answered may have happened or not.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_store::Store;
use lycosa_tuple::mp::{Kind, Reader};

use crate::agreement::rows;
use crate::model::Task;
use crate::plan::TubePlan;
use crate::request::{Request, RowChange};
use crate::violation::{Checked, Violation, hold};

/// What is known of the tasks of one tube since it was emptied last.
#[derive(Debug, Default)]
struct Account {
    /// Payloads of tasks of which a client knows that they were put.
    put: BTreeMap<u64, Vec<u8>>,
    /// Tasks that somebody may have ended.
    doomed: BTreeSet<u64>,
    /// Tasks of which a client knows that they are finished.
    finished: BTreeSet<u64>,
    /// Tasks that somebody may have written past the queue, with an id of his own choice.
    written: BTreeSet<u64>,
    /// Requests under way that empty the tube.
    wipes: u32,
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

impl Ledger {
    pub(crate) fn new(tubes: usize) -> Self {
        Self { accounts: (0..tubes).map(|_| Account::default()).collect() }
    }

    /// A client sends a request.
    pub(crate) fn sent(&mut self, request: &Request) {
        let Some(account) = request.tube().and_then(|tube| self.accounts.get_mut(tube)) else { return };
        match *request {
            Request::Ack { id, .. } | Request::Delete { id, .. } => _ = account.doomed.insert(id),
            Request::Row { id, ref change, .. } if *change != RowChange::Select => {
                account.doomed.insert(id);
                if matches!(change, RowChange::Insert(_)) {
                    account.written.insert(id);
                }
            }
            _ if is_wipe(request) => {
                account.put.clear();
                account.doomed.clear();
                account.written.clear();
                account.finished.clear();
                account.wipes += 1;
            }
            _ => {}
        }
    }

    /// Nobody will be told what became of a request.
    pub(crate) fn abandoned(&mut self, request: &Request, step: u64) {
        if is_wipe(request)
            && let Some(account) = request.tube().and_then(|tube| self.accounts.get_mut(tube))
        {
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
        let Some((id, data)) = values.and_then(task) else { return };
        match request {
            Request::Put { options, .. } => {
                if options.ttl.or(plans[tube].ttl).is_some() {
                    account.doomed.insert(id);
                }
                account.put.insert(id, data.to_vec());
            }
            Request::Ack { .. } | Request::Delete { .. } => _ = account.finished.insert(id),
            _ => {}
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
            for (id, data) in account.put.iter().filter(|(id, _)| !account.doomed.contains(id)) {
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

/// Id and payload of the only value, if it is a task.
fn task(values: &[u8]) -> Option<(u64, &[u8])> {
    let mut reader = Reader::new(values);
    if reader.array().ok()? != 1 || reader.kind().ok()? != Kind::Array || reader.array().ok()? != 3 {
        return None;
    }
    let id = reader.uint().ok()?;
    reader.skip().ok()?;
    Some((id, reader.rest()))
}
