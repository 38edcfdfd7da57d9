//! The replies of one connection that were not written yet.
//!
//! A reply is encoded once, at the end of the connection's buffer, and stays there until everything it has seen is
//! durable. Because LSNs only grow, what may leave is always a prefix of the buffer: releasing is moving one number.
//!
//! A long reply was assembled elsewhere, in chunks of its own. It is adopted when everything in the buffer may leave: the
//! chunks go out as they are, before the buffer, and no byte of them is copied.
//!
//! Invariants: `released <= bytes.len()`; marks ascend in both LSN and offset; the last mark's offset is the end of
//! the buffer, or there are no marks and everything is released; `in_flight` is the sum of the marks' counts. Replies
//! overtake only waiting calls, which are not here yet.

use std::collections::VecDeque;

/// Encoded replies: released ones first, then replies that wait for their LSN.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// What may leave before `bytes`. None is empty, and `written` is about the first one.
    chunks: VecDeque<Vec<u8>>,
    chunked_bytes: usize,
    bytes: Vec<u8>,
    written: usize,
    released: usize,
    waiting: VecDeque<Mark>,
    in_flight: u64,
}

/// All replies up to `end` may leave once `lsn` is durable.
#[derive(Debug)]
struct Mark {
    lsn: u64,
    end: usize,
    count: u32,
}

/// The most bytes that a connection writes at once. The kernel copies them in some tens of microseconds.
const MAX_WRITE: usize = 128 << 10;

/// A buffer that grew beyond this is given back to the allocator once it is empty.
const KEPT_CAPACITY: usize = 64 << 10;

impl Replies {
    /// Where the next reply is encoded; end it with [`Replies::finish`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the reply that was just encoded: it may leave once `lsn` is durable. True if it may leave now. Rows behind
    /// `batch` become durable together, so the replies that wait for them share a mark.
    #[inline]
    pub(crate) fn finish(&mut self, lsn: u64, durable: u64, batch: u64) -> bool {
        let end = self.bytes.len();
        if lsn <= durable && self.waiting.is_empty() {
            self.released = end;
            return true;
        }
        self.in_flight += 1;
        match self.waiting.back_mut() {
            Some(last) if last.lsn >= lsn.min(batch.saturating_add(1)) => {
                last.lsn = last.lsn.max(lsn);
                last.end = end;
                last.count += 1;
            }
            _ => self.waiting.push_back(Mark { lsn, end, count: 1 }),
        }
        false
    }

    /// Everything up to `lsn` is durable. Returns how many replies were released.
    pub(crate) fn release(&mut self, lsn: u64) -> u64 {
        let before = self.in_flight;
        while let Some(mark) = self.waiting.front()
            && mark.lsn <= lsn
        {
            self.released = mark.end;
            self.in_flight -= u64::from(mark.count);
            self.waiting.pop_front();
        }
        before - self.in_flight
    }

