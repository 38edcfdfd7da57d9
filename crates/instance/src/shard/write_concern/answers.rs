//! Answers that wait for the replicas that their calls want.

use super::ParkedAnswer;
use crate::shard::Shard;
use crate::shard::request::RequestId;

impl Shard {
    /// The call waits for something else first, and wants replicas after that.
    pub(in crate::shard) fn defer_concern(&mut self, request: RequestId, wanted: usize) {
        self.replication.write_concerns.waiting.insert(request, wanted);
    }

    /// The call waited for something, and is done: how many replicas it wants.
    pub(in crate::shard) fn take_concern(&mut self, request: RequestId) -> Option<usize> {
        self.replication.write_concerns.waiting.remove(&request)
    }

    /// The parked call is answered when the replicas that it wants have everything that there is now.
    pub(in crate::shard) fn park_concern(
        &mut self,
        request: RequestId,
        wanted: usize,
        count: u32,
        values: Vec<u8>,
    ) {
        let vclock = self.data.journaling.vclock().clone();
        self.replication.write_concerns.parked.push(ParkedAnswer { request, wanted, vclock, count, values });
    }

    /// Answers the calls whose write concerns are met.
    pub(crate) fn answer_concerns(&mut self) {
        if self.replication.write_concerns.is_empty() {
            return;
        }
        let parked = std::mem::take(&mut self.replication.write_concerns.parked);
        for answer in parked {
            let durable = self.data.journaling.durable_vclock();
            let is_here = answer.vclock.iter().all(|(id, lsn)| lsn <= durable.get(id));
            if is_here && self.replication.replicas.count_with(&answer.vclock) >= answer.wanted {
                self.answer(answer.request, Ok((answer.count, answer.values)));
            } else {
                self.replication.write_concerns.parked.push(answer);
            }
        }
    }
}
