//! Statuses and keys go into the model, and the screen is compared. `LYCOSA_PICTURES` names a folder for drawings of screens.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use lycosa_client::{AuditEntry, Filter, JobState, Operation, TaskState, TubeJob, Value};
use lycosa_metrics::{
    Election, Gravity, GroupMember, Instance, Issue, Operations, Rates, Snapshot, SubQueue, Tasks, Tube,
};
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use ratatui::{Terminal, style::Style};

use super::ask::{Answer, Ask, Found, SessionLine, Status, TaskDetail, TaskLine, TubeDetail};
use super::change::{self, Control, Counted, Order, Scope};
use super::draw::Theme;
use super::model::Model;

const NOW: f64 = 1_800_000_000.0;

fn tube(name: &str, tasks: Tasks, operations: Operations) -> Tube {
    let rates = Rates { puts: [12.0; 3], takes: [11.5; 3], acks: [11.0; 3] };
    let (name, kind) = (name.to_owned(), "fifottl".to_owned());
    Tube { name, kind, tasks, operations, rates: Some(rates), waiting_takes: 2, ..Tube::default() }
}

/// A status `second` seconds after the beginning.
fn status(second: u64) -> Answer {
    let operations =
        Operations { put: 20 * second, take: 15 * second, ack: 10 * second, ..Operations::default() };
    let mail = Tasks { ready: 1_234 + second, taken: 3, delayed: 0, buried: 2 };
    let mut tubes = vec![
        tube("mail", mail, operations),
        tube("crawl\u{202e}\u{1b}[2J", Tasks { ready: 5, ..Tasks::default() }, Operations::default()),
    ];
    let mut instance = Instance {
        now: NOW + second as f64,
        state: "running".to_owned(),
        uptime: 7_200.0,
        ..Instance::default()
    };
    let buried = Issue {
        kind: "buried".to_owned(),
        gravity: Gravity::Warn,
        title: "2 buried tasks".to_owned(),
        act: "Look at their last errors, mend the cause, then kick or delete them.".to_owned(),
    };
    tubes[0].issues.push(buried);
    instance.queue.tasks = mail;
    instance.queue.tubes = 2;
    instance.queue.rates = Rates { puts: [12_345.6; 3], takes: [11.5; 3], acks: [0.0; 3] };
    instance.memory_limit = 1 << 30;
    instance.memory_used = 1 << 20;
    let snapshot = Snapshot { instance: Some(instance), tubes };
    Answer::Status(Box::new(Status { snapshot, has_issues: true }))
}

fn model(tube: Option<&str>) -> Model {
    let mut model = Model::new("127.0.0.1:3301", tube);
    for second in 0..30 {
        model.answer(status(second));
    }
    model
}

fn buffer(model: &Model, has_color: bool, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    super::draw_on(&mut terminal, model, Theme { has_color }).expect("it is drawn");
    terminal.backend().buffer().clone()
}

/// The screen as text.
fn screen(model: &Model, size: (u16, u16)) -> String {
    let buffer = buffer(model, false, size);
    let line =
        |y: u16| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..size.1).map(line).collect::<Vec<_>>().join("\n")
}

fn press(model: &mut Model, keys: &str) -> Vec<Ask> {
    keys.chars().flat_map(|key| model.key(KeyCode::Char(key))).collect()
}

fn task(id: u64, state: &str) -> TaskLine {
    TaskLine {
        id,
        state: state.to_owned(),
        attempts: 3,
        created: Some(NOW - 90.0),
        due: Some(NOW + 3_629.0),
        payload: "{\"to\":\"\u{1b}]0;gotcha\u{7}\"}".to_owned(),
        error: Some("no such host".to_owned()),
        ..TaskLine::default()
    }
}

fn job(operation: &str, kept: u64) -> TubeJob {
    TubeJob {
        tube: "mail".to_owned(),
        id: 7,
        operation: operation.to_owned(),
        state: JobState::Done,
        scanned: 40,
        total: 40,
        matched: 12,
        changed: 12,
        kept,
        undo_until: None,
        undone: 0,
        touched_since: 0,
        gone: 0,
        error: None,
        reply: Value::Map(Vec::new()),
    }
}

