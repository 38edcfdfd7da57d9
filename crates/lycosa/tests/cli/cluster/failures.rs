//! Members that freeze, run out of space, have no leader, or speak TLS; and strangers at their port.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use super::{Group, LIMIT, ROUNDS, lycosa, text};

#[test]
fn a_frozen_leader_costs_no_task() {
    let mut group = Group::of(3);
    for round in 0..ROUNDS {
        let leader = group.leader();
        group.put(leader, &format!("before {round}"));
        group.signal(leader, Signal::STOP);
        group.put((leader + 1) % 3, &format!("round {round}"));
        let payloads = group.payloads((leader + 2) % 3);
        for number in 0..=round {
            for name in ["before", "round"] {
                let put = format!("{name} {number}");
                assert!(payloads.iter().any(|payload| payload.contains(&put)), "{put} is lost: {payloads:?}");
            }
        }
        group.signal(leader, Signal::CONT);
        group.until(leader, "it hears of the other leader", |status| {
            status["role"] == "follower" && status["leader"].is_u64() && status["state"] == "running"
        });
        // What it leads clients to is the present leader.
        assert_eq!(group.payloads(leader).len(), 2 * round + 2);
    }
    let leader = group.leader();
    group.kill(leader);
    group.put((leader + 1) % 3, "after all");
}

#[test]
fn a_follower_without_space_takes_nothing_and_goes_on_once_it_has() {
    let mut group = Group::of(3);
    let leader = group.leader();
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.stop(follower);
    // A reserve that the disk does not have: the server takes nothing, as one whose disk is full.
    let disk = rustix::fs::statvfs(&group.members[follower].folder).unwrap();
    let reserve = (disk.f_bavail * disk.f_frsize * 2).to_string();
    group.members[follower].flags = vec!["--disk-reserve".to_owned(), reserve];
    group.start(follower);
    group.until(follower, "it follows", |status| status["leader"].is_u64());
    let held = |group: &Group, number: usize| group.status(number).unwrap()["applied"].as_u64().unwrap();
    let before = held(&group, follower);
    for number in 0..20 {
        assert_eq!(group.put(other, &format!("task {number}")), 1, "two of three suffice");
    }
    assert!(held(&group, leader) >= before + 20);
    assert!(held(&group, follower) < before + 20, "a disk without space has taken entries");
    // It serves clients all the same: the leader has the data.
    assert_eq!(group.payloads(follower).len(), 20);
    group.stop(follower);
    group.members[follower].flags.clear();
    group.start(follower);
    let wanted = held(&group, leader);
    group.until(follower, "it has what it missed", |status| status["applied"].as_u64() >= Some(wanted));
}

/// A disk of its own in memory, gone with this.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this process may not mount one.
    fn at(folder: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let options = format!("size={bytes},mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_leader_without_space_hands_over_and_goes_on_once_it_has() {
    let mut group = Group::planned(3, "", &["--disk-reserve", "16MiB"]);
    let folder = group.members[0].folder.clone();
    let Some(_disk) = Disk::at(&folder, 64 << 20) else { return };
    group.begin();
    group.put(0, "before");
    let filler = folder.join("filler");
    fs::write(&filler, vec![7; 52 << 20]).unwrap();
    group.until(0, "another member leads", |status| {
        status["leader"].as_u64().is_some_and(|leader| leader != 1)
    });
    for number in 0..10 {
        group.put(number % 3, &format!("task {number}"));
    }
    assert_eq!(group.payloads(0).len(), 11, "it serves clients by the leader");
    fs::remove_file(&filler).unwrap();
    let leader = group.leader();
    assert_ne!(leader, 0);
    let wanted = group.status(leader).unwrap()["applied"].as_u64();
    group.until(0, "it has what it missed", |status| status["applied"].as_u64() >= wanted);
}

#[test]
fn members_speak_tls() {
    let file = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/test-files");
        folder.join(name).to_str().unwrap().to_owned()
    };
    let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let flags = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-ca", &ca];
    let mut group = Group::with(3, "tls://", &flags);
    (0..3).for_each(|number| _ = group.put(number, &format!("task {number}")));
    // A member that sees nothing but plain text is no member.
    let plain = group.members[0].address.strip_prefix("tls://").unwrap().to_owned();
    let refused = group.order(0, &["add", &plain]);
    assert!(refused.status.success(), "{}", text(&refused));
    group.until(0, "the address that speaks TLS alone is not reached", |status| {
        let mut members = status["members"].as_array().unwrap().iter();
        members.any(|member| member["address"] == plain.as_str() && member["is_connected"] == false)
    });
    let leader = group.leader();
    group.kill(leader);
    group.put((leader + 1) % 3, "after");
    assert_eq!(group.payloads((leader + 2) % 3).len(), 4);
}

#[test]
fn a_member_without_a_leader_lives_and_says_so() {
    let mut group = Group::of(3);
    let folder = group.members[0].folder.to_str().unwrap().to_owned();
    let password = group.folder.path().join("password");
    fs::write(&password, "secret").unwrap();
    let password = ["--password-file", password.to_str().unwrap()];
    let added = lycosa(&[&["user", "add", "ann", "--data-dir", &folder][..], &password].concat());
    // Another member may lead by now, and then takes the order.
    let is_user = added.status.success();
    (1..3).for_each(|number| group.kill(number));
    group.until(0, "it knows no leader", |status| status["leader"].is_null());
    let listen = group.members[0].listen.clone();
    let ping = ["ping", "--address", &listen];
    let as_user = [&ping[..], &["--user", "ann"], &password].concat();
    for ping in [&ping[..], &as_user].iter().take(1 + usize::from(is_user)) {
        let pinged = lycosa(ping);
        assert_eq!(pinged.status.code(), Some(5), "{}", text(&pinged));
        assert!(text(&pinged).contains("the group has no leader now"), "{}", text(&pinged));
    }
    group.start(1);
    let began = Instant::now();
    while !lycosa(&["ping", "--address", &listen]).status.success() {
        assert!(began.elapsed() < LIMIT, "no leader: {}", group.log(0));
    }
}

/// A peer that knows the protocol of members, and not the secret.
fn knock(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = [&b"lycosa member 1\x01"[..], &[0; 16], &[7; 32]].concat();
    stream.write_all(&head).unwrap();
    let mut nonce = [0; 32];
    stream.read_exact(&mut nonce).unwrap();
    stream.write_all(&[9; 32]).unwrap();
    assert_eq!(stream.read(&mut nonce).unwrap_or(0), 0, "a stranger is told nothing");
}

#[test]
fn a_peer_with_a_wrong_secret_is_logged_once() {
    let group = Group::of(1);
    let address = group.members[0].address.clone();
    (0..50).for_each(|_| knock(&address));
    let mut other = TcpStream::connect(&address).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = other.read(&mut [0; 1]);
    let count = |cause: &str| group.log(0).lines().filter(|line| line.contains(cause)).count();
    let began = Instant::now();
    while count("another protocol") == 0 {
        assert!(began.elapsed() < LIMIT, "{}", group.log(0));
    }
    assert_eq!((count("does not know the secret"), count("another protocol")), (1, 1), "{}", group.log(0));
}
