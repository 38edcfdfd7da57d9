//! Nanoseconds of one put, take and ack, one after the other, in a tube that already holds tasks.
//!
//! `cargo bench -p lycosa-queue -- [SCALE]`: the tube holds SCALE other tasks (default 100000; the documented numbers are
//! with 1000000). Nothing is asserted about time.

use std::time::Instant;

use lycosa_queue::{Answer, Caller, Command, Concern, Configuration, Procedure, Queue, Right};
use lycosa_store::{Settings, Store};
use lycosa_tuple::mp;

const CYCLES: u64 = 200_000;
const NOW: u64 = 1_800_000_000_000_000;

struct Bench {
    store: Store,
    queue: Queue,
    out: Vec<u8>,
    arguments: Vec<u8>,
}

const CALLER: Caller = Caller { session: 1, may_wait: true, ..Caller::internal() };

impl Bench {
    fn new(tube_type: &str, temporary: bool) -> Self {
        let mut store = Store::new(Settings { memory_limit: 8 << 30, ..Settings::default() });
        let uuid = "00000000-0000-4000-8000-000000000001";
        store.bootstrap(uuid, uuid).expect("bootstrap");
        store.finish_recovery().expect("recovery");
        let mut queue = Queue::new(Configuration::default(), Box::new(|| [7; 16]));
        queue.start(&mut store, NOW).expect("start");
        let mut bench = Self { store, queue, out: Vec::new(), arguments: Vec::new() };
        bench.begin(3);
        mp::write_str(&mut bench.arguments, b"t");
        mp::write_str(&mut bench.arguments, tube_type.as_bytes());
        mp::write_map(&mut bench.arguments, 1);
        mp::write_str(&mut bench.arguments, b"temporary");
        mp::write_bool(&mut bench.arguments, temporary);
        let create = bench.resolve("queue.create_tube");
        bench.call(&create);
        bench
    }

    fn resolve(&self, name: &str) -> Procedure {
        self.queue.resolve(name.as_bytes()).expect("a procedure")
    }

    fn begin(&mut self, count: u32) {
        self.arguments.clear();
        mp::write_array(&mut self.arguments, count);
    }

    fn call(&mut self, procedure: &Procedure) -> u32 {
        self.out.clear();
        let command = Command {
            procedure,
            right: Right::default(),
            request: 1,
            arguments: &self.arguments,
            concern: Concern::NONE,
        };
        let answer = self.queue.call(&mut self.store, &CALLER, &command, NOW, &mut self.out);
        match answer {
            Ok(Answer::Done { count }) => count,
            other => panic!("{other:?}"),
        }
    }

    /// 100 bytes of payload; `option` is written as a number.
    fn put(&mut self, procedure: &Procedure, option: Option<(&str, u64)>) {
        self.begin(1 + u32::from(option.is_some()));
        mp::write_str(&mut self.arguments, &[b'x'; 98]);
        if let Some((name, value)) = option {
            mp::write_map(&mut self.arguments, 1);
            mp::write_str(&mut self.arguments, name.as_bytes());
            mp::write_uint(&mut self.arguments, value);
        }
        self.call(procedure);
    }

    /// Takes a task and returns its id.
    fn take(&mut self, procedure: &Procedure) -> u64 {
        self.begin(1);
        mp::write_uint(&mut self.arguments, 0);
        assert_eq!(self.call(procedure), 1, "a task");
        mp::Reader::new(&self.out[1..]).uint().expect("an id")
    }

    fn ack(&mut self, procedure: &Procedure, id: u64) {
        self.begin(1);
        mp::write_uint(&mut self.arguments, id);
        self.call(procedure);
    }

    fn measure(&mut self, name: &str, mut option: impl FnMut(u64) -> Option<(&'static str, u64)>) {
        let procedures = ["put", "take", "ack"].map(|method| self.resolve(&format!("queue.tube.t:{method}")));
        let [put, take, ack] = procedures;
        let mut spent = [0_u128; 3];
        const BATCH: u64 = 1000;
        let mut ids = Vec::with_capacity(BATCH as usize);
        for batch in 0..CYCLES / BATCH {
            let start = Instant::now();
            (0..BATCH).for_each(|number| self.put(&put, option(batch * BATCH + number)));
            let after_put = Instant::now();
            ids.extend((0..BATCH).map(|_| self.take(&take)));
            let after_take = Instant::now();
            ids.drain(..).for_each(|id| self.ack(&ack, id));
            let after_ack = Instant::now();
            spent[0] += (after_put - start).as_nanos();
            spent[1] += (after_take - after_put).as_nanos();
            spent[2] += (after_ack - after_take).as_nanos();
            self.store.drain_committed(&mut |_| {});
        }
        let [put, take, ack] = spent.map(|nanoseconds| nanoseconds / u128::from(CYCLES));
        println!("{name:40} put {put:5}  take {take:5}  ack {ack:5}  cycle {:5} ns", put + take + ack);
    }
}

fn main() {
    let scale: u64 = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(100_000);
    for temporary in [true, false] {
        let kind = if temporary { "temporary" } else { "durable" };
        for tube_type in ["fifo", "fifottl", "utube", "utubettl"] {
            Bench::new(tube_type, temporary).measure(&format!("{tube_type}, {kind}"), |number| {
                tube_type.starts_with("utube").then_some(("utube", number))
            });
        }
    }
    let mut bench = Bench::new("fifo", true);
    let put = bench.resolve("queue.tube.t:put");
    (0..scale).for_each(|_| bench.put(&put, None));
    bench.measure(&format!("fifo, {scale} waiting"), |_| None);

    let mut bench = Bench::new("fifottl", true);
    let put = bench.resolve("queue.tube.t:put");
    (0..scale).for_each(|number| bench.put(&put, Some(("delay", 1000 + number % 100_000))));
    bench.measure(&format!("fifottl, {scale} delayed"), |_| None);

    for tube_type in ["utube", "utubettl"] {
        let mut bench = Bench::new(tube_type, true);
        let (put, take) = (bench.resolve("queue.tube.t:put"), bench.resolve("queue.tube.t:take"));
        for number in 0..scale {
            bench.put(&put, Some(("utube", number)));
            bench.put(&put, Some(("utube", number)));
            bench.take(&take);
        }
        bench.measure(&format!("{tube_type}, {scale} busy sub-queues"), |number| {
            Some(("utube", scale + number))
        });
    }
}