/// A model in the list of buried tasks.
fn with_tasks() -> Model {
    let mut model = model(Some("mail"));
    let asks = press(&mut model, "b");
    let [Ask::Tasks { tube, filter, cursor, .. }] = asks.as_slice() else { panic!("{asks:?}") };
    assert_eq!((tube.as_str(), filter, cursor), ("mail", &Filter::new().state(TaskState::Buried), &None));
    let found = Found {
        tasks: vec![task(17, "buried"), task(u64::MAX, "buried")],
        scanned: 2_000,
        total: 10_000_000,
        next: Some("cursor".to_owned()),
    };
    model.answer(Answer::Tasks { tube: tube.clone(), cursor: None, filter: filter.clone(), found });
    model
}

#[test]
fn the_overview_says_first_what_is_wrong() {
    let shown = screen(&model(None), (80, 24));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "Lycosa 127.0.0.1:3301  running, takes writes, up 2h");
    assert!(lines[1].starts_with("Overview") && lines[1].ends_with("5 Audit  ? keys"), "{shown}");
    let issue = "! mail: 2 buried tasks. Look at their last errors, mend the cause, then kick";
    assert!(lines[2].starts_with(issue), "{lines:?}");
    assert!(lines[4].starts_with("put 12,346/s   take 11.5/s   ack 0.0/s"), "{shown}");
    let lane =
        |name: &str| *lines.iter().find(|line| line.starts_with(&format!("{name}    "))).expect("a lane");
    assert!(lane("put").contains("  20.0/s") && lane("take").contains("  15.0/s"), "{shown}");
    assert!(lane("ready").contains("1,268"), "{shown}");
    assert_eq!(lines[23], "Enter tubes  h span  f freeze  q quit");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut with_job = with_tasks();
    press(&mut with_job, "K");
    for model in [model(None), model(Some("mail")), with_tasks(), with_job] {
        for (width, height) in [(80, 24), (200, 50), (40, 10), (20, 5), (1, 1)] {
            let lines = super::draw::screen(&model, Theme { has_color: true }, width, height);
            assert!(lines.len() >= height, "{width}×{height}");
            let wide = lines.iter().take(height).find(|line| line.width() > width.max(60));
            assert!(wide.is_none(), "{width}×{height}: {wide:?}");
            screen(&model, (width as u16, height as u16));
        }
    }
}

#[test]
fn hostile_names_and_payloads_are_spelled_out() {
    let mut tubes = model(None);
    press(&mut tubes, "2");
    for shown in [screen(&tubes, (80, 24)), screen(&with_tasks(), (200, 50))] {
        assert!(
            !shown.chars().any(|letter| letter.is_control() && letter != '\n' || letter == '\u{202e}'),
            "{shown}"
        );
    }
    assert!(screen(&tubes, (120, 24)).contains("crawl\\u202e\\u001b[2J"));
    assert!(screen(&with_tasks(), (200, 50)).contains("\\u001b]0;gotcha\\u0007"));
}

#[test]
fn tubes_are_filtered_and_sorted() {
    let mut model = model(None);
    press(&mut model, "2");
    let shown = screen(&model, (80, 24));
    assert!(shown.contains("2 of 2 tubes, by name, rising"), "{shown}");
    press(&mut model, "s");
    assert_eq!(model.shown_tubes()[0].name, "mail");
    press(&mut model, "S");
    assert!(model.shown_tubes()[0].name.starts_with("crawl"));
    press(&mut model, "/MAI");
    assert!(screen(&model, (80, 24)).contains("1 of 2 tubes that match \"MAI\""));
    model.key(KeyCode::Enter);
    assert_eq!(model.key(KeyCode::Enter), [Ask::Tube("mail".to_owned())]);
    model.key(KeyCode::Esc);
    press(&mut model, "/x");
    model.key(KeyCode::Enter);
    assert!(model.key(KeyCode::Enter).is_empty(), "no tube can be entered");
}

