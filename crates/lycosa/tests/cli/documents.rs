//! Every code block of README.md and docs/ is run, or checked as far as it can be.
//!
//! The first word of a block's info string says what it is, the second one how far it goes:
//!
//! | info string | what happens |
//! |---|---|
//! | `sh` | bash runs it, in a folder with a server whose data are in `data` |
//! | `console` | the lines after `$ ` are run one by one; the lines between them are what they print, but for numbers |
//! | `console varies` | the same, but the output is not compared |
//! | `sh no_run`, `console no_run` | every command of `lycosa` and `cargo xtask` in it exists, with these options |
//! | `python`, `lua` | run against the server, or as a program |
//! | `lua no_run` | is Lua by its syntax |
//! | `rust` | `crates/client/examples/letters.rs` contains it, which is compiled and run |
//! | `toml` | the configuration of a server that starts |
//! | `json` | lines that `lycosa import` takes |
//! | `ini` | a unit of systemd; its commands are checked as those of `sh no_run` |
//! | `text` | output, or a picture: no commands |
//!
//! A block without one of these is an error, and so is a command in a block of output.

#[allow(dead_code, unreachable_pub, reason = "an example has a main of its own")]
#[path = "../../../client/examples/letters.rs"]
mod letters;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Run, Server, finish, lycosa};

/// What a document's commands find: a shell script that is run before its first block.
const PREPARED: [(&str, &str); 5] = [
    ("README.md", "printf '#!/bin/sh\\ncat >/dev/null\\n' > send-mail.sh; chmod +x send-mail.sh"),
    (
        "docs/cli.md",
        "lycosa tube create mail; lycosa tube create crawl; printf 'a\\nb\\n' > urls.txt\n\
         lycosa put mail '{\"to\": \"ann\"}' b c d\n\
         lycosa work mail --max-attempts 1 --until-empty 0 -- sh -c 'echo no such host >&2; exit 3' 2>/dev/null",
    ),
    (
        "docs/expiration.md",
        "export LYCOSA_PASSWORD=root; lycosa user add root --role super\n\
         lycosa console -u root $LYCOSA_ADDRESS <<'END'\n\
         emails = box.schema.space.create('emails')\n\
         emails:create_index('primary')\n\
         emails:create_index('exp', {unique = false, parts = {3, 'unsigned'}})\n\
         for i = 1, 4 do emails:insert{i, 'user@example.org', os.time() + (i < 4 and -4000 + i or 4000)} end\n\
         END",
    ),
    ("docs/queue.md", ""),
    ("docs/lua.md", "echo 'os.exit(0)' > init.lua"),
];

/// What the Lua of a document stands on.
const LUA_PREPARED: &str = "\
box.cfg{ wal_mode = 'none', log_level = 2 }
queue = require('queue')
queue.create_tube('mail', 'fifottl')
queue.tube.mail:put('x')
for _, name in ipairs({ 'emails', 'sessions', 'archive', 'tester' }) do
    local space = box.schema.space.create(name, { format = { { 'id', 'unsigned' }, { 'x', 'any', is_nullable = true }, { 'deadline', 'unsigned', is_nullable = true } } })
    space:create_index('pk', { parts = { 1, 'unsigned' } })
    if name ~= 'emails' then space:create_index('created', { unique = false, parts = { { 3, 'unsigned', is_nullable = true } } }) end
end
box.space.tester.index.pk:rename('primary')
box.space.tester.index.created:rename('exp')
box.space.emails:create_index('created', { unique = false, parts = { { 3, 'unsigned', is_nullable = true } } })
";

#[derive(Debug)]
struct Block {
    /// Of the fence, from 1.
    line: usize,
    info: Vec<String>,
    text: String,
}

impl Block {
    fn kind(&self) -> &str {
        self.info.first().map_or("", String::as_str)
    }

