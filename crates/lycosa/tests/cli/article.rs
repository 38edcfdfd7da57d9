//! The tutorial that builds a queue in Lua, run as it stands: its programs and its console sessions, step by step.
//!
//! The text lies outside of the repository (`../shared/seeds`); without it the tests say so and pass. Ports are replaced by
//! free ones, identifiers and times by marks.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lycosa_client::{ConnectOptions, Connection};

use crate::addresses::free_address;

const PATIENCE: Duration = Duration::from_secs(60);

/// The code of the article, block after block.
struct Article(Vec<String>);

impl Article {
    fn read() -> Option<Article> {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
        let found = std::fs::read_dir(seeds).ok().and_then(|mut entries| {
            entries.find_map(|entry| {
                let path = entry.ok()?.path();
                path.file_name()?.to_str()?.starts_with("003_").then_some(path)
            })
        });
        let Some(path) = found else {
            println!("skipped: the article is not there");
            return None;
        };
        let text = std::fs::read_to_string(path).expect("a text");
        Some(Article(
            text.split("```").skip(1).step_by(2).map(|block| block.trim_start().to_owned()).collect(),
        ))
    }

    /// The only block, or the last one, in which all the words stand.
    fn block(&self, words: &[&str]) -> &str {
        let found = self.0.iter().rev().find(|block| words.iter().all(|word| block.contains(word)));
        found.unwrap_or_else(|| panic!("a block with {words:?}"))
    }

    /// The blocks in which all the words stand.
    fn blocks(&self, words: &[&str]) -> Vec<&str> {
        let found = self.0.iter().filter(|block| words.iter().all(|word| block.contains(word)));
        found.map(String::as_str).collect()
    }
}

/// A part of a block, from a text up to another one.
fn part<'a>(block: &'a str, from: &str, to: &str) -> &'a str {
    let start = block.find(from).unwrap_or_else(|| panic!("{from:?} in {block}"));
    let end = block[start..].find(to).unwrap_or_else(|| panic!("{to:?} in {block}"));
    &block[start..start + end + to.len()]
}

/// A program under the binary, with its console.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<u8>,
    folder: tempfile::TempDir,
    port: u16,
}

impl Program {
    /// Starts `init.lua` beside `queue.lua`.
    fn start(init: &str, queue: &str) -> Program {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_address().port();
        let init = init.replace("3301", &port.to_string());
        std::fs::write(folder.path().join("init.lua"), init).expect("a file");
        std::fs::write(folder.path().join("queue.lua"), queue).expect("a file");
        let mut program =
            Program { child: spawn(folder.path()), input: None, output: channel().1, folder, port };
        program.attach();
        program
    }

    fn attach(&mut self) {
        let mut stdout = self.child.stdout.take().expect("it is piped");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut byte = [0];
            while stdout.read(&mut byte).is_ok_and(|count| count > 0) && sender.send(byte[0]).is_ok() {}
        });
        self.output = output;
        self.input = self.child.stdin.take();
        self.read_to("lycosa> ");
    }

    /// Reads up to a text, which is left out.
    fn read_to(&self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            let byte = self.output.recv_timeout(PATIENCE);
            let text = String::from_utf8_lossy(&read).into_owned();
            read.push(byte.unwrap_or_else(|_| panic!("no {end:?} after {text:?}; log: {}", self.log())));
        }
        String::from_utf8_lossy(&read[..read.len() - end.len()]).into_owned()
    }

    /// What the console shows for a statement.
    fn type_in(&mut self, statement: &str) -> String {
        let input = self.input.as_mut().expect("the console is open");
        writeln!(input, "{statement}").expect("it reads");
        self.read_to("\n\nlycosa> ").replace("      > ", "").trim().to_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until a text stands in the log.
    fn wait_for_log(&self, text: &str) {
        for _ in 0..600 {
            if self.log().contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("no {text:?} in {}", self.log());
    }

    /// Runs a program of the article as a client.
    fn run(&self, name: &str, source: &str, arguments: &[&str]) -> Output {
        let mut command = self.client(name, source, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("it runs")
    }

    fn client(&self, name: &str, source: &str, arguments: &[&str]) -> Command {
        let folder = self.folder.path().join("client");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), source.replace("3301", &self.port.to_string())).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
        command.arg(name).args(arguments).current_dir(folder).stdin(Stdio::null());
        command
    }

    /// Ends the process at once and starts it again on the same data.
    fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = spawn(self.folder.path());
        self.attach();
    }
}