#[test]
fn a_tube_shows_who_blocks_its_sub_queues() {
    let mut model = model(Some("mail"));
    assert!(screen(&model, (80, 24)).contains("Tube mail is asked for"));
    let mut status = tube("mail", Tasks { ready: 3, ..Tasks::default() }, Operations::default());
    status.sub_queues = vec![SubQueue {
        name: "user\u{7}".to_owned(),
        tasks: Tasks { ready: 3, taken: 1, ..Tasks::default() },
    }];
    let blocked = vec![("user\u{7}".to_owned(), "blocked by task 4 of ann, since 5m".to_owned())];
    let detail = TubeDetail { status, reasons: vec!["no call waits for a task".to_owned()], blocked };
    model.answer(Answer::Tube("mail".to_owned(), Some(Box::new(detail))));
    let shown = screen(&model, (120, 50));
    assert!(
        shown.contains("no call waits for a task") && shown.contains("Wait: nothing measured yet"),
        "{shown}"
    );
    assert!(shown.contains("user\\u0007") && shown.contains("blocked by task 4 of ann, since 5m"), "{shown}");
    model.answer(Answer::Tube("mail".to_owned(), None));
    assert!(screen(&model, (80, 24)).contains("Tube mail does not exist"));
}

#[test]
fn tasks_have_pages_and_exact_ids() {
    let mut model = with_tasks();
    let shown = screen(&model, (80, 24));
    assert!(
        shown.contains("state=buried: 2 shown, scanned 2,000 of 10,000,000, page 1, n: next page"),
        "{shown}"
    );
    assert!(shown.contains("18446744073709551615") && shown.contains("no such host"), "{shown}");
    let asks = press(&mut model, "n");
    assert!(
        matches!(asks.as_slice(), [Ask::Tasks { cursor: Some(cursor), .. }] if cursor == "cursor"),
        "{asks:?}"
    );
    let asks = press(&mut model, "p");
    assert!(matches!(asks.as_slice(), [Ask::Tasks { cursor: None, .. }]), "{asks:?}");
    let asks = press(&mut model, "s");
    assert!(matches!(asks.as_slice(), [Ask::Tasks { filter, .. }] if *filter == Filter::new()), "{asks:?}");
    press(&mut model, "/stat=x");
    assert!(model.key(KeyCode::Enter).is_empty());
    assert!(screen(&model, (80, 24)).contains("did you mean state?"));
}

#[test]
fn an_action_counts_before_it_changes() {
    let mut model = with_tasks();
    assert!(press(&mut model, "Kbecause").is_empty(), "nothing is asked before Enter");
    let asks = model.key(KeyCode::Enter);
    let order = Order {
        tube: "mail".to_owned(),
        operation: Operation::Kick,
        scope: Scope {
            filter: Filter::new().ids(17..=17).state(TaskState::Buried),
            one: Some("buried".to_owned()),
        },
        reason: Some("because".to_owned()),
    };
    assert_eq!(asks, [Ask::Count(order.clone())]);
    assert!(press(&mut model, "y").is_empty(), "nothing is changed before the count");
    model.answer(Answer::Counted(Counted { job: None, matched: 12, scanned: 40 }));
    assert!(screen(&model, (80, 24)).contains("12 tasks would be changed, of 40 looked at. y does it"));
    assert!(model.key(KeyCode::Enter).is_empty(), "Enter is no answer to that");
    assert_eq!(press(&mut model, "y"), [Ask::Apply { order, counted: None }]);
    model.answer(Answer::Done { text: "job 7 (kick): 12 changed".to_owned(), job: Some(job("kick", 12)) });
    assert!(screen(&model, (80, 24)).contains("job 7 (kick): 12 changed; U undoes 12"));
    press(&mut model, "U");
    assert_eq!(model.key(KeyCode::Enter), [Ask::Undo { tube: "mail".to_owned(), job: 7 }]);
}