    fn is(&self, word: &str) -> bool {
        self.info.iter().skip(1).any(|other| other == word)
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn blocks(document: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(top().join(document)).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => {
                let info = info.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned);
                open = Some(Block { line: number + 1, info: info.collect(), text: String::new() });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block without an end");
    blocks
}

/// README.md and everything in docs/ and beside the tools.
fn documents() -> Vec<String> {
    let mut documents =
        vec!["README.md".to_owned(), "bench/README.md".to_owned(), "fuzz/README.md".to_owned()];
    for entry in std::fs::read_dir(top().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            documents.push(format!("docs/{name}"));
        }
    }
    documents.sort();
    documents
}

/// The commands of a block that is not run: of `lycosa` and of `cargo xtask`, word by word.
fn commands(block: &Block) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for line in block.text.replace("\\\n", " ").lines() {
        let line = match block.kind() {
            "console" => line.strip_prefix("$ ").unwrap_or_default(),
            "ini" => line
                .split_once("Exec")
                .and_then(|(_, rest)| Some(rest.split_once('=')?.1))
                .unwrap_or_default(),
            _ => line,
        };
        let line = line.split(" #").next().unwrap_or_default();
        for command in line.split(['|', ';', '&', '>', '(']) {
            let words =
                command.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('-'));
            let mut words: Vec<String> =
                words.map(|word| word.trim_matches(['"', '\'']).to_owned()).collect();
            if let Some(first) = words.first_mut()
                && let Some(name) = first.strip_suffix("/lycosa")
                && name.starts_with('/')
            {
                *first = "lycosa".to_owned();
            }
            let is_ours = words.first().is_some_and(|word| word == "lycosa");
            if is_ours || words.starts_with(&["cargo".to_owned(), "xtask".to_owned()]) {
                commands.push(words);
            }
        }
    }
    commands
}

/// Help texts by command, asked for once.
#[derive(Default)]
struct Help(HashMap<String, Option<String>>);

impl Help {
    fn of(&mut self, words: &[&str]) -> Option<String> {
        let ask = || {
            let run = lycosa(&[words, &["--help"]].concat());
            (run.code == 0).then_some(run.stdout)
        };
        self.0.entry(words.join(" ")).or_insert_with(ask).clone()
    }

    /// The fault of a command of ours, if it has one.
    fn fault(&mut self, words: &[String]) -> Option<String> {
        let words: Vec<&str> = words.iter().map(String::as_str).take_while(|word| *word != "--").collect();
        if words[0] == "cargo" {
            let tasks = std::fs::read_to_string(top().join("xtask/src/main.rs")).unwrap().to_lowercase();
            let task = words.get(2)?;
            let is_task = ["{", ",", "("].iter().any(|end| {
                tasks.contains(&format!("    {task}{end}")) || tasks.contains(&format!("    {task} {end}"))
            });
            return (!is_task).then(|| format!("no task {task}"));
        }
        let is_script = words.get(1).is_some_and(|word| word.ends_with(".lua"));
        let name = words.get(1).copied().filter(|word| !word.starts_with('-'));
        let name = name.filter(|_| !is_script)?;
        let Some(mut help) = self.of(&[name]) else { return Some(format!("no command `lycosa {name}`")) };
        if let Some(inner) = words.get(2).filter(|word| !word.starts_with('-'))
            && help.contains(&format!("\n  {inner}"))
            && help.contains("Commands:")
        {
            help = self.of(&[name, inner])?;
        }
        let flags =
            words.iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap());
        let unknown = flags.into_iter().find(|flag| !help.contains(flag));
        unknown.map(|flag| format!("`lycosa {name}` has no option {flag}"))
    }
}