fn spawn(folder: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("a log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    command.arg("init.lua").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    command.spawn().expect("the program runs")
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Statements and what the article shows for them. A statement of several lines ends before the `---` of its result.
fn transcript(block: &str) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    for entry in block.split("tarantool> ").skip(1) {
        let (statement, shown) = match entry.find("\n---\n") {
            Some(place) => (&entry[..place], entry[place + 1..].trim()),
            None => (entry, ""),
        };
        entries.push((statement.trim().to_owned(), shown.to_owned()));
    }
    entries
}

/// Identifiers of tasks become numbers in the order of their appearance, times a mark; lines are sorted, for the order of a
/// table's keys is promised by neither.
fn masked(text: &str, known: &mut HashMap<String, usize>) -> Vec<String> {
    let number = regex::Regex::new(r"\d{16,}").expect("a pattern");
    let time = regex::Regex::new(r"\d+\.\d{3,}(e-\d+)?").expect("a pattern");
    let masked = number.replace_all(text, |found: &regex::Captures<'_>| {
        let next = known.len() + 1;
        format!("<task {}>", known.entry(found[0].to_owned()).or_insert(next))
    });
    let masked = time.replace_all(&masked, "<time>");
    let mut lines: Vec<String> =
        masked.lines().map(|line| line.trim_start_matches([' ', '-']).to_owned()).collect();
    lines.sort();
    lines
}

/// Types a transcript in and compares the output.
fn reproduce(program: &mut Program, block: &str) {
    let (mut theirs, mut ours) = (HashMap::new(), HashMap::new());
    for (statement, shown) in transcript(block) {
        let answer = program.type_in(&statement);
        if !shown.is_empty() {
            let (their, our) = (masked(&shown, &mut theirs), masked(&answer, &mut ours));
            assert_eq!(their, our, "{statement}\nthe article:\n{shown}\nhere:\n{answer}\n{}", program.log());
        }
    }
}

/// The steps of the article's queue, each with what it adds.
struct Steps<'a> {
    article: &'a Article,
    space: &'a str,
    table: String,
    put: &'a str,
}

impl Steps<'_> {
    fn of(article: &Article) -> Steps<'_> {
        let space = article.blocks(&["create_space('queue'", "create_index('primary'"])[0];
        let table =
            part(article.blocks(&["STATUS.READY = 'R'", "function queue.put(...)"])[0], "local queue", "'T'");
        let put = article.blocks(&["function gen_id()", "function queue.put"])[0];
        Steps { article, space, table: table.to_owned(), put }
    }

    /// A queue with indexes by the names of its fields, and these functions.
    fn queue(&self, functions: &[&str]) -> String {
        let create = part(self.space, "box.schema", "\n");
        let indexes = self.article.blocks(&["local F = {}", "create_index('status'"])[0];
        let mut text = format!("{create}{indexes}\n{}\n{}\n", self.table, self.put);
        for function in functions {
            text += function;
            text += "\n";
        }
        text + "return queue\n"
    }
}

