//! A job beside random work and kills, and its `undo`.

use std::collections::{BTreeMap, BTreeSet};

use lycosa_tuple::value::Value;

use super::{counted, finished, number, word};
use crate::rig::{Rig, SECOND, args, options};

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// State and payload of each task.
fn tasks(rig: &Rig, tube: &str) -> BTreeMap<u64, (String, Value)> {
    let rows = rig.rows(tube);
    let task = |row: &Value| {
        let fields = row.as_array().expect("a tuple");
        let state = fields[1].as_str().expect("a state").to_owned();
        (fields[0].as_u64().expect("an id"), (state, fields.last().expect("a payload").clone()))
    };
    rows.iter().map(task).collect()
}

/// A client does something with the tube.
fn work(rig: &mut Rig, random: &mut Random) {
    let id = random.below(700);
    let (method, arguments) = match random.below(6) {
        0 => {
            let name = random.below(90).to_string();
            let data = Value::map([("n", random.below(3))]);
            ("put", vec![data, options([("utube", name.into())])])
        }
        1 => ("take", args![0]),
        2 => ("release", args![id]),
        3 => ("ack", args![id]),
        4 => ("bury", args![id]),
        _ => ("kick", args![1]),
    };
    // Some are refused: the task does not exist, or this session does not hold it.
    rig.t(2, method, arguments);
}

/// A job beside random work and kills: each task that it changes was admitted by its filter, was there when it began, and is changed
/// once. Then `undo`, of which each task is accounted for.
#[expect(clippy::too_many_lines, reason = "one match over all operations")]
fn steer_at_random(kind: &str, seed: u64) {
    let random = &mut Random(seed);
    let mut rig = Rig::new();
    rig.create("t", kind, Value::Nil);
    rig.create("u", kind, Value::Nil);
    for _ in 0..600 {
        let n = Value::map([("n", random.below(3))]);
        rig.t(1, "put", vec![n, options([("utube", random.below(90).to_string().into())])]).values();
    }
    (0..400).for_each(|_| work(&mut rig, random));
    let operation = ["kick", "bury", "delete", "move", "release"][random.below(5) as usize];
    let mut filter = vec![("field", Value::from("n")), ("equals", 1.into())];
    if random.below(2) == 0 && operation != "kick" && operation != "release" {
        filter.push(("state", "ready".into()));
    }
    let filter = Value::map(filter);
    // Slices of ten tasks, so that there are many.
    let mut more = vec![("rate", Value::from(100))];
    more.extend((operation == "move").then(|| ("to", "u".into())));
    let more = Value::map(more);
    let below = tasks(&rig, "t").keys().last().map_or(0, |last| last + 1);
    let order = counted(&mut rig, vec![operation.into(), filter.clone(), more]);
    let job = rig.t(1, "apply", order).values().remove(0);
    let id = number(&job, "id");
    let mut touched = BTreeSet::new();
    let is_matching = |state: &str, data: &Value| {
        data.get("n") == Some(&1.into())
            && match operation {
                "kick" => state == "!",
                "release" => state == "t",
                "bury" => state == "r",
                _ if filter.get("state").is_some() => state == "r",
                _ => state != "t",
            }
    };
    let context = format!("{kind}, seed {seed}, {operation}");
    for round in 0.. {
        assert!(round < 1_000, "{context}: the job does not end");
        rig.now += SECOND / 10;
        let before = tasks(&rig, "t");
        rig.work(512);
        let after = tasks(&rig, "t");
        for (task, (state, data)) in &before {
            if after.get(task).map(|(state, _)| state) != Some(state) {
                assert!(is_matching(state, data), "{context}: task {task} did not match");
                assert!(*task < below, "{context}: task {task} is newer than the job");
                assert!(touched.insert(*task), "{context}: task {task} twice");
            }
        }
        assert!(after.keys().all(|task| before.contains_key(task)), "{context}: a task came from nowhere");
        let job = rig.t(1, "job", args![id]).values().remove(0);
        assert_eq!(number(&job, "changed"), touched.len() as u64, "{context}");
        if word(&job, "state") == "done" {
            break;
        }
        if random.below(4) == 0 {
            rig.restart();
        }
        (0..random.below(30)).for_each(|_| work(&mut rig, random));
    }
    (0..random.below(60)).for_each(|_| work(&mut rig, random));
    if operation == "release" || touched.is_empty() {
        return;
    }
    let before = tasks(&rig, "t");
    let undo = finished(&mut rig, "undo", args![id]);
    let after = tasks(&rig, "t");
    let sum = number(&undo, "undone") + number(&undo, "touched_since") + number(&undo, "gone");
    assert_eq!((word(&undo, "state"), sum), ("done", touched.len() as u64), "{context}: {undo}");
    let changed: Vec<u64> =
        after.iter().filter(|(task, now)| before.get(task) != Some(now)).map(|(id, _)| *id).collect();
    assert_eq!(changed.len() as u64, number(&undo, "undone"), "{context}: {undo}");
    assert!(changed.iter().all(|task| touched.contains(task)), "{context}: undo changed another task");
    if operation == "move" {
        let left = tasks(&rig, "u").len() as u64;
        assert_eq!(left, touched.len() as u64 - number(&undo, "undone"), "{context}");
    }
}

#[test]
fn jobs_beside_random_work_and_kills() {
    for kind in ["fifo", "fifottl", "utube", "utubettl"] {
        (0..12).for_each(|seed| steer_at_random(kind, seed));
    }
}
