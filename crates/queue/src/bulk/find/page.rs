//! Pages of `find`: a call begins one, and slices fill it.

use std::ops::ControlFlow;

use lycosa_store::Budget;

use super::{Cursor, Search, digest};
use crate::arguments::{Options, string, unsigned};
use crate::background::{PORTION_BYTES, WALK};
use crate::bulk::filter::{Filter, MAX_TASK_BYTES};
use crate::command::Call;
use crate::error::{Error, Result};
use crate::listing::{MAX_LISTED_BYTES, MAX_LOOKED_AT};
use crate::turn::TubeTurn;

/// Tasks of a page unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 100;

/// Tasks of a page at most.
const MAX_LIMIT: usize = 1_000;

impl Search {
    /// Goes on until the page is complete or the budget is spent. Whether it is complete.
    pub(crate) fn advance(&mut self, turn: &TubeTurn<'_>, budget: &mut Budget<'_>) -> Result<bool> {
        let Self { filter, limit, cursor, left, bytes, found, count, .. } = self;
        loop {
            let (mut is_full, written) = (false, found.len());
            let walked = turn.walk(filter, &cursor.position, WALK.min(*left), &mut |task| {
                if turn.is_admitted(filter, task)? {
                    turn.write_task_extended(task, None, found)?;
                    *count += 1;
                }
                is_full = *count as usize == *limit || found.len() >= MAX_LISTED_BYTES;
                let is_portion = found.len() - written >= PORTION_BYTES;
                Ok(if is_full || is_portion { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            budget.note_bytes(walked.bytes + found.len() - written);
            *left -= walked.looked_at;
            *bytes += walked.bytes;
            cursor.scanned += walked.looked_at as u64;
            cursor.position = walked.position;
            budget.spend_rows(walked.looked_at as u32);
            self.is_end = walked.is_end;
            if walked.is_end || is_full || *left == 0 || *bytes >= MAX_TASK_BYTES {
                self.total = turn.walk_total(filter)?.max(cursor.scanned);
                return Ok(true);
            }
            if budget.is_spent() {
                return Ok(false);
            }
        }
    }
}

impl TubeTurn<'_> {
    /// `find([filter[, {limit, cursor}]])`: a page of tasks in extended form, how many were looked at, of how many, and the cursor of
    /// the next page.
    pub(crate) fn search(&self, call: &Call<'_>) -> Result<Search> {
        let given = call.arguments.present(0);
        let filter = Filter::parse("find", given, self.tube, self.now)?;
        let options = Options::parse("find", "argument #2", call.arguments.present(1), &["limit", "cursor"])?;
        let positive = |value| unsigned(value).filter(|limit| *limit > 0);
        let limit = options.read("limit", "option limit should be a number of tasks, 1 or more", positive)?;
        let limit = limit.map_or(DEFAULT_LIMIT, |limit| limit.min(MAX_LIMIT as u64) as usize);
        let read = |value| string(value).and_then(Cursor::read);
        let cursor = options.read("cursor", "option cursor should be that of another page", read)?;
        let digest = digest(given.unwrap_or_default());
        let cursor = cursor.unwrap_or(Cursor { digest, ..Cursor::default() });
        if cursor.digest != digest {
            return Err(Error::Unfit {
                method: "find",
                what: "option cursor is that of another filter".into(),
            });
        }
        Ok(Search { filter, limit, cursor, left: MAX_LOOKED_AT, ..Search::default() })
    }
}
