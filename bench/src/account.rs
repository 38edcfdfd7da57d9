//! The load generator's own account of its tasks.
//!
//! Every task carries its number in the payload. The account knows of each number whether its task was sent, taken or
//! acknowledged, and refuses what a queue must not do: hand a task out that was never put, hand it out twice at a time,
//! hand it out after its acknowledgement, change its payload, or lose it.

use std::collections::VecDeque;

use anyhow::{Result, bail, ensure};

use crate::protocol::Shown;

/// Hexadecimal digits of a task's number at the beginning of its payload.
const DIGITS: usize = 10;
/// The shortest payload.
pub(crate) const SHORTEST_PAYLOAD: usize = DIGITS;

/// The payload of every task: its number, then always the same bytes.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Vec<u8>,
}

impl Payload {
    /// A payload of `length` bytes, at least [`SHORTEST_PAYLOAD`].
    pub(crate) fn new(length: usize) -> Self {
        let bytes = (0..length.max(SHORTEST_PAYLOAD)).map(|at| b'a' + (at % 26) as u8).collect();
        Self { bytes }
    }

    /// Bytes of every payload.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The payload of task `number`.
    pub(crate) fn of(&mut self, number: u64) -> &[u8] {
        for (at, digit) in self.bytes[..DIGITS].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (4 * (DIGITS - 1 - at)) & 0xf) as usize];
        }
        &self.bytes
    }

    /// The number of the task with this payload.
    pub(crate) fn number_of(&self, payload: &[u8]) -> Result<u64> {
        ensure!(
            payload.len() == self.bytes.len() && payload[DIGITS..] == self.bytes[DIGITS..],
            "a task came with a payload that was never put: {}",
            Shown(payload)
        );
        payload[..DIGITS].iter().try_fold(0, |number, &digit| {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => bail!("a task came whose payload has no number: {}", Shown(payload)),
            };
            Ok(number << 4 | u64::from(value))
        })
    }
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sent,
    Taken,
    Acknowledged,
}

/// What became of every task.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// From task `first` on; everything before is acknowledged.
    stages: VecDeque<Stage>,
    first: u64,
    waiting: u64,
    taken: u64,
}

impl Account {
    /// Tasks that were put and not taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Tasks that were taken and not acknowledged.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Notes that one more task is being put, and gives its number.
    pub(crate) fn put(&mut self) -> u64 {
        self.stages.push_back(Stage::Sent);
        self.waiting += 1;
        self.first + self.stages.len() as u64 - 1
    }

    /// Notes that task `number` was handed out.
    pub(crate) fn take(&mut self, number: u64) -> Result<()> {
        match self.stage(number) {
            Some(Stage::Sent) => self.set(number, Stage::Taken),
            Some(Stage::Taken) => bail!("task {number} was handed out while it was taken"),
            Some(Stage::Acknowledged) => bail!("task {number} was handed out after it was acknowledged"),
            None => bail!("task {number} was handed out, but never put"),
        }
        self.waiting -= 1;
        self.taken += 1;
        Ok(())
    }

    /// Notes that task `number`, which is taken, was acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u64) -> Result<()> {
        ensure!(self.stage(number) == Some(Stage::Taken), "task {number} was acknowledged, but not taken");
        self.set(number, Stage::Acknowledged);
        self.taken -= 1;
        while self.stages.front() == Some(&Stage::Acknowledged) {
            self.stages.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// `None` for a task that was not put.
    fn stage(&self, number: u64) -> Option<Stage> {
        match number.checked_sub(self.first) {
            Some(at) => self.stages.get(usize::try_from(at).ok()?).copied(),
            None => Some(Stage::Acknowledged),
        }
    }

    /// Sets the stage of a task that is not before `first`.
    fn set(&mut self, number: u64, stage: Stage) {
        self.stages[(number - self.first) as usize] = stage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_carry_their_number() {
        let mut payload = Payload::new(12);
        assert_eq!(payload.of(0xabc), b"0000000abckl");
        assert_eq!(payload.number_of(b"0000000abckl").unwrap(), 0xabc);
        for wrong in ["0000000abcki", "0000000abckl ", "0000000abc", "0000000aBckl", ""] {
            assert!(payload.number_of(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(Payload::new(0).of(1), b"0000000001");
    }

    #[test]
    fn a_life() {
        let mut account = Account::default();
        assert_eq!([account.put(), account.put(), account.put()], [0, 1, 2]);
        account.take(1).unwrap();
        account.acknowledge(1).unwrap();
        account.take(0).unwrap();
        assert_eq!((account.waiting(), account.taken()), (1, 1));
        account.acknowledge(0).unwrap();
        assert_eq!(account.first, 2);
        assert_eq!(account.put(), 3);
        assert_eq!((account.waiting(), account.taken()), (2, 0));
    }

    #[test]
    fn what_a_queue_must_not_do() {
        let mut account = Account::default();
        let text = |result: Result<()>| result.unwrap_err().to_string();
        account.put();
        assert_eq!(text(account.take(1)), "task 1 was handed out, but never put");
        assert_eq!(text(account.acknowledge(0)), "task 0 was acknowledged, but not taken");
        account.take(0).unwrap();
        assert_eq!(text(account.take(0)), "task 0 was handed out while it was taken");
        account.acknowledge(0).unwrap();
        assert_eq!(text(account.take(0)), "task 0 was handed out after it was acknowledged");
        assert_eq!(text(account.acknowledge(0)), "task 0 was acknowledged, but not taken");
    }
}
