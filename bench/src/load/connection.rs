//! One connection of a load: its socket, its buffers, its slots.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use mio::net::TcpStream;

use super::phase::{Phase, Role};
use crate::protocol::{Answer, Batch, Dialogue, Given, Heard, Operation, Request};
use crate::wire::Wire;

/// Free space that a read finds at least.
const READ_SIZE: usize = 64 << 10;

/// One of the requests that a connection has in flight.
#[derive(Debug, Default)]
struct RequestSlot {
    /// Index into the steps of the round.
    step: usize,
    /// Nanoseconds since the phase began.
    asked_at: u64,
    /// Number of the task that the slot is about.
    number: u64,
    /// By which that task is acknowledged, or the tasks of a batch.
    receipt: Vec<u8>,
    /// Numbers of the tasks of a batch.
    numbers: Vec<u64>,
    /// The sub-queue of the next task, where slots have one.
    sub_queue: u64,
}

impl RequestSlot {
    /// Records the answer to a batch, which must be about the tasks of the slot, or for a take about as many.
    fn record_batch(
        &mut self,
        operation: Operation,
        tasks: &[Given<'_>],
        phase: &mut Phase<'_>,
    ) -> Result<()> {
        let (name, found, expected) = (operation.name(), tasks.len(), phase.batch() as usize);
        ensure!(found == expected, "{name} of {expected} tasks was answered with {found} of them");
        if operation == Operation::Take {
            self.numbers.clear();
            self.receipt.clear();
            for task in tasks {
                let number = phase.payload.number_of(task.payload)?;
                phase.account.take(number)?;
                self.numbers.push(number);
                self.receipt.extend_from_slice(task.receipt);
            }
            return Ok(());
        }
        for (task, &expected) in tasks.iter().zip(&self.numbers) {
            let number = phase.payload.number_of(task.payload)?;
            ensure!(number == expected, "the answer to {name} of task {expected} shows task {number}");
            if operation == Operation::Ack {
                phase.account.acknowledge(number)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire<TcpStream>,
    dialogue: Box<dyn Dialogue>,
    slots: Vec<RequestSlot>,
    role: Role,
    /// Received bytes are in `input[read_from..filled]`.
    input: Vec<u8>,
    filled: usize,
    /// Bytes to send are `output[written..]`.
    output: Vec<u8>,
    written: usize,
    /// The payloads of a batch, while it is encoded.
    payloads: Vec<u8>,
}

impl Connection {
    /// `first_sub_queue` is that of its first slot; the next slots have the following ones.
    pub(super) fn new(
        wire: Wire<TcpStream>,
        dialogue: Box<dyn Dialogue>,
        slots: usize,
        first_sub_queue: usize,
    ) -> Self {
        let slot = |at| RequestSlot { sub_queue: (first_sub_queue + at) as u64, ..RequestSlot::default() };
        Self {
            wire,
            dialogue,
            slots: (0..slots).map(slot).collect(),
            role: Role::Worker,
            input: vec![0; 2 * READ_SIZE],
            filled: 0,
            output: Vec::new(),
            written: 0,
            payloads: Vec::new(),
        }
    }

    /// Lets up to `depth` slots begin with a phase.
    pub(super) fn begin(&mut self, role: Role, depth: usize, phase: &mut Phase<'_>) -> Result<()> {
        self.role = role;
        let slots = if role == Role::Producer { 1 } else { self.slots.len().min(depth) };
        for slot in 0..slots {
            phase.enlist(role);
            self.begin_round(slot, phase)?;
        }
        self.flush()
    }

    /// Lets one slot do its next round.
    pub(super) fn begin_slot(&mut self, slot: usize, phase: &mut Phase<'_>) -> Result<()> {
        self.begin_round(slot, phase)?;
        self.flush()
    }

    /// Reads the arrived answers, goes on with their slots, and writes as much as the socket takes.
    pub(super) fn serve(&mut self, phase: &mut Phase<'_>) -> Result<()> {
        loop {
            if self.input.len() - self.filled < READ_SIZE {
                self.input.resize(2 * self.input.len(), 0);
            }
            let space = &mut self.input[self.filled..];
            let room = space.len();
            let count = match self.wire.read(space) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read"),
            };
            self.filled += count;
            phase.look_at_clock();
            self.hear(phase)?;
            if count < room && self.wire.short_read_is_last() {
                break;
            }
        }
        self.flush()
    }

    /// Goes through the received bytes.
    fn hear(&mut self, phase: &mut Phase<'_>) -> Result<()> {
        // The buffer is out of the way while answers borrow from it.
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            match self.dialogue.hear(&input[at..self.filled], &mut self.output)? {
                Heard::NeedMore => break,
                Heard::Skipped { consumed } => at += consumed,
                Heard::Answer { consumed, slot, answer } => {
                    at += consumed;
                    self.record_answer(slot, answer, phase)?;
                }
            }
        }
        input.copy_within(at..self.filled, 0);
        self.filled -= at;
        self.input = input;
        Ok(())
    }

    /// Records the answer to a slot's request and sends the slot's next one.
    fn record_answer(&mut self, index: usize, answer: Answer<'_>, phase: &mut Phase<'_>) -> Result<()> {
        let slot = self.slots.get_mut(index).with_context(|| format!("an answer to slot {index}"))?;
        let steps = phase.steps(self.role);
        let operation = steps[slot.step];
        let name = operation.name();
        match (operation, answer) {
            (_, Answer::Refused(reason)) => bail!("{name} failed: {reason}"),
            (Operation::Take, Answer::Task { receipt, payload }) => {
                slot.number = phase.payload.number_of(payload)?;
                phase.account.take(slot.number)?;
                slot.receipt.clear();
                slot.receipt.extend_from_slice(receipt);
                slot.sub_queue = phase.sub_queue_of(slot.number)?.unwrap_or(slot.sub_queue);
            }
            (_, Answer::Tasks(tasks)) => slot.record_batch(operation, &tasks, phase)?,
            (Operation::Put | Operation::Ack, Answer::Task { payload, .. }) => {
                let number = phase.payload.number_of(payload)?;
                let expected = slot.number;
                ensure!(number == expected, "the answer to {name} of task {expected} shows task {number}");
            }
            (Operation::Put | Operation::Ack, Answer::Done) => {}
            (Operation::Take, Answer::NoTask) => {
                bail!("take found no task, though {} are there", phase.account.waiting());
            }
            (_, answer) => bail!("{name} was answered with {answer:?}"),
        }
        if operation == Operation::Ack && phase.batch() == 1 {
            phase.account.acknowledge(slot.number)?;
        }
        phase.record(operation, self.role, slot.asked_at);
        slot.step += 1;
        if slot.step < steps.len() {
            return self.ask(index, phase);
        }
        phase.end_round(self.role);
        if self.role != Role::Producer {
            self.begin_round(index, phase)?;
        }
        Ok(())
    }

    fn begin_round(&mut self, slot: usize, phase: &mut Phase<'_>) -> Result<()> {
        if phase.begin_round(self.role) {
            self.slots[slot].step = 0;
            return self.ask(slot, phase);
        }
        phase.retire();
        Ok(())
    }

    /// Sends the request of a slot's current step.
    fn ask(&mut self, index: usize, phase: &mut Phase<'_>) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.asked_at = phase.now();
        if phase.batch() > 1 {
            return self.ask_batch(index, phase);
        }
        let request = match phase.steps(self.role)[slot.step] {
            Operation::Put => {
                slot.number = phase.account.put();
                let options = phase.put_options(slot.number, slot.sub_queue);
                Request::Put { payload: phase.payload.of(slot.number), options }
            }
            Operation::Take => Request::Take { waits: self.role == Role::Consumer },
            Operation::Ack => Request::Ack { receipt: &slot.receipt },
        };
        self.dialogue.ask(index, &request, &mut self.output);
        Ok(())
    }

    /// The same for a round about many tasks.
    fn ask_batch(&mut self, index: usize, phase: &mut Phase<'_>) -> Result<()> {
        let slot = &mut self.slots[index];
        let count = phase.batch();
        let batch = match phase.steps(self.role)[slot.step] {
            Operation::Put => {
                slot.numbers.clear();
                self.payloads.clear();
                for _ in 0..count {
                    let number = phase.account.put();
                    slot.numbers.push(number);
                    self.payloads.extend_from_slice(phase.payload.of(number));
                }
                Batch::Put { payloads: &self.payloads, size: phase.payload.size() }
            }
            Operation::Take => Batch::Take { limit: count },
            Operation::Ack => Batch::Ack { receipts: &slot.receipt, count },
        };
        self.dialogue.ask_batch(index, &batch, &mut self.output)
    }

    fn flush(&mut self) -> Result<()> {
        while self.written < self.output.len() {
            match self.wire.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot write"),
            }
        }
        self.output.clear();
        self.written = 0;
        match self.wire.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error).context("cannot write"),
            _ => Ok(()),
        }
    }
}