#[test]
fn every_block_says_what_it_is_and_names_commands_that_exist() {
    let mut help = Help::default();
    let mut faults = Vec::new();
    let mut count = 0;
    for document in documents() {
        for block in blocks(&document) {
            count += 1;
            let place = format!("{document}:{}", block.line);
            let known = ["sh", "console", "python", "lua", "rust", "toml", "yaml", "json", "ini", "text"];
            if !known.contains(&block.kind()) {
                faults.push(format!("{place}: the block says {:?}, not what it is", block.info.join(" ")));
            }
            let is_command = |line: &str| {
                let line = line.trim_start();
                line.starts_with("$ ") || line.starts_with("lycosa ") || line.starts_with("cargo ")
            };
            if block.kind() == "text" && block.text.lines().any(is_command) {
                faults.push(format!("{place}: a command in a block of output"));
            }
            if matches!(block.kind(), "sh" | "console" | "ini") {
                let wrong = commands(&block).into_iter().filter_map(|words| help.fault(&words));
                faults.extend(wrong.map(|fault| format!("{place}: {fault}")));
            }
        }
    }
    assert!(count > 30, "only {count} blocks");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A document at work: its folder, its server, and another one.
struct Reader {
    document: String,
    server: Server,
    other: Server,
    folder: tempfile::TempDir,
}

impl Reader {
    fn new(document: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::configured(&["--queue-ttr", "60"]);
        // The document's data folder is `data`, and its `lycosa` the one under test.
        std::os::unix::fs::symlink(server.data.path(), folder.path().join("data")).unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lycosa"), folder.path().join("bin/lycosa")).unwrap();
        let reader = Self { document: document.to_owned(), server, other: Server::start(), folder };
        if let Some((_, script)) = PREPARED.iter().find(|(name, _)| *name == document) {
            let run = reader.shell(script);
            assert_eq!(run.code, 0, "{document}, prepared: {run:?}");
        }
        reader
    }

    /// The text for this server: its address, its data folder.
    fn adapted(&self, text: &str) -> String {
        let port = |server: &Server| server.address.rsplit_once(':').unwrap().1.to_owned();
        text.replace("127.0.0.1:3301", &self.server.address)
            .replace("other:3301", &self.other.address)
            .replace("\"127.0.0.1\", 3301", &format!("\"127.0.0.1\", {}", port(&self.server)))
            .replace("/var/lib/lycosa", self.server.data.path().to_str().unwrap())
            // A worker of a document works until it is stopped.
            .replace("lycosa work ", "lycosa work --until-empty 0 ")
    }

    fn in_folder(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.path().join("bin").display());
        command.current_dir(self.folder.path()).env("PATH", path).env("LYCOSA_ADDRESS", &self.server.address);
        command.env("LYCOSA_DATA_DIR", self.server.data.path());
        command
    }

    fn shell(&self, script: &str) -> Run {
        let mut command = self.in_folder("bash");
        command.args(["-euo", "pipefail", "-c", script]);
        finish(command, "")
    }

    fn place(&self, block: &Block) -> String {
        format!("{}:{}", self.document, block.line)
    }

    #[track_caller]
    fn must(&self, block: &Block, what: &str, run: &Run) {
        assert_eq!(run.code, 0, "{}: {what}\n{}{}", self.place(block), run.stdout, run.stderr);
    }

    fn console(&self, block: &Block) {
        let mut lines = block.text.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ");
            let command =
                command.unwrap_or_else(|| panic!("{}: {line:?} after no command", self.place(block)));
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(plain(line));
            }
            let run = self.shell(&format!("{{ {}\n}} 2>&1", self.adapted(command)));
            self.must(block, command, &run);
            if block.is("varies") {
                continue;
            }
            let printed: Vec<String> = run.stdout.lines().map(plain).collect();
            // A command whose output is not shown prints what it likes.
            if !expected.is_empty() {
                assert_eq!(printed, expected, "{}: {command}", self.place(block));
            }
        }
    }

    fn run(&self, block: &Block) {
        if block.is("no_run") {
            if block.kind() == "lua" {
                self.lua(block, &format!("assert(loadstring([==[{}]==]))", block.text));
            }
            return;
        }
        match block.kind() {
            "sh" => self.must(block, "the block", &self.shell(&self.adapted(&block.text))),
            "console" => self.console(block),
            "lua" => self.lua(block, &format!("{LUA_PREPARED}\n{}", block.text)),
            "python" => {
                let of_tests = top().join(".test-env/venv/bin/python");
                let python = if of_tests.exists() { of_tests } else { "python3".into() };
                let mut command = self.in_folder(python.to_str().unwrap());
                command.args(["-c", &self.adapted(&block.text)]);
                self.must(
                    block,
                    "the program (`cargo xtask install` installs its client)",
                    &finish(command, ""),
                );
            }
            "toml" => self.configuration(block),
            "json" => self.must(block, "import", &self.server.run_with(&["import"], &block.text)),
            "rust" => {
                let example =
                    std::fs::read_to_string(top().join("crates/client/examples/letters.rs")).unwrap();
                assert!(example.contains(&block.text), "{}: the example has another text", self.place(block));
            }
            _ => {}
        }
    }

    fn lua(&self, block: &Block, program: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("block.lua");
        std::fs::write(&file, format!("{program}\nos.exit(0)\n")).unwrap();
        let mut command = crate::support::command();
        command.arg(&file).current_dir(folder.path());
        self.must(block, "the program", &finish(command, ""));
    }

    /// Starts a server with a configuration, on an address and a folder of its own.
    fn configuration(&self, block: &Block) {
        let file = self.folder.path().join("block.toml");
        // Certificates are in no document.
        let text = block.text.split("[tls]").next().unwrap_or_default().replace("listen_tls", "# listen_tls");
        std::fs::write(&file, text).unwrap();
        let server = Server::configured(&["--config", file.to_str().unwrap()]);
        assert_eq!(server.run(&["ping"]).code, 0, "{}: {}", self.place(block), server.log());
    }
}