#[test]
fn its_first_queues_answer_as_it_shows() {
    let Some(article) = Article::read() else { return };
    let steps = Steps::of(&article);
    let init = article.blocks(&["queue = require 'queue'", "box.cfg{}"])[0];

    let queue = format!("{}\n{}\n{}\nreturn queue\n", steps.space, steps.table, steps.put);
    let mut program = Program::start(init, &queue);
    reproduce(&mut program, article.blocks(&["queue.put(\"hello\")"])[0]);
    let selected = article.blocks(&["tarantool> box.space.queue:select()", "complex"])[0];
    reproduce(&mut program, selected);
    // Tasks survive a restart.
    program.restart();
    reproduce(&mut program, selected);

    let take =
        article.blocks(&["function queue.take(...)", "index.status", "return box.space.queue:update"])[0];
    let mut program = Program::start(init, &steps.queue(&[take]));
    reproduce(&mut program, article.blocks(&["tarantool> queue.put(\"my\"", "queue.take()"])[0]);
    reproduce(&mut program, article.blocks(&["tarantool> box.space.queue:select()", "'T', ['my'"])[0]);

    let finish = article.blocks(&["function queue.ack", "Task not exists"])[0];
    let mut program = Program::start(init, &steps.queue(&[take, finish]));
    reproduce(&mut program, article.blocks(&["tarantool> queue.put(\"task 1\")"])[0]);
}

#[test]
fn its_waiting_take_and_its_clients_do_as_it_shows() {
    let Some(article) = Article::read() else { return };
    let steps = Steps::of(&article);
    let init = article.blocks(&["listen = '127.0.0.1:3301'", "grant('guest', 'super'", "queue = require"])[0];
    let finish = article.blocks(&["function queue.ack", "Task not exists"])[0];
    let take = article.blocks(&["queue._wait = fiber.channel()", "function queue.take(timeout)"])[0];
    let wakes = article.blocks(&["queue._wait:has_readers()", "function queue.put(...)", "{ ... } }"])[0];

    let mut program = Program::start(init, &steps.queue(&[take, finish]));
    reproduce(&mut program, article.blocks(&["tarantool> do", "task 3"])[0]);
    let mut program = Program::start(init, &steps.queue(&[take, finish, wakes]));
    reproduce(&mut program, article.blocks(&["tarantool> do", "task 4"])[0]);
    program.type_in("box.space.queue:truncate()");

    // The producer and the consumer; the first consumer's error is the article's.
    let producer = article.block(&["Need arguments", "queue.put"]);
    let producer = producer.split("\n$ ").next().expect("the program stands first");
    let consumer = article.block(&["conn:call('queue.take', { 1 })"]);
    let produced = program.run("producer.lua", producer, &["hi"]);
    let shown = part(article.block(&["Need arguments", "queue.put"]), "--- [", "...");
    let text = String::from_utf8_lossy(&produced.stdout).into_owned();
    assert_eq!(masked(shown, &mut HashMap::new()), masked(text.trim(), &mut HashMap::new()));
    let missing = program.run("producer.lua", producer, &[]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("Need arguments"));
    assert_eq!(missing.status.code(), Some(1));
    let consumed = program.run("consumer.lua", consumer, &[]);
    assert_eq!(consumed.status.code(), Some(1));
    let (out, errors) =
        (String::from_utf8_lossy(&consumed.stdout), String::from_utf8_lossy(&consumed.stderr));
    assert!(out.starts_with("Got task: \t--- [") && out.contains("'T', ['hi']]"), "{out}");
    let wanted = part(article.block(&["ER_EXACT_MATCH"]), "Invalid key", ")");
    assert!(errors.contains(wanted), "{errors}");
    let taken = program.type_in("box.space.queue:select()");
    assert!(taken.contains("'T', ['hi']]"), "{taken}");
    let mut second = program.client("consumer.lua", consumer, &[]);
    let mut second = second.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(second.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "No more tasks\n");
    second.kill().expect("it runs");
    let _ = second.wait();
}

