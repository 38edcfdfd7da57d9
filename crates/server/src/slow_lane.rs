//! The slow lane: connections whose requests hold the loop wait in one line.
//!
//! All connections share the loop, and the sockets that are readable are served one after the other. A connection is served for
//! [`QUANTUM`] at a time. If its requests take longer (a batch of 10 000 tasks, thousands of requests in one read), the rest waits
//! in the slow lane. For [`DEBT`] times as long as it has held the loop, all further requests of the connection go through the
//! lane. A large batch of tasks waits there even as the first request of its connection (`lycosa_instance::Handled`), since its
//! length is known before it is done. The lane admits one connection after the other, and the server looks at all sockets in
//! between. So a client of few requests waits for one connection of the lane, however long the lane is.
//!
//! Invariants: the lane is first come, first served; a connection that is alone in the lane goes on at once.
//! Absent: a bound for one request, as each kind has its own.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lycosa_instance::Instance;
use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;

/// The longest time for which a connection, or HTTP as a whole, holds the loop before other connections have their turn.
pub(crate) const QUANTUM: Duration = Duration::from_millis(1);

/// How many times as long as it has held the loop a connection stays in the lane.
const DEBT: u32 = 16;

/// Requests after which the clock is looked at.
const REQUESTS: u32 = 64;

/// Bytes of requests after which the clock is looked at.
const BYTES: usize = 16 << 10;

/// The line, and the one who admits.
pub(crate) struct SlowLane {
    /// One permit is the admission of one connection. The semaphore keeps the line.
    admissions: Semaphore,
    waiting: Cell<usize>,
    arrival: Notify,
}

impl Default for SlowLane {
    fn default() -> Self {
        Self { admissions: Semaphore::new(0), waiting: Cell::new(0), arrival: Notify::new() }
    }
}

impl SlowLane {
    /// Waits at the end of the line until admitted. Dropped before that, it leaves the line.
    pub(crate) async fn admission(&self) {
        let _place = Place::take(&self.waiting);
        self.arrival.notify_one();
        // The semaphore is never closed.
        if let Ok(permit) = self.admissions.acquire().await {
            permit.forget();
        }
    }

    /// Admits connections until the task is dropped.
    pub(crate) async fn admit(&self) {
        loop {
            self.arrival.notified().await;
            while self.waiting.get() > 0 {
                // Behind this the runtime looks at all sockets, and the tasks of readable sockets run first.
                yield_now().await;
                if self.admissions.available_permits() == 0 {
                    self.admissions.add_permits(1);
                }
            }
        }
    }
}

/// A place in the line.
struct Place<'a>(&'a Cell<usize>);

impl<'a> Place<'a> {
    fn take(waiting: &'a Cell<usize>) -> Self {
        waiting.set(waiting.get() + 1);
        Self(waiting)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How long a connection has held the loop since it was admitted.
pub(crate) struct Quantum {
    began: Instant,
    requests: u32,
    bytes: usize,
}

impl Quantum {
    /// Begins now. Requests that `instance` has measured before do not count.
    pub(crate) fn begin(instance: &mut Instance) -> Self {
        instance.take_held();
        Self { began: Instant::now(), requests: 0, bytes: 0 }
    }

    /// A request of `bytes` was handled: whether the quantum is over. The clock is asked rarely, but for requests of the
    /// kinds that may take long, which the instance measures.
    pub(crate) fn is_over(&mut self, instance: &mut Instance, bytes: usize) -> bool {
        self.requests += 1;
        self.bytes += bytes;
        let was_long = instance.take_held() >= QUANTUM;
        if !was_long && self.requests < REQUESTS && self.bytes < BYTES {
            return false;
        }
        (self.requests, self.bytes) = (0, 0);
        was_long || self.began.elapsed() >= QUANTUM
    }

    /// How long the connection stays in the lane: not at all if it has ended within the quantum.
    pub(crate) fn debt(&self) -> Option<Duration> {
        let held = self.began.elapsed();
        (held >= QUANTUM).then(|| held * DEBT)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    #[tokio::test]
    async fn the_lane_is_first_come_first_served_and_other_tasks_run_in_between() {
        LocalSet::new()
            .run_until(async {
                let lane = Rc::new(SlowLane::default());
                let ran = Rc::new(RefCell::new(Vec::new()));
                let keeper = spawn_local({
                    let lane = lane.clone();
                    async move { lane.admit().await }
                });
                let mut tasks = Vec::new();
                for number in 0..3 {
                    let (lane, ran) = (lane.clone(), ran.clone());
                    tasks.push(spawn_local(async move {
                        for _ in 0..2 {
                            lane.admission().await;
                            ran.borrow_mut().push(number);
                        }
                    }));
                }
                // One that gives its place up takes no admission with it.
                let gone = spawn_local({
                    let lane = lane.clone();
                    async move { lane.admission().await }
                });
                yield_now().await;
                gone.abort();
                let most = Rc::new(Cell::new(0));
                let between = spawn_local({
                    let (ran, most) = (ran.clone(), most.clone());
                    async move {
                        let mut seen = 0;
                        while seen < 6 {
                            let now = ran.borrow().len();
                            most.set(most.get().max(now - seen));
                            seen = now;
                            yield_now().await;
                        }
                    }
                });
                for task in tasks {
                    task.await.unwrap();
                }
                between.await.unwrap();
                assert_eq!(*ran.borrow(), [0, 1, 2, 0, 1, 2]);
                assert_eq!(most.get(), 1, "one after the other");
                assert_eq!((lane.waiting.get(), lane.admissions.available_permits() <= 1), (0, true));
                keeper.abort();
            })
            .await;
    }
}