/// A line without what differs from one run to the next: numbers, and blanks around them.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    for letter in line.trim_end().chars() {
        let letter = if letter.is_ascii_digit() { '0' } else { letter };
        let repeats = plain.ends_with(letter) && (letter == '0' || letter == ' ');
        if !repeats {
            plain.push(letter);
        }
    }
    plain
}

macro_rules! documents {
    ($($name:ident $file:literal;)*) => {
        const RUN: &[&str] = &[$($file),*];
        $(#[test]
        fn $name() {
            let blocks = blocks($file);
            let reader = Reader::new($file);
            blocks.iter().for_each(|block| reader.run(block));
        })*
    };
}

documents! {
    readme "README.md";
    cli "docs/cli.md";
    configuration "docs/configuration.md";
    expiration "docs/expiration.md";
    lua "docs/lua.md";
    queue "docs/queue.md";
    replication "docs/replication.md";
    security "docs/security.md";
    installing "docs/installing.md";
}

/// The Rust of README.md does what it says: the letter is put, worked on and acknowledged.
#[test]
fn the_rust_of_the_readme_works() {
    let server = Server::start();
    server.ok(&["tube", "create", "mail"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = lycosa_client::ConnectOptions::new(&server.address);
    let summary = runtime.block_on(letters::work(options)).unwrap();
    assert_eq!((summary.done, summary.failed), (1, 0));
    // Text is no letter: the worker buries it and says why.
    server.ok(&["put", "mail", "hello"]);
    let options = lycosa_client::ConnectOptions::new(&server.address);
    assert_eq!(runtime.block_on(letters::work(options)).unwrap().buried, 1);
    assert!(server.ok(&["list", "mail"]).contains("\"hello\" is not what was expected"));
}

/// A new document is either among those above, or has nothing to run.
#[test]
fn no_document_is_forgotten() {
    for document in documents().iter().filter(|document| !RUN.contains(&document.as_str())) {
        let runs = |block: &&Block| !block.is("no_run") && block.kind() != "text";
        if let Some(block) = blocks(document).iter().find(runs) {
            panic!("{document}:{}: nobody runs the block: add the document to this test", block.line);
        }
    }
}
