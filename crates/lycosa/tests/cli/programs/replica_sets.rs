//! New replica sets of programs, which come up in any order.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Served, lycosa, programs};
use crate::addresses::free_address;

/// The programs of a new replica set, each in a folder of its own.
struct ReplicaSet<'a> {
    folder: tempfile::TempDir,
    ports: Vec<u16>,
    /// In which order each names the addresses, by number.
    lists: &'a [&'a [usize]],
    /// What stands before the port in `listen`.
    listens: &'a str,
    served: Vec<Option<Served>>,
}

impl ReplicaSet<'_> {
    fn place(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn start(&mut self, number: usize) {
        let place = self.place(number);
        std::fs::create_dir(&place).expect("a folder");
        let list: Vec<_> = self.lists[number].iter().map(|&number| self.ports[number].to_string()).collect();
        let (port, listens) = (self.ports[number], self.listens);
        let mut command = Command::new(lycosa());
        command.arg(programs().join("replica_set.lua"));
        command.args([port.to_string(), list.join(","), format!("{listens}{port}")]);
        let errors = std::fs::File::create(place.join("errors")).expect("a file");
        command.current_dir(place).stdin(std::process::Stdio::null()).stderr(errors);
        self.served[number] = Some(Served(command.spawn().expect("the program runs")));
    }

    /// Waits until each of them runs, follows all others and has their rows; the UUID of the replica set.
    fn wait(&self) -> String {
        let numbers = 0..self.ports.len();
        let read = |number: usize, name: &str| {
            std::fs::read_to_string(self.place(number).join(name)).unwrap_or_default()
        };
        let begun = Instant::now();
        loop {
            let mut sets: Vec<_> = numbers.clone().map(|number| read(number, "up")).collect();
            if sets.iter().all(|set| !set.is_empty()) {
                sets.dedup();
                assert_eq!(sets.len(), 1, "they are of several replica sets: {sets:?}");
                return sets.remove(0);
            }
            if begun.elapsed() > Duration::from_secs(90) {
                let logs = numbers
                    .map(|number| format!("{number}: {}{}", read(number, "errors"), read(number, "log")));
                panic!("{:?}: {sets:?}\n{}", self.lists, logs.collect::<Vec<_>>().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts the programs of a new replica set in this order, `pause` after one another, and waits until all are up.
fn replica_set_comes_up<'a>(
    order: &[usize],
    lists: &'a [&'a [usize]],
    pause: Duration,
    listens: &'a str,
) -> ReplicaSet<'a> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ports: Vec<u16> = order.iter().map(|_| free_address().port()).collect();
    // As texts, in which the instances compare their addresses.
    ports.sort_unstable_by_key(u16::to_string);
    let served = order.iter().map(|_| None).collect();
    let mut set = ReplicaSet { folder, ports, lists, listens, served };
    for &number in order {
        set.start(number);
        std::thread::sleep(pause);
    }
    set.wait();
    set
}

#[test]
fn a_new_pair_of_programs_comes_up_in_any_order() {
    let (soon, late) = (Duration::ZERO, Duration::from_millis(1500));
    for pause in [soon, late] {
        for order in [[0, 1], [1, 0]] {
            replica_set_comes_up(&order, &[&[0, 1], &[0, 1]], pause, "127.0.0.1:");
        }
    }
    // The first of the list has the greater address.
    replica_set_comes_up(&[0, 1], &[&[1, 0], &[1, 0]], soon, "127.0.0.1:");
    replica_set_comes_up(&[0, 1], &[&[1, 0], &[1, 0]], late, "127.0.0.1:");
}

#[test]
fn new_programs_that_each_name_themselves_first_are_one_replica_set() {
    for (order, pause) in [([0, 1], 0), ([1, 0], 0), ([0, 1], 1500), ([1, 0], 1500)] {
        replica_set_comes_up(&order, &[&[0, 1], &[1, 0]], Duration::from_millis(pause), "127.0.0.1:");
    }
}

/// The first instance has lost its folder: it may not begin another replica set beside the one that there is.
#[test]
fn a_first_program_whose_folder_was_emptied_joins_the_others() {
    let mut set = replica_set_comes_up(&[0, 1], &[&[0, 1], &[0, 1]], Duration::ZERO, "127.0.0.1:");
    let before = set.wait();
    set.served[0] = None;
    std::fs::remove_dir_all(set.place(0)).expect("it has ended");
    set.start(0);
    assert_eq!(set.wait(), before);
}

#[test]
fn three_new_programs_come_up_in_any_order() {
    let same: [&[usize]; 3] = [&[0, 1, 2]; 3];
    for (order, pause) in [([0, 1, 2], 0), ([2, 1, 0], 0), ([1, 0, 2], 700), ([2, 0, 1], 700)] {
        replica_set_comes_up(&order, &same, Duration::from_millis(pause), "127.0.0.1:");
    }
}

/// `listen = 3301` is every address of this machine, and so the first of `replication` is the instance's own.
#[test]
fn a_new_program_that_listens_everywhere_knows_its_own_address() {
    replica_set_comes_up(&[0, 1], &[&[0, 1], &[0, 1]], Duration::ZERO, "");
    replica_set_comes_up(&[1, 0], &[&[0, 1], &[0, 1]], Duration::ZERO, "*:");
}