#[test]
fn all_that_match_is_a_choice_of_its_own() {
    let mut model = with_tasks();
    press(&mut model, "aD");
    assert!(screen(&model, (80, 24)).contains("Delete: all tasks that match state=buried of mail"));
    let asks = model.key(KeyCode::Enter);
    assert!(
        matches!(asks.as_slice(), [Ask::Count(order)] if order.scope == Scope::matching(Filter::new().state(TaskState::Buried))),
        "{asks:?}"
    );
    model.answer(Answer::Counted(Counted { job: Some(7), matched: 0, scanned: 40 }));
    assert!(press(&mut model, "y").is_empty(), "there is nothing to delete");
    model.answer(Answer::Refused("access denied".to_owned()));
    assert!(screen(&model, (80, 24)).contains("Refused: access denied"));
    model.key(KeyCode::Esc);
    // Without a filter the request says that every task is meant.
    press(&mut model, "sa");
    press(&mut model, "D");
    model.answer(Answer::Failed("x".to_owned()));
    let asks = model.key(KeyCode::Enter);
    assert!(
        matches!(asks.as_slice(), [Ask::Count(order)] if order.scope == Scope::matching(Filter::all())),
        "{asks:?}"
    );
}

#[test]
fn marked_tasks_are_changed_by_one_job() {
    let mut model = with_tasks();
    press(&mut model, "m");
    assert!(screen(&model, (80, 24)).contains("2 tasks marked: actions are about these"));
    press(&mut model, "m");
    assert!(!screen(&model, (80, 24)).contains("marked"), "all of the page were marked");
    press(&mut model, "  ");
    let shown = screen(&model, (80, 24));
    assert!(
        shown.contains("*  18446744073709551615") && shown.contains("*                    17"),
        "{shown}"
    );
    press(&mut model, "D");
    assert!(screen(&model, (80, 24)).contains("Delete: 2 tasks marked of mail"));
    let asks = model.key(KeyCode::Enter);
    // A task that has left the state in which it was marked is left alone.
    let named = Filter::new().tasks([(17, TaskState::Buried), (u64::MAX, TaskState::Buried)]);
    let scope = Scope::matching(named);
    assert!(matches!(asks.as_slice(), [Ask::Count(order)] if order.scope == scope), "{asks:?}");
    model.answer(Answer::Counted(Counted { job: Some(8), matched: 2, scanned: 2 }));
    let asks = press(&mut model, "y");
    assert!(matches!(asks.as_slice(), [Ask::Apply { counted: Some(8), .. }]), "{asks:?}");
    let done = TubeJob { id: 9, changed: 2, ..job("delete", 2) };
    model.answer(Answer::Done { text: change::outcome(&done), job: Some(done) });
    let shown = screen(&model, (80, 24));
    assert!(shown.contains("job 9 (delete): 2 changed; U undoes 2") && !shown.contains("marked"), "{shown}");
    press(&mut model, "U");
    assert!(screen(&model, (80, 24)).contains("Undo job 9 of mail"));
    assert_eq!(model.key(KeyCode::Enter), [Ask::Undo { tube: "mail".to_owned(), job: 9 }]);
    let undone = TubeJob { undone: 1, touched_since: 1, ..job("undo", 0) };
    assert!(
        change::outcome(&undone).ends_with(": 1 task undone; 1 changed or taken since, 0 no longer there")
    );
    press(&mut model, " ");
    model.key(KeyCode::Esc);
    assert!(!screen(&model, (80, 24)).contains("marked"), "Esc unmarks before it leaves");
    assert!(screen(&model, (80, 24)).contains("state=buried"));
}

#[test]
fn jobs_of_all_tubes_are_paused_resumed_and_cancelled() {
    let mut model = model(None);
    assert_eq!(press(&mut model, "4"), [Ask::Jobs(None)]);
    let running = TubeJob { state: JobState::Running, ..job("bury", 0) };
    model.answer(Answer::Jobs(None, vec![running.clone(), job("kick", 12)]));
    let shown = screen(&model, (100, 24));
    assert!(shown.contains("2 jobs, 1 unfinished") && shown.contains("12 changed so far"), "{shown}");
    let control = |action| Ask::Control { tube: "mail".to_owned(), job: 7, action };
    assert_eq!(press(&mut model, "P"), [control(Control::Pause)]);
    let paused = TubeJob { state: JobState::Paused, ..running.clone() };
    model.answer(Answer::Done { text: change::outcome(&paused), job: Some(paused) });
    let shown = screen(&model, (100, 24));
    assert_eq!(shown.matches("12 changed, paused").count(), 2, "the notice and the list agree: {shown}");
    assert_eq!(press(&mut model, "P"), [control(Control::Resume)]);
    model.answer(Answer::Done { text: change::outcome(&running), job: Some(running) });
    assert_eq!(press(&mut model, "P"), [control(Control::Pause)]);
    assert!(press(&mut model, "C").is_empty(), "a cancel is asked for first");
    model.answer(Answer::Done { text: "job 7 (bury): 12 changed so far".to_owned(), job: None });
    assert!(
        screen(&model, (80, 24)).contains("Cancel job 7 of mail"),
        "the answer to P closes no other dialog"
    );
    assert_eq!(model.key(KeyCode::Enter), [control(Control::Cancel)]);
    model.answer(Answer::Jobs(None, vec![job("kick", 12)]));
    model.key(KeyCode::Esc);
    assert!(press(&mut model, "PC").is_empty(), "a job that is over is not controlled");
    assert!(matches!(model.key(KeyCode::Enter).as_slice(), [Ask::Tube(tube)] if tube == "mail"));
}

