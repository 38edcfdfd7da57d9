//! `find`: the tasks that a filter admits, in pages.
//!
//! A page looks at no more than [`MAX_LOOKED_AT`] tasks: the first [`Search::AT_ONCE`] within the call, further ones among the long
//! calls ([`crate::job`]), which get the share of the loop's time that background work has. A page's cursor is the key of its last task,
//! with the number of tasks looked at so far and a digest of the filter: a cursor of another filter is refused. A task that changes its
//! place between two pages may be missed, or found twice.

use std::ops::ControlFlow;

use lycosa_store::Budget;
use lycosa_tuple::mp;

use super::filter::{Filter, MAX_TASK_BYTES};
use crate::arguments::{Number, Table, is_nil, string};
use crate::background::{PORTION_BYTES, WALK};
use crate::command::Call;
use crate::error::Error;
use crate::listing::{MAX_LISTED_BYTES, MAX_LOOKED_AT};
use crate::members::Members;
use crate::turn::TubeTurn;

/// Tasks of a page unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 100;
/// Tasks of a page at most.
const MAX_LIMIT: usize = 1_000;

/// Where the next page begins.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// Of the filter.
    digest: u32,
    scanned: u64,
    position: Vec<u8>,
}

impl Cursor {
    fn write(&self, out: &mut Vec<u8>) {
        let bytes = [&self.digest.to_be_bytes()[..], &self.scanned.to_be_bytes(), &self.position].concat();
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        mp::write_str(out, text.as_bytes());
    }

    fn read(text: &[u8]) -> Option<Self> {
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let bytes = text.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        let (digest, rest) = bytes.split_first_chunk()?;
        let (scanned, position) = rest.split_first_chunk()?;
        // The position is a key: an array, and nothing behind it.
        let mut key = mp::Reader::new(position);
        key.raw().ok()?;
        if position.first().is_none_or(|first| first & 0xf0 != 0x90) || !key.is_empty() {
            return None;
        }
        Some(Self {
            digest: u32::from_be_bytes(*digest),
            scanned: u64::from_be_bytes(*scanned),
            position: position.to_vec(),
        })
    }
}

/// FNV-1a: the same in every version.
fn digest(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A page that is being filled.
#[derive(Debug)]
pub(crate) struct Search {
    filter: Filter,
    limit: usize,
    /// Where the page ends so far.
    cursor: Cursor,
    /// Tasks that it may still look at.
    left: usize,
    /// Bytes of payloads that it has looked into.
    bytes: usize,
    total: u64,
    is_end: bool,
    /// Its tasks in extended form.
    found: Vec<u8>,
    count: u32,
}

impl Search {
    /// Tasks that a call looks at before it waits for its share of the loop's time.
    pub(crate) const AT_ONCE: u32 = 64;

    /// Goes on until the page is complete or the budget is spent. Whether it is complete.
    pub(crate) fn advance(&mut self, turn: &TubeTurn<'_>, budget: &mut Budget<'_>) -> Result<bool, Error> {
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

    /// Appends the page.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut members = Members::new(out);
        let tasks = members.name("tasks");
        mp::write_array(tasks, self.count);
        tasks.extend_from_slice(&self.found);
        members.number("scanned", self.cursor.scanned);
        members.number("total", self.total);
        if !self.is_end {
            self.cursor.write(members.name("cursor"));
        }
    }
}

impl TubeTurn<'_> {
    /// `find([filter[, {limit, cursor}]])`: a page of tasks in extended form, how many were looked at, of how many, and the cursor of
    /// the next page.
    pub(crate) fn search(&self, call: &Call<'_>) -> Result<Search, Error> {
        let unfit = |what: &str| Error::Unfit { method: "find", what: what.into() };
        let given = call.arguments.present(0);
        let filter = Filter::parse("find", given, self.tube, self.now)?;
        let (mut limit, mut cursor) = (DEFAULT_LIMIT, None);
        let options =
            Table::parse(call.arguments.present(1)).map_err(|_| unfit("argument #2 should be a map"))?;
        for (name, value) in options.filter(|(_, value)| !is_nil(value)) {
            match name {
                b"limit" => {
                    let number = Number::parse(value).and_then(Number::unsigned).filter(|number| *number > 0);
                    let number =
                        number.ok_or_else(|| unfit("option limit should be a number of tasks, 1 or more"))?;
                    limit = usize::try_from(number).map_or(MAX_LIMIT, |number| number.min(MAX_LIMIT));
                }
                b"cursor" => {
                    let read = string(value).and_then(Cursor::read);
                    cursor = Some(read.ok_or_else(|| unfit("option cursor should be that of another page"))?);
                }
                _ => return Err(unfit("the options are limit and cursor")),
            }
        }
        let digest = digest(given.unwrap_or_default());
        let cursor = cursor.unwrap_or(Cursor { digest, ..Cursor::default() });
        if cursor.digest != digest {
            return Err(unfit("option cursor is that of another filter"));
        }
        let left = MAX_LOOKED_AT;
        Ok(Search {
            filter,
            limit,
            cursor,
            left,
            bytes: 0,
            total: 0,
            is_end: false,
            found: Vec::new(),
            count: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_a_forged_one_does_not() {
        let cursor = Cursor { digest: 7, scanned: 1 << 40, position: vec![0x92, 0xa1, b'r', 5] };
        let mut out = Vec::new();
        cursor.write(&mut out);
        let text = string(&out).expect("a text").to_vec();
        assert_eq!(Cursor::read(&text), Some(cursor));
        for forged in [&text[1..], &text[..text.len() - 2], b"zz", b"", &[&text[..], b"05"].concat()] {
            assert_eq!(Cursor::read(forged), None, "{}", String::from_utf8_lossy(forged));
        }
    }
}
