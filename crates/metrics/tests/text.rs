//! Statuses as the queue writes them, read and written as text.

use std::io::Write;
use std::process::{Command, Stdio};

use lycosa_metrics::{Autoscaler, OTHERS, Process, Scope, Snapshot, Target, Tube, write_prometheus};
use lycosa_queue::status::{Histogram, Rates, TubeStatus};
use lycosa_queue::{Counters, TaskCounts};

fn histogram(micros: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    micros.iter().for_each(|micros| histogram.record(*micros));
    histogram
}

fn status(name: &str, ready: u64, puts: f32) -> TubeStatus {
    TubeStatus {
        name: name.to_owned(),
        kind: "fifottl".to_owned(),
        id: 3,
        tasks: TaskCounts { ready, taken: 1, delayed: 2, buried: 3 },
        counters: Counters::default(),
        bytes: 100,
        capacity: Some(50),
        options: None,
        paused: false,
        waiting_takes: 4,
        waiting_puts: 0,
        oldest_ready_age: Some(1_500_000),
        oldest_taken_age: None,
        ready_keys: None,
        busy_keys: None,
        wait: Some(histogram(&[10, 1_000_000])),
        work: Some(histogram(&[2_000_000, 4_000_000])),
        rates: Some(Rates { puts: [puts; 3], ..Rates::default() }),
        sub_queues: Vec::new(),
        history: None,
        issues: None,
    }
}

/// A page as `queue.status` answers it, without the instance.
fn page(tubes: &[TubeStatus]) -> Vec<u8> {
    let mut page = vec![0x82, 0xa5];
    page.extend_from_slice(b"tubes");
    page.push(0x90 + tubes.len() as u8);
    tubes.iter().for_each(|tube| tube.write(&mut page));
    page.push(0xa4);
    page.extend_from_slice(b"next");
    page.push(0xc0);
    page
}

fn snapshot(tubes: &[TubeStatus]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    assert_eq!(snapshot.add_page(&page(tubes)).expect("a page"), None);
    snapshot
}

/// What Prometheus' own linter says.
fn lint(text: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool: `cargo xtask install` installs it");
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads all");
    let output = promtool.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{text}");
    said
}

#[test]
fn the_linter_of_prometheus_finds_nothing() {
    let snapshot =
        snapshot(&[status("a", 5, 1.0), status("b \"quoted\" \\ \n", 6, 2.0), status("c", 7, 3.0)]);
    let mut text = String::new();
    write_prometheus(&snapshot, Some(&Process::default()), Scope::All(2), Target::default(), &mut text);
    assert_eq!(lint(&text), "");
}

#[test]
fn the_busiest_tubes_have_labels_and_the_others_are_summed() {
    let snapshot = snapshot(&[status("idle", 5, 0.5), status("busy", 6, 9.0), status("slow", 7, 1.0)]);
    let mut text = String::new();
    write_prometheus(&snapshot, None, Scope::All(1), Target::default(), &mut text);
    let has = |line: &str| assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    has("lycosa_tube_tasks{tube=\"busy\",state=\"ready\"} 6");
    has(&format!("lycosa_tube_tasks{{tube=\"{OTHERS}\",state=\"ready\"}} 12"));
    has(&format!("lycosa_tube_wait_seconds_count{{tube=\"{OTHERS}\"}} 4"));
    has(&format!("lycosa_tube_capacity_tasks{{tube=\"{OTHERS}\"}} 100"));
    has("lycosa_tubes_without_labels 2");
    has("lycosa_tube_wait_seconds_bucket{tube=\"busy\",le=\"0.000016\"} 1");
    has("lycosa_tube_wait_seconds_bucket{tube=\"busy\",le=\"1.048576\"} 2");
    has("lycosa_tube_wait_seconds_bucket{tube=\"busy\",le=\"+Inf\"} 2");
    has("lycosa_tube_wait_seconds_sum{tube=\"busy\"} 1.00001");
    has("lycosa_tube_oldest_ready_age_seconds{tube=\"busy\"} 1.5");
    assert!(
        !text.contains("idle") && !text.contains("oldest_taken_age"),
        "unknown numbers are left out: {text}"
    );
}

#[test]
fn workers_do_what_arrives_and_what_waits() {
    let mut bytes = Vec::new();
    status("mail", 30, 2.0).write(&mut bytes);
    let tube = Tube::read(&bytes).expect("a status");
    let shown = Autoscaler::of(&tube, Target { age: 10.0 });
    // Two tasks arrive a second and three of the backlog are to be done in each; work takes 3 s.
    assert_eq!(shown.desired_workers, 15);
    assert_eq!((shown.ready, shown.work_seconds, shown.oldest_ready_age_seconds), (30, Some(3.0), Some(1.5)));
    let paused = Tube { paused: true, ..tube };
    assert_eq!(Autoscaler::of(&paused, Target::default()).desired_workers, u64::from(shown.taken > 0));
}

/// KEDA reads a number, stops to scale at a null, and begins at no worker.
#[test]
fn the_first_worker_is_wanted_before_its_work_is_measured_and_the_last_until_it_is_done() {
    let mut bytes = Vec::new();
    status("mail", 0, 0.0).write(&mut bytes);
    let tube = Tube { work: None, rates: None, ..Tube::read(&bytes).expect("a status") };
    let workers = |ready, taken, paused| {
        let mut tube = Tube { paused, ..tube.clone() };
        (tube.tasks.ready, tube.tasks.taken) = (ready, taken);
        Autoscaler::of(&tube, Target::default()).desired_workers
    };
    assert_eq!(workers(0, 0, false), 0);
    assert_eq!(workers(1, 0, false), 1, "somebody has to measure the work");
    assert_eq!(workers(1_000_000, 0, false), 1);
    assert_eq!(workers(0, 3, false), 1, "a worker is busy");
    assert_eq!((workers(5, 0, true), workers(5, 1, true)), (0, 1), "a paused tube hands out no task");
}

/// A scrape of ten thousand tubes is read and written by one thread; what it takes is not asserted, that it is all there is.
#[test]
fn ten_thousand_tubes_are_summed_to_a_bounded_text() {
    let mut snapshot = Snapshot::default();
    let tubes: Vec<_> = (0..10_000).map(|number| status(&format!("t{number}"), 1, number as f32)).collect();
    tubes.chunks(10).for_each(|tubes| _ = snapshot.add_page(&page(tubes)).expect("a page"));
    let mut text = String::new();
    write_prometheus(&snapshot, None, Scope::All(100), Target::default(), &mut text);
    assert!(text.contains(&format!("lycosa_tube_tasks{{tube=\"{OTHERS}\",state=\"ready\"}} 9900\n")));
    let tasks = text.lines().filter(|line| line.starts_with("lycosa_tube_tasks{")).count();
    assert_eq!(tasks, 4 * 101);
}