#[test]
fn the_audit_log_has_pages() {
    let mut model = model(None);
    assert_eq!(press(&mut model, "5"), [Ask::Audit(None)]);
    let entry = |id: u64| AuditEntry {
        id,
        time: Some(UNIX_EPOCH + Duration::from_secs(NOW as u64)),
        user: "admin".to_owned(),
        connection: 3,
        tube: "mail".to_owned(),
        operation: "pause".to_owned(),
        job: None,
        reason: Some("deploy\u{7}".to_owned()),
        token: Some("web".to_owned()),
        role: Some("operator".to_owned()),
    };
    model.answer(Answer::Audit(None, (1..=100).rev().map(entry).collect()));
    let shown = screen(&model, (100, 24));
    assert!(shown.contains("token web (operator)") && shown.contains("deploy\\u0007"), "{shown}");
    assert_eq!(press(&mut model, "n"), [Ask::Audit(Some(1))]);
    model.answer(Answer::Audit(Some(1), vec![]));
    assert!(screen(&model, (80, 24)).contains("No entry"));
    assert_eq!(press(&mut model, "p"), [Ask::Audit(None)]);
}

#[test]
fn a_group_shows_who_is_behind_and_is_handed_over() {
    let mut model = model(None);
    assert!(press(&mut model, "6").is_empty() && screen(&model, (80, 24)).contains("Overview"));
    let member = |node, standing: &str, lag| GroupMember {
        node,
        address: format!("10.0.0.{node}:3311"),
        standing: standing.to_owned(),
        is_connected: node != 3,
        lag,
        is_active: lag.map(|_| node != 3),
        awaits_snapshot: lag.map(|_| false),
    };
    let Answer::Status(mut status) = status(40) else { panic!("a status") };
    status.snapshot.instance.as_mut().expect("an instance").election = Some(Election {
        state: "leader".to_owned(),
        leader: 1,
        term: 7,
        voters: 3,
        node: 1,
        members: vec![member(1, "voter", None), member(2, "voter", Some(3)), member(3, "voter", Some(1_200))],
        ..Election::default()
    });
    model.answer(Answer::Status(status));
    assert!(press(&mut model, "6").is_empty());
    let shown = screen(&model, (80, 24));
    assert!(shown.contains("node 1 leads, term 7, 3 voters; as node 1 sees it"), "{shown}");
    assert!(shown.contains("not connected  1,200 entries"), "{shown}");
    press(&mut model, "T");
    assert!(screen(&model, (80, 24)).contains("choose a voter that does not lead"));
    press(&mut model, "jTmaintenance");
    assert!(screen(&model, (80, 24)).contains("Transfer: node 2 at 10.0.0.2:3311 leads"));
    let wanted = Ask::Transfer { node: 2, reason: Some("maintenance".to_owned()) };
    assert_eq!(model.key(KeyCode::Enter), [wanted]);
}