#[test]
fn its_owners_are_known_and_their_mistakes_told() {
    let Some(article) = Article::read() else { return };
    let steps = Steps::of(&article);
    let init = article.blocks(&["listen = '127.0.0.1:3301'", "grant('guest', 'super'", "queue = require"])[0];
    let wait = "local fiber = require 'fiber'\nqueue._wait = fiber.channel()\n";
    let triggers = article.blocks(&["local log = require 'log'", "box.session.on_connect"])[0];
    let triggers = triggers.split("\n2020-").next().expect("the code stands first");
    let wakes = article.blocks(&["queue._wait:has_readers()", "function queue.put(...)", "{ ... } }"])[0];
    let owners = article.blocks(&["queue.taken = {}; -- list"])[0];
    let get_task = article.blocks(&["local function get_task( id )", "queue.taken[id]"])[0];
    let finish = article.blocks(&["local t = get_task(id)", "function queue.ack"])[0];
    let consumer = article.block(&["conn:call('queue.take', { 1 })"]);
    let producer = article.block(&["Need arguments", "queue.put"]);
    let producer = producer.split("\n$ ").next().expect("the program stands first");

    let parts = [wait, triggers, wakes, owners, get_task, finish];
    let program = Program::start(init, &steps.queue(&parts));
    program.run("producer.lua", producer, &["hi"]);
    program.wait_for_log("disconnected 2 from nil");
    program.wait_for_log("connected 2 from 127.0.0.1:");
    let consumed = program.run("consumer.lua", consumer, &[]);
    let errors = String::from_utf8_lossy(&consumed.stderr).into_owned();
    assert!(errors.contains("Task id required"), "{errors}");

    // With names, the identifier comes back as another kind of number, which is another key of the table.
    let named = steps.queue(&parts).replace(
        "insert{ id, STATUS.READY, { ... } }",
        "insert{ id, STATUS.READY, { ... } }:tomap{ names_only = true }",
    );
    let named = named.replace("STATUS.TAKEN }})", "STATUS.TAKEN }}):tomap{ names_only = true }");
    let program = Program::start(init, &named);
    program.run("producer.lua", producer, &["hi"]);
    let consumed = program.run("consumer.lua", consumer, &[]);
    let (out, errors) =
        (String::from_utf8_lossy(&consumed.stdout), String::from_utf8_lossy(&consumed.stderr));
    assert!(out.contains("'status': 'T'") && out.contains("'data': ['hi']"), "{out}");
    assert!(
        regex::Regex::new(r"Task \d+ULL not taken by anybody").expect("a pattern").is_match(&errors),
        "{errors}"
    );
}

/// The final programs; the graphite line gets back the line feed that the article has lost.
fn final_programs(article: &Article, graphite: u16) -> (String, String) {
    let queue = article.block(&["queue._monitor", "function queue.stats()", "return queue"]);
    let queue = queue.replace("%s %s %sn\"", "%s %s %s\\n\"").replace("2003", &graphite.to_string());
    let init = article.block(&["if not fiber.self().storage.console", "listen"]);
    (init.to_owned(), queue)
}

