//! The load against a queue in a thread, which speaks the beanstalk protocol and can be made to misbehave.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::protocol::beanstalk::Beanstalk;

const SHAPE: Shape = Shape { connections: 1, depth: 4 };

/// What goes wrong with the tenth task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    HandedOutTwice,
    Lost,
    Altered,
    Refused,
    HungUp,
}

/// Serves one connection until it is closed.
fn serve(stream: TcpStream, fault: Fault) -> io::Result<()> {
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    let mut jobs = VecDeque::new();
    let mut count = 0;
    let mut line = String::new();
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let words = line.split_whitespace().collect::<Vec<_>>();
        let answer = match words[..] {
            ["use", tube] => format!("USING {tube}\r\n"),
            ["watch", _] => "WATCHING 2\r\n".to_owned(),
            ["ignore", _] => "WATCHING 1\r\n".to_owned(),
            ["put", _, _, _, size] => {
                let mut body = vec![0; size.parse::<usize>().unwrap() + 2];
                input.read_exact(&mut body)?;
                count += 1;
                let fault = if count == 10 { fault } else { Fault::None };
                match fault {
                    Fault::HungUp => return Ok(()),
                    Fault::HandedOutTwice => jobs.push_front(body.clone()),
                    Fault::Altered => body[15] ^= 1,
                    _ => {}
                }
                if fault != Fault::Lost {
                    jobs.push_front(body);
                }
                if fault == Fault::Refused {
                    "OUT_OF_MEMORY\r\n".to_owned()
                } else {
                    format!("INSERTED {count}\r\n")
                }
            }
            ["reserve-with-timeout", _] => match jobs.pop_front() {
                Some(body) => format!("RESERVED 1 {}\r\n{}", body.len() - 2, String::from_utf8_lossy(&body)),
                None => "TIMED_OUT\r\n".to_owned(),
            },
            ["delete", _] => "DELETED\r\n".to_owned(),
            _ => return Ok(()),
        };
        output.write_all(answer.as_bytes())?;
    }
}

/// A load on a queue with a fault.
fn load_on(fault: Fault) -> Load {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // The connection ends with the test.
    thread::spawn(move || serve(listener.accept().unwrap().0, fault));
    Load::connect(&Beanstalk, address, SHAPE, 20).unwrap()
}

fn cycles(count: u64) -> Plan {
    Plan::Cycles { bound: Bound::Rounds(count), putting: Putting::Plain }
}

#[test]
fn phases_follow_each_other() {
    let mut load = load_on(Fault::None);
    let mut run = |plan, shape| load.run(plan, shape).unwrap().rounds;
    assert_eq!(run(Plan::Fill { count: 7, putting: Putting::Plain }, SHAPE), 7);
    assert_eq!(run(cycles(50), SHAPE), 50);
    assert_eq!(run(cycles(3), Shape { connections: 1, depth: 1 }), 3);
    assert_eq!(run(cycles(0), SHAPE), 0);
    assert_eq!(run(Plan::Hold { count: 2 }, SHAPE), 2);
    assert_eq!(run(Plan::Drain { count: 5 }, SHAPE), 5);
    assert_eq!((load.account().waiting(), load.account().taken()), (0, 2));
}

#[test]
fn a_time_bounds_a_phase() {
    let mut load = load_on(Fault::None);
    let length = Duration::from_millis(30);
    let plan = Plan::Cycles { bound: Bound::For(length), putting: Putting::Plain };
    let outcome = load.run(plan, SHAPE).unwrap();
    assert!(outcome.elapsed >= length);
    assert!(outcome.rounds > 0);
    assert!(outcome.latencies.iter().all(|latencies| latencies.len() == outcome.rounds));
}

#[test]
fn faults_end_a_run() {
    // A server that hangs up with requests unread resets the connection; which of the two comes first is up to the system.
    let hung_up: &[&str] = &["the server closed the connection", "Connection reset by peer", "Broken pipe"];
    for (fault, texts) in [
        (Fault::HandedOutTwice, &["was handed out while it was taken"][..]),
        (Fault::Lost, &["take found no task, though"]),
        (Fault::Altered, &["a task came with a payload that was never put"]),
        (Fault::Refused, &["put failed: OUT_OF_MEMORY"]),
        (Fault::HungUp, hung_up),
    ] {
        let error = format!("{:#}", load_on(fault).run(cycles(100), SHAPE).unwrap_err());
        assert!(error.starts_with("connection 0: "), "{error}");
        assert!(texts.iter().any(|text| error.contains(text)), "{fault:?}: {error}");
    }
}