#[test]
fn a_move_needs_a_tube_and_a_running_job_is_cancelled() {
    let mut model = with_tasks();
    press(&mut model, "M");
    assert!(model.key(KeyCode::Enter).is_empty());
    assert!(screen(&model, (80, 24)).contains("name the tube that the tasks move to"));
    press(&mut model, "old");
    let asks = model.key(KeyCode::Enter);
    let to_old = Operation::Move { to: "old".to_owned() };
    assert!(matches!(asks.as_slice(), [Ask::Count(order)] if order.operation == to_old), "{asks:?}");
    model.answer(Answer::Progress(TubeJob { state: JobState::Running, ..job("move", 0) }));
    assert!(screen(&model, (80, 24)).contains("Job 7: 40 of 40 looked at. Esc cancels it."));
    let cancel = Ask::Control { tube: "mail".to_owned(), job: 7, action: Control::Cancel };
    assert_eq!(model.key(KeyCode::Esc), [cancel]);
}

#[test]
fn a_delay_and_a_priority_are_read_as_the_command_reads_them() {
    let mut model = with_tasks();
    press(&mut model, "S");
    assert!(model.key(KeyCode::Enter).is_empty());
    assert!(screen(&model, (80, 24)).contains("give a delay, a priority, or both"));
    press(&mut model, "soon");
    assert!(model.key(KeyCode::Enter).is_empty());
    assert!(screen(&model, (80, 24)).contains("delay: expected"));
    (0..4).for_each(|_| _ = model.key(KeyCode::Backspace));
    press(&mut model, "10m");
    model.key(KeyCode::Tab);
    press(&mut model, "2");
    let asks = model.key(KeyCode::Enter);
    let wanted = Operation::Reschedule { delay: Some(Duration::from_secs(600)), priority: Some(2) };
    assert!(matches!(asks.as_slice(), [Ask::Count(order)] if order.operation == wanted), "{asks:?}");
}

#[test]
fn a_tube_is_paused_with_a_reason() {
    let mut model = model(Some("mail"));
    press(&mut model, "Pdeploy");
    let asks = model.key(KeyCode::Enter);
    assert_eq!(
        asks,
        [Ask::Pause { tube: "mail".to_owned(), is_paused: true, reason: Some("deploy".to_owned()) }]
    );
}

#[test]
fn a_task_says_why_it_does_not_run() {
    let mut model = with_tasks();
    assert_eq!(model.key(KeyCode::Enter), [Ask::Task { tube: "mail".to_owned(), id: 17 }]);
    let detail = TaskDetail {
        line: task(17, "buried"),
        moments: vec![("put", NOW - 90.0)],
        facts: vec![("attempts", "3".to_owned()), ("last error", "no such host".to_owned())],
        reasons: vec!["it is buried since 5m, after 3 attempts".to_owned()],
        text: vec!["{".to_owned(), format!("  \"to\": \"{}\"", "x".repeat(200)), "}".to_owned()],
        bytes: 210,
    };
    model.answer(Answer::Task { tube: "mail".to_owned(), id: 17, detail: Some(Box::new(detail)) });
    let shown = screen(&model, (80, 24));
    assert!(shown.contains("it is buried since 5m, after 3 attempts"), "{shown}");
    assert!(shown.contains("put          1m 59s ago, 2027-01-15T07:58:30Z"), "{shown}");
    assert_eq!(shown.matches('x').count(), 200, "the payload is whole: {shown}");
    model.answer(Answer::Task { tube: "mail".to_owned(), id: 17, detail: None });
    assert!(screen(&model, (80, 24)).contains("The task does not exist"));
}

#[test]
fn sessions_and_jobs_are_tables() {
    let mut model = model(Some("mail"));
    assert_eq!(press(&mut model, "J"), [Ask::Jobs(Some("mail".to_owned()))]);
    model.answer(Answer::Jobs(Some("mail".to_owned()), vec![job("kick", 12)]));
    assert!(screen(&model, (80, 24)).contains("kick       done   40 of 40  12 changed"));
    press(&mut model, "U");
    assert!(screen(&model, (80, 24)).contains("Undo job 7 of mail"));
    model.key(KeyCode::Esc);
    assert_eq!(press(&mut model, "3"), [Ask::Sessions]);
    let session = SessionLine {
        user: "ann".to_owned(),
        connections: "10.0.0.7:4711".to_owned(),
        held: 3,
        tubes: vec![("mail".to_owned(), 3)],
        since: Some(NOW - 31.0),
    };
    model.answer(Answer::Sessions(vec![session]));
    let shown = screen(&model, (80, 24));
    assert!(shown.contains("ann") && shown.contains("3 mail") && shown.contains("1m ago"), "{shown}");
    assert!(matches!(model.key(KeyCode::Enter).as_slice(), [Ask::Tasks { tube, .. }] if tube == "mail"));
}