#[test]
fn its_final_queue_serves() {
    let Some(article) = Article::read() else { return };
    let graphite = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (init, queue) = final_programs(&article, graphite.local_addr().expect("it is bound").port());
    let mut program = Program::start(&init, &queue);

    // The article's sessions that need no queue of a former step.
    reproduce(&mut program, article.block(&["tarantool> t = {}"]));
    reproduce(&mut program, article.block(&["tarantool> return t[1]"]));
    let stats =
        program.type_in("queue.put('a') queue.put('b', {delay = 1000}) queue.take() return queue.stats()");
    let mut lines: Vec<&str> = stats.lines().map(|line| line.trim_start_matches([' ', '-'])).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["", "...", "ready: 0", "taken: 1", "total: 2", "waiting: 1"]);
    let measured = transcript(article.block(&["local clock = require 'clock' local s"]));
    assert!(program.type_in(&measured[1].0).contains("waiting: 1"));

    // The statistics go to Graphite.
    let (connection, _) = graphite.accept().expect("the monitor connects");
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line).expect("a line");
    assert!(line.starts_with("queue.stats."), "{line}");

    // A delayed task becomes ready without a request, and wakes a waiting client.
    let woken = program.type_in("queue.put('later', {delay = 0.1}) return queue.take(30).data");
    assert_eq!(woken, "---\n- later\n...");
    program.wait_for_log("Runat: W->R");
    program.type_in("box.space.queue:truncate()");
    assert!(program.type_in("queue.stats().taken").contains("- 0"));

    // A consumer that is killed gives its task back.
    program.type_in("queue.put('kept')");
    let holder = "local conn = require 'net.box'.connect('127.0.0.1:3301')\n\
                  print(conn:call('queue.take', { 1 }).data)\nio.flush()\nrequire 'fiber'.sleep(1000)\n";
    let mut holding = program.client("holder.lua", holder, &[]);
    let mut holding = holding.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut held = String::new();
    BufReader::new(holding.stdout.take().expect("it is piped")).read_line(&mut held).expect("a line");
    assert_eq!(held, "kept\n");
    assert!(program.type_in("queue.stats().taken").contains("- 1"));
    holding.kill().expect("it runs");
    let _ = holding.wait();
    program.wait_for_log("Autorelease");
    let ready = program.type_in("queue.take(30).data");
    assert_eq!(ready, "---\n- kept\n...");

    // One line over the command line's console, as the article does it; then everything is released at the start.
    program.type_in("queue.put('last')");
    let mut console = Command::new(env!("CARGO_BIN_EXE_lycosa"));
    console
        .arg("console")
        .arg(format!("127.0.0.1:{}", program.port))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut console = console.spawn().expect("it runs");
    console.stdin.take().expect("it is piped").write_all(b"queue.take()\n").expect("it reads");
    let shown = console.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("status: T") && shown.contains("last"), "{shown}");
    program.restart();
    program.wait_for_log("at start");
    assert!(program.type_in("queue.stats().taken").contains("- 0"));
}

#[test]
fn its_reload_keeps_everything() {
    let Some(article) = Article::read() else { return };
    let (init, queue) = final_programs(&article, free_address().port());
    let mut program = Program::start(&init, &queue);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectOptions::new(format!("127.0.0.1:{}", program.port));
        let owner = Connection::connect(&options).await.expect("it listens");
        let waiter = Connection::connect(&options).await.expect("it listens");
        owner.eval("queue.put('owned')", ()).await.expect("a task");
        let taken = owner.eval("task = queue.take(1) return task.data", ()).await.expect("a task");
        assert!(taken.data().ends_with(b"owned"));
        program.type_in("queue.put('delayed', {delay = 1})");
        let waiting = waiter.eval("return queue.take(60).data", ());
        let waiting = async { waiting.await.expect("a task").data().to_vec() };
        let reloading = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let folder: PathBuf = program.folder.path().to_owned();
            let changed = queue.replace(
                "function queue.stats()",
                "function queue.version() return 2 end\nfunction queue.stats()",
            );
            std::fs::write(folder.join("queue.lua"), changed).expect("a file");
            program.type_in("package.reload()");
            assert_eq!(program.type_in("queue.version()"), "---\n- 2\n...");
            assert_eq!(program.type_in("package.reload.count"), "---\n- 2\n...");
        };
        let (delayed, ()) = tokio::join!(waiting, reloading);
        assert!(delayed.ends_with(b"delayed"), "a waiting take outlives the reload");
        let acked = owner.eval("return queue.ack(task.id).data", ()).await.expect("the owner still owns");
        assert!(acked.data().ends_with(b"owned"));
    });
    program.wait_for_log("Finished");

    // A program that does not load leaves the old one at work.
    std::fs::write(program.folder.path().join("queue.lua"), "return )").expect("a file");
    let failed = program.type_in("package.reload()");
    assert!(failed.contains("error"), "{failed}");
    assert_eq!(program.type_in("queue.version()"), "---\n- 2\n...");
}
