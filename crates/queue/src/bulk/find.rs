//! `find`: the tasks that a filter admits, in pages.
//!
//! A page looks at no more than [`MAX_LOOKED_AT`](crate::listing::MAX_LOOKED_AT) tasks: the first [`Search::AT_ONCE`] within the
//! call, further ones among the long calls ([`crate::long_call`]), which get the share of the loop's time that background work has.
//! A page's cursor is the key of its last task, with the number of tasks looked at so far and a digest of the filter: a cursor of
//! another filter is refused. A task that changes its place between two pages may be missed, or found twice.

mod page;

use lycosa_tuple::mp;

use super::filter::Filter;

use crate::members::Members;

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
#[derive(Debug, Default)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::string;

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