#[test]
fn a_lost_connection_and_a_frozen_screen_say_so() {
    let mut model = model(None);
    assert_eq!(model.tick(), [Ask::Status { history: true, issues: true }]);
    assert_eq!(model.tick(), [Ask::Status { history: false, issues: true }]);
    press(&mut model, "f");
    assert!(model.tick().is_empty() && screen(&model, (80, 24)).contains("FROZEN"));
    model.lost = Some("connection reset".to_owned());
    assert!(
        screen(&model, (80, 24))
            .starts_with("Lycosa 127.0.0.1:3301  NO CONNECTION, trying again: connection reset")
    );
}

#[test]
fn without_colors_there_are_none() {
    let mut chosen = model(None);
    press(&mut chosen, "2");
    for model in [model(None), chosen, with_tasks()] {
        let buffer = buffer(&model, false, (80, 24));
        assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    }
}

/// A screen as SVG: a line of text for each line, a piece for each style.
fn drawing(buffer: &Buffer) -> String {
    const CELL: (f64, f64) = (7.8, 17.0);
    let area = buffer.area;
    let (width, height) = (f64::from(area.width) * CELL.0 + 20.0, f64::from(area.height) * CELL.1 + 20.0);
    let mut body = String::new();
    let color = |color: Color| match color {
        Color::Red => "#ff7b72",
        Color::Green => "#56d364",
        Color::Yellow => "#e3b341",
        Color::Cyan => "#76e3ea",
        Color::DarkGray => "#8b949e",
        _ => "#e6edf3",
    };
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let style = buffer[(x, y)].style();
            let same = |at: &u16| buffer[(*at, y)].style() == style;
            let end = (x..area.width).take_while(same).last().unwrap_or(x) + 1;
            let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            piece(
                &mut body,
                &text,
                style,
                (f64::from(x) * CELL.0 + 10.0, f64::from(y) * CELL.1 + 10.0),
                CELL,
                color,
            );
            x = end;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\n\
         <title>lycosa top</title>\n<style>text{{font:13px 'DejaVu Sans Mono',monospace;white-space:pre}}.b{{font-weight:700}}\
         </style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n{body}</svg>\n"
    )
}

fn piece(
    body: &mut String,
    text: &str,
    style: Style,
    (x, y): (f64, f64),
    cell: (f64, f64),
    color: impl Fn(Color) -> &'static str,
) {
    let trimmed = text.trim_end();
    let is_reversed = style.add_modifier.contains(Modifier::REVERSED);
    let long = cell.0 * text.chars().count() as f64;
    if is_reversed {
        let _ = writeln!(
            body,
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{long:.0}\" height=\"{}\" fill=\"#e6edf3\"/>",
            cell.1
        );
    }
    if trimmed.is_empty() {
        return;
    }
    let fill = if is_reversed { "#0d1117" } else { color(style.fg.unwrap_or(Color::Reset)) };
    let class = if style.add_modifier.contains(Modifier::BOLD) { " class=\"b\"" } else { "" };
    let wide = cell.0 * trimmed.chars().count() as f64;
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{fill}\"{class} textLength=\"{wide:.1}\" xml:space=\"preserve\">{}</text>",
        y + 13.0,
        lycosa_picture::escaped(trimmed)
    );
}

#[test]
fn screens_can_be_drawn() {
    let mut model = model(None);
    let overview = drawing(&buffer(&model, true, (100, 30)));
    press(&mut model, "2");
    let tubes = drawing(&buffer(&model, true, (100, 12)));
    for (name, picture) in [("top-overview", &overview), ("top-tubes", &tubes)] {
        assert!(picture.starts_with("<svg ") && picture.len() < 60_000, "{name}: {} bytes", picture.len());
        assert!(!picture.contains('\u{1b}') && !picture.contains('\u{202e}'), "{name}");
        if let Some(folder) = std::env::var_os("LYCOSA_PICTURES") {
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.svg")), picture)
                .expect("it is written");
        }
    }
}