    /// Whether every reply may leave, so that a long one can be adopted.
    pub(crate) fn may_adopt(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets a whole reply, in chunks that are not empty, leave after the buffered replies, which may leave too.
    pub(crate) fn adopt(&mut self, reply: Vec<Vec<u8>>) {
        assert!(self.may_adopt(), "a long reply does not overtake one that waits");
        let pending = self.pending_bytes();
        let before = std::mem::take(&mut self.bytes);
        self.released = 0;
        self.chunked_bytes = pending + reply.iter().map(Vec::len).sum::<usize>();
        self.chunks.extend([before].into_iter().chain(reply).filter(|chunk| !chunk.is_empty()));
    }

    /// What may be written now, or the first [`MAX_WRITE`] bytes of it, or of its first chunk.
    pub(crate) fn ready(&self) -> &[u8] {
        let ready = match self.chunks.front() {
            Some(chunk) => &chunk[self.written..],
            None => &self.bytes[self.written..self.released],
        };
        ready.get(..MAX_WRITE).unwrap_or(ready)
    }

    /// The first `count` bytes of [`Replies::ready`] were written. Whether there are more that may be written.
    pub(crate) fn consume(&mut self, count: usize) -> bool {
        self.written += count;
        if let Some(chunk) = self.chunks.front() {
            assert!(self.written <= chunk.len(), "no more can be written than was ready");
            self.chunked_bytes -= count;
            if self.written == chunk.len() {
                self.chunks.pop_front();
                self.written = 0;
            }
            return !self.ready().is_empty();
        }
        self.consume_from_buffer();
        !self.ready().is_empty()
    }

    fn consume_from_buffer(&mut self) {
        assert!(self.written <= self.released, "no more can be written than was ready");
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            self.released = 0;
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else if self.written > KEPT_CAPACITY && self.written * 2 > self.bytes.len() {
            self.bytes.drain(..self.written);
            self.released -= self.written;
            self.waiting.iter_mut().for_each(|mark| mark.end -= self.written);
            self.written = 0;
        }
    }

    /// Bytes that are not written yet, released or not.
    pub(crate) fn pending_bytes(&self) -> usize {
        match self.chunks.is_empty() {
            true => self.bytes.len() - self.written,
            false => self.chunked_bytes + self.bytes.len(),
        }
    }

    /// Bytes that may be written now.
    pub(crate) fn ready_bytes(&self) -> usize {
        match self.chunks.is_empty() {
            true => self.released - self.written,
            false => self.chunked_bytes + self.released,
        }
    }

    /// Replies that wait for the journal.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Everything behind `lsn` was lost: replaces every reply that waits for it by what `replace` makes of it (frame in, frame
    /// out). They leave with the last row that was not lost.
    pub(crate) fn lose(&mut self, lsn: u64, mut replace: impl FnMut(&[u8], &mut Vec<u8>)) {
        let kept = self.waiting.partition_point(|mark| mark.lsn <= lsn);
        let lost: u32 = self.waiting.drain(kept..).map(|mark| mark.count).sum();
        if lost == 0 {
            return;
        }
        let begin = self.waiting.back().map_or(self.released, |mark| mark.end);
        self.replace_behind(begin, &mut replace);
        self.waiting.push_back(Mark { lsn, end: self.bytes.len(), count: lost });
    }

    /// Replaces every waiting reply by what `replace` makes of it (frame in, frame out) and releases it.
    pub(crate) fn replace_waiting(&mut self, mut replace: impl FnMut(&[u8], &mut Vec<u8>)) {
        self.replace_behind(self.released, &mut replace);
        self.waiting.clear();
        self.in_flight = 0;
        self.released = self.bytes.len();
    }
}

impl Replies {
    /// Replaces the replies from the offset `begin` on.
    fn replace_behind(&mut self, begin: usize, replace: &mut impl FnMut(&[u8], &mut Vec<u8>)) {
        let waiting = self.bytes.split_off(begin);
        let mut rest = waiting.as_slice();
        while let Some(length) = frame_length(rest) {
            let (frame, tail) = rest.split_at(length);
            replace(frame, &mut self.bytes);
            rest = tail;
        }
    }
}

/// The length of the reply at the start of `bytes`; replies always begin with `ce` and four bytes of length.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let (&[0xce, a, b, c, d], _) = bytes.split_first_chunk::<5>()? else { return None };
    Some(5 + u32::from_be_bytes([a, b, c, d]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(replies: &mut Replies, body: u8, lsn: u64, durable: u64) -> bool {
        replies.buffer().extend_from_slice(&[0xce, 0, 0, 0, 1, body]);
        replies.finish(lsn, durable, u64::MAX)
    }

    fn bodies(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(6).map(|frame| frame[5]).collect()
    }

    #[test]
    fn replies_leave_in_order_and_only_when_durable() {
        let mut replies = Replies::default();
        assert!(push(&mut replies, 1, 0, 0));
        assert!(!push(&mut replies, 2, 5, 0));
        assert!(!push(&mut replies, 3, 5, 0));
        assert!(!push(&mut replies, 4, 7, 0));
        assert_eq!(bodies(replies.ready()), [1]);
        assert_eq!(replies.in_flight(), 3);
        assert_eq!(replies.release(4), 0);
        assert_eq!(replies.release(6), 2);
        assert_eq!(bodies(replies.ready()), [1, 2, 3]);
        replies.consume(12);
        assert_eq!(bodies(replies.ready()), [3]);
        assert_eq!(replies.release(7), 1);
        assert_eq!(bodies(replies.ready()), [3, 4]);
        assert!(!replies.consume(12));
        assert_eq!((replies.ready().len(), replies.pending_bytes()), (0, 0));
    }

    #[test]
    fn a_reply_that_saw_nothing_new_still_waits_behind_earlier_ones() {
        let mut replies = Replies::default();
        assert!(!push(&mut replies, 1, 5, 0));
        assert!(!push(&mut replies, 2, 0, 0));
        assert_eq!(replies.ready(), b"");
        assert_eq!(replies.release(5), 2);
        assert_eq!(bodies(replies.ready()), [1, 2]);
    }

    #[test]
    fn replies_that_wait_for_one_batch_leave_together() {
        let mut replies = Replies::default();
        let mut push = |body: u8, lsn: u64, batch: u64| {
            replies.buffer().extend_from_slice(&[0xce, 0, 0, 0, 1, body]);
            replies.finish(lsn, 0, batch)
        };
        assert!(!push(1, 4, 3) && !push(2, 5, 3) && !push(3, 4, 3) && !push(4, 6, 5) && !push(5, 7, 5));
        assert_eq!(replies.waiting.iter().map(|mark| mark.lsn).collect::<Vec<_>>(), [5, 7]);
        assert_eq!((replies.release(5), replies.in_flight()), (3, 2));
        assert_eq!(bodies(replies.ready()), [1, 2, 3]);
        assert_eq!((replies.release(7), replies.in_flight()), (2, 0));
    }

    #[test]
    fn long_buffers_are_shortened_while_replies_wait() {
        let mut replies = Replies::default();
        for _ in 0..20_000 {
            push(&mut replies, 1, 0, 0);
        }
        push(&mut replies, 2, 9, 0);
        let ready = replies.ready().len();
        replies.consume(ready);
        assert!(replies.pending_bytes() == 6 && replies.bytes.len() == 6);
        assert_eq!(replies.release(9), 1);
        assert_eq!(bodies(replies.ready()), [2]);
    }

    #[test]
    fn a_long_reply_leaves_between_those_before_and_behind_it() {
        let mut replies = Replies::default();
        push(&mut replies, 1, 0, 0);
        push(&mut replies, 2, 0, 0);
        assert!(replies.consume(6));
        replies.adopt(vec![vec![0xce, 0, 0, 0, 7, 3], vec![4; 3], Vec::new(), vec![5; 3]]);
        assert!(!push(&mut replies, 6, 9, 0) && !replies.may_adopt());
        assert_eq!(replies.pending_bytes(), 6 + 6 + 6 + 6);
        assert_eq!(bodies(replies.ready()), [2]);
        assert!(replies.consume(6));
        assert_eq!(replies.ready(), [0xce, 0, 0, 0, 7, 3]);
        assert!(replies.consume(6) && replies.consume(2));
        assert_eq!((replies.ready(), replies.pending_bytes()), (&[4][..], 1 + 3 + 6));
        assert!(replies.consume(1));
        assert!(!replies.consume(3), "the last one waits for the journal");
        assert_eq!(replies.release(9), 1);
        assert_eq!(bodies(replies.ready()), [6]);
        assert!(!replies.consume(6));
        assert_eq!(replies.pending_bytes(), 0);
    }

    #[test]
    fn lost_replies_are_replaced_and_leave_behind_the_others() {
        let mut replies = Replies::default();
        push(&mut replies, 1, 0, 0);
        push(&mut replies, 2, 5, 0);
        push(&mut replies, 3, 6, 0);
        push(&mut replies, 4, 8, 0);
        replies.lose(5, |frame, out| out.extend_from_slice(&[0xce, 0, 0, 0, 1, frame[5] + 10]));
        assert_eq!((bodies(replies.ready()), replies.in_flight()), (vec![1], 3));
        push(&mut replies, 5, 9, 0);
        assert_eq!(replies.release(5), 3);
        assert_eq!(bodies(replies.ready()), [1, 2, 13, 14]);
        replies.lose(9, |_, _| panic!("nothing waits for a lost row"));
        assert_eq!(replies.release(9), 1);
        assert_eq!(bodies(replies.ready()), [1, 2, 13, 14, 5]);
    }

    #[test]
    fn failed_replies_are_replaced_one_by_one() {
        let mut replies = Replies::default();
        push(&mut replies, 1, 0, 0);
        push(&mut replies, 2, 5, 0);
        push(&mut replies, 3, 6, 0);
        replies.replace_waiting(|frame, out| out.extend_from_slice(&[0xce, 0, 0, 0, 1, frame[5] + 10]));
        assert_eq!(bodies(replies.ready()), [1, 12, 13]);
        assert_eq!(replies.in_flight(), 0);
    }
}
