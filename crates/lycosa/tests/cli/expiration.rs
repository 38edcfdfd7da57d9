//! Expiration from outside: the Lua module, the command line, the configuration file, and refusals.

mod faces;

use std::fs;
use std::path::Path;

use crate::addresses::free_address;
use crate::support::{Run, Server, command, finish, wait_until};
use lycosa_client::{ConnectOptions, Connection};
use lycosa_tuple::value::Value;
use rustix::process::Signal;
use serde_json::Value as Json;

/// What makes a space `mail` with an index by deadline. Of its tuples 1 to 10 the odd ones are due.
const MAIL: &str = "
    is_up = false
    box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
    function mail()
        local s = box.schema.space.create('mail', {format = {
            {'id', 'unsigned'}, {'text', 'string'}, {'deadline', 'number'}}})
        s:create_index('primary')
        s:create_index('exp', {unique = false, parts = {3, 'number'}})
        for i = 1, 10 do s:insert{i, 'x', i % 2 == 1 and i or 4000000000 + i} end
    end
    if not box.space.mail and not later then mail() end
    is_up = true
";

/// A server that runs a Lua program.
fn with_program(program: &str, flags: &[&str]) -> Server {
    let data = tempfile::tempdir().unwrap();
    let script = data.path().join("app.lua");
    fs::write(&script, program).unwrap();
    let script = script.to_str().unwrap().to_owned();
    let server = Server::over(data, &[&["--app", &script], flags].concat());
    let is_up = || server.run(&["ping"]).code == 0 && eval(&server, "return is_up") == Ok(Value::Bool(true));
    wait_until("the program has run", is_up);
    server
}

/// Runs Lua on the server; its first value.
fn eval(server: &Server, text: &str) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ConnectOptions::new(&server.address);
        let connection = Connection::connect(&options).await.map_err(|error| error.to_string())?;
        let answer = connection.eval(text, ()).await.map_err(|error| error.to_string())?;
        match Value::decode(answer.data()).unwrap() {
            Value::Array(values) => Ok(values.into_iter().next().unwrap_or(Value::Nil)),
            value => Ok(value),
        }
    })
}

fn count(server: &Server, space: &str) -> u64 {
    eval(server, &format!("return box.space.{space}:count()")).unwrap().as_u64().unwrap()
}

/// A command on the server as its administrator.
fn expiration(server: &Server, arguments: &[&str]) -> Run {
    let folder = server.data.path().to_str().unwrap();
    server.run(&[&["expiration"], arguments, &["--data-dir", folder]].concat())
}

fn ok(server: &Server, arguments: &[&str]) -> String {
    let run = expiration(server, arguments);
    assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
    run.stdout
}

fn json(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_lua_module_has_the_interface_that_programs_know() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/expiring.lua");
    let mut command = command();
    command.arg(script).current_dir(folder.path());
    let run = finish(command, "");
    let failed: Vec<&str> = run.stdout.lines().filter(|line| line.contains("not ok")).collect();
    assert_eq!((run.code, failed.as_slice()), (0, [].as_slice()), "{}\n{}", run.stdout, run.stderr);
}

#[test]
fn an_endless_callback_ends_and_the_task_goes_on() {
    let program = "
        is_up = false
        expirationd = require('expirationd')
        s = box.schema.space.create('s')
        s:create_index('primary')
        for i = 1, 3 do s:insert{i} end
        expirationd.start('endless', 's', function(_, tuple)
            while tuple[1] == 2 do end
            return true
        end, {full_scan_delay = 0.01})
        box.schema.user.grant('guest', 'super')
        is_up = true";
    let server = with_program(program, &["--lua-time-budget", "1"]);
    wait_until("the others are gone", || count(&server, "s") == 1);
    let errors = eval(&server, "return expirationd.task('endless').errors").unwrap();
    assert!(errors.as_u64().is_some_and(|errors| errors >= 2), "{errors:?}");
    server.expect_log(r#"expirationd: task "endless""#);
}

#[test]
fn tasks_are_started_listed_counted_and_stopped() {
    let server = with_program(MAIL, &[]);
    let dry = ok(&server, &["start", "old", "mail", "--field", "deadline", "--dry-run"]);
    assert!(dry.starts_with("5 tuples of mail would be deleted now"), "{dry}");
    assert!(dry.contains("1970-01-01T00:00:01Z"), "{dry}");
    let dry = ok(&server, &["start", "old", "mail", "--field", "3", "--dry-run", "--json"]);
    let shown = &json(&dry)[0];
    assert_eq!(
        (&shown["due"], &shown["oldest_us"], &shown["newest_us"]),
        (&5.into(), &1_000_000.into(), &9_000_000.into())
    );
    // A pass over the primary index counts the same.
    let dry = ok(&server, &["start", "old", "mail", "--field", "3", "--index", "0", "--dry-run", "--json"]);
    assert_eq!(json(&dry)[0]["due"], 5);
    assert_eq!(count(&server, "mail"), 10);
    assert_eq!(ok(&server, &["list", "--json"]), "");
    let empty = expiration(&server, &["list"]);
    assert_eq!((empty.code, empty.stdout.as_str(), empty.stderr.as_str()), (0, "", "no expiration tasks\n"));

    let started = ok(&server, &["start", "old", "mail", "--field", "deadline", "--unit", "s"]);
    assert_eq!(started, "started old: waits for the next deadline\n");
    wait_until("five are gone", || count(&server, "mail") == 5);
    let listed = ok(&server, &["list"]);
    assert!(listed.contains("old") && listed.contains("indexed"), "{listed}");
    let listed = json(&ok(&server, &["list", "--json"]));
    assert_eq!((&listed[0]["name"], &listed[0]["field"]), (&"old".into(), &"deadline".into()));
    let stats = json(&ok(&server, &["stats", "old", "--json"]));
    assert_eq!((&stats[0]["task"], &stats[0]["statistics"]["expired"]), (&"old".into(), &5.into()));
    assert!(ok(&server, &["stats"]).contains("longest_hold_us"));
    let again = expiration(&server, &["start", "old", "mail", "--field", "3"]);
    assert!(again.code == 1 && again.stderr.contains("expiration task 'old' already exists"), "{again:?}");
    ok(&server, &["start", "old", "mail", "--field", "3", "--if-not-exists"]);

    // It is kept over a restart, unlike a transient one.
    ok(&server, &["start", "brief", "mail", "--field", "3", "--transient"]);
    let script = server.data.path().join("app.lua").to_str().unwrap().to_owned();
    let server = server.restart(&["--app", &script]);
    // The killed server has left its socket behind.
    wait_until("it listens", || expiration(&server, &["list"]).code == 0);
    let names = |server: &Server| -> Vec<String> {
        json(&ok(server, &["list", "--json"]))
            .iter()
            .map(|task| task["name"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(names(&server), ["old"]);
    eval(&server, "box.space.mail:insert{11, 'late', 1}").unwrap();
    wait_until("the late one is gone", || count(&server, "mail") == 5);

    let stopped = ok(&server, &["stop", "old"]);
    assert!(stopped.starts_with("stopped old, which has deleted"), "{stopped}");
    let missing = expiration(&server, &["stop", "old"]);
    assert!(
        missing.code == 1 && missing.stderr.contains("expiration task 'old' does not exist"),
        "{missing:?}"
    );
    assert_eq!(ok(&server, &["stop", "old", "--if-exists"]), "there is no task old\n");
    let missing = expiration(&server, &["stats", "old"]);
    assert!(missing.code == 1 && missing.stderr.contains("does not exist"), "{missing:?}");
    assert_eq!(names(&server), [""; 0]);

    // A user who may not know of a space does not learn that it has no task.
    let vault = "box.schema.space.create('vault', {user = 'admin'}):create_index('pk') box.schema.user.revoke('guest', 'super')";
    eval(&server, vault).unwrap();
    ok(&server, &["start", "old", "vault", "--field", "3"]);
    let hidden = server.run(&["expiration", "list"]);
    let text =
        "no expiration tasks over what user 'guest' may see; ask with --data-dir or as admin for all\n";
    assert_eq!((hidden.code, hidden.stdout.as_str(), hidden.stderr.as_str()), (0, "", text));
    assert_eq!(names(&server), ["old"]);
}

#[test]
fn wrong_arguments_say_so_and_take_no_name() {
    let server = with_program(MAIL, &[]);
    // Arguments after the name and the space, the exit code, a part of the message.
    let cases: &[(&[&str], i32, &str)] = &[
        (&["none", "--field", "3"], 1, "space 'none' does not exist"),
        (&["9999", "--field", "3"], 1, "Space '9999' does not exist"),
        (&["mail"], 2, "--field"),
        (&["mail", "--field", "0"], 1, "there is no field 0"),
        (&["mail", "--field", "dead"], 1, "has no field 'dead'"),
        (&["mail", "--field", "3", "--unit", "h"], 1, "unit is s, ms or us, not 'h'"),
        (&["mail", "--field", "3", "--index", "none"], 1, "none"),
        (&["mail", "--field", "3", "--index", "7"], 1, "No index #7"),
        (&["mail", "--field", "3", "--delete-by", "exp"], 1, "not unique"),
        (&["mail", "--field", "3", "--scan-size", "-1"], 2, "-1"),
        (&["mail", "--field", "3", "--scan-time", "99999999999"], 1, "scan_time"),
        (&["mail", "--field", "3", "--budget-rows", "0"], 1, "budget_rows"),
        (&["mail", "--field", "3", "--budget-us", "801"], 1, "budget_us"),
        (&["mail", "--field", "3", "--share", "101"], 1, "share"),
        (&["mail", "--field", "3", "--lag-limit=-1"], 1, "lag_limit"),
        (&["mail", "--field", "3", "--archive-tube", "none"], 1, "tube 'none', which does not exist"),
        (&["mail", "--field", "3", "--archive-space", "none"], 1, "none"),
        (&["mail", "--field", "3", "--archive-space", "mail"], 1, "archive of its own"),
        (&["_space", "--field", "3"], 1, "the server's own"),
        (&["_expiration", "--field", "2"], 1, "_expiration"),
    ];
    for (arguments, code, message) in cases {
        let run = expiration(&server, &[&["start", "t"], *arguments].concat());
        assert!(run.code == *code && run.stderr.contains(message), "{arguments:?}: {run:?}");
        assert_eq!(ok(&server, &["list", "--json"]), "", "{arguments:?}");
    }
    let long = "x".repeat(256);
    for name in ["", long.as_str()] {
        let run = expiration(&server, &["start", name, "mail", "--field", "3"]);
        assert!(run.code == 1 && run.stderr.contains("1 to 255 bytes"), "{name:?}: {run:?}");
    }
    assert_eq!(count(&server, "mail"), 10, "nothing was deleted");
}

/// The system gets the memory back although nothing happens any more that could remind the allocator of it.
#[test]
fn the_memory_of_expired_tuples_goes_back_to_the_system() {
    const MEBIBYTE: u64 = 1 << 20;
    let server = with_program(MAIL, &["--wal-mode", "none"]);
    // Few transactions: a statement outside of one waits for the journal. The pauses begin the time budget anew.
    let text = "local fiber, text = require 'fiber', string.rep('x', 6000)
        for begin = 101, 20100, 1000 do
            box.begin() for i = begin, begin + 999 do box.space.mail:insert{i, text, 1} end box.commit()
            fiber.yield()
        end";
    eval(&server, text).unwrap();
    let full = server.resident();
    assert!(full > 100 * MEBIBYTE, "{full}");
    ok(&server, &["start", "old", "mail", "--field", "3"]);
    wait_until("all are gone", || count(&server, "mail") == 5);
    wait_until("the memory goes back", || server.resident() + 80 * MEBIBYTE < full);
}

#[test]
fn replicas_follow_and_one_that_is_promoted_goes_on() {
    let master = with_program(MAIL, &["--replication-timeout", "0.2"]);
    ok(&master, &["start", "old", "mail", "--field", "3"]);
    wait_until("five are gone", || count(&master, "mail") == 5);
    let upstream = format!("guest@{}", master.address);
    let flags = ["--replication", &upstream, "--read-only", "--replication-timeout", "0.2"];
    let replica = Server::configured(&flags);
    wait_until("the replica has the space", || {
        eval(&replica, "return box.space.mail:count()") == Ok(5.into())
    });
    let task =
        |server: &Server| json(&ok(server, &["stats", "old", "--json"])).remove(0)["statistics"].clone();
    wait_until("the task is replicated", || expiration(&replica, &["stats", "old"]).code == 0);
    assert_eq!((&task(&replica)["state"], &task(&replica)["mode"]), (&"paused".into(), &"indexed".into()));
    eval(&master, "for id = 21, 30 do box.space.mail:insert{id, 'x', 1} end").unwrap();
    wait_until("the master has deleted them", || task(&master)["expired"] == 15);
    eval(&master, "box.space.mail:insert{31, 'x', 4000000000}").unwrap();
    wait_until("the replica follows", || {
        eval(&replica, "return box.space.mail:get(31) ~= nil") == Ok(true.into())
    });
    assert_eq!(count(&replica, "mail"), 6);
    assert_eq!(task(&replica)["expired"], 0, "the master's deletions came, and none of its own");
    // A start is refused where nothing can be kept.
    let refused = expiration(&replica, &["start", "new", "mail", "--field", "3"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("this server takes no writes; its master is "),
        "{refused:?}"
    );

    drop(master);
    eval(&replica, "box.cfg{replication = {}, read_only = false}").unwrap();
    eval(&replica, "box.space.mail:insert{32, 'x', 1}").unwrap();
    wait_until("the task goes on", || task(&replica)["expired"] == 1);
    assert_eq!(count(&replica, "mail"), 6);
}

/// Starts, stops and ends of tasks in pseudo-random order. Who stops a task that runs must succeed, who starts one
/// twice must not.
#[test]
fn tasks_start_and_stop_in_every_order() {
    let server = with_program(MAIL, &[]);
    let text = "
        local native = require('lycosa.box').native
        local names, running, state = {'a', 'b', 'c'}, {}, 7
        local function random(n)
            state = (state * 1103515245 + 12345) % 2147483648
            return math.floor(state / 65536) % n + 1
        end
        for step = 1, 600 do
            local name, kind = names[random(3)], random(6)
            if kind <= 2 then
                local done = pcall(native, 'expiration.start', name, 'mail',
                    {field = 3, index = random(2) - 1, transient = random(2) == 1})
                if done == (running[name] == true) then return 'start ' .. step end
                running[name] = true
            elseif kind <= 4 then
                local done = pcall(native, 'expiration.stop', name)
                if done ~= (running[name] == true) then return 'stop ' .. step end
                running[name] = nil
            elseif kind == 5 then
                if pcall(native, 'expiration.start', name, 'mail', {field = 3, unit = 'h'}) then return 'unit ' .. step end
            else
                box.space.mail:replace{random(20), 'x', random(2) == 1 and 1 or 4000000000}
            end
            local listed = {}
            for _, task in ipairs(native('expiration.list')) do listed[task.name] = true end
            for _, known in ipairs(names) do
                if (listed[known] == true) ~= (running[known] == true) then return 'list ' .. step end
            end
        end
        for name in pairs(running) do native('expiration.stop', name) end
        return #native('expiration.list') + box.space._expiration:count()";
    assert_eq!(eval(&server, text), Ok(Value::Uint(0)));
}

#[test]
fn the_configuration_declares_tasks_and_sighup_changes_them() {
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lycosa.toml");
    let write = |tables: &str| fs::write(&config, tables).unwrap();
    write("[[expiration]]\nname = \"old\"\nspace = \"mail\"\nfield = 3\n");
    let script = data.path().join("app.lua");
    // The space comes after the declaration.
    fs::write(&script, format!("later = true\n{MAIL}")).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--app", script.to_str().unwrap()];
    let server = Server::over(data, &flags);
    wait_until("the program has run", || eval(&server, "return is_up") == Ok(Value::Bool(true)));
    server.expect_log("begins when its space 'mail' exists");
    eval(&server, "mail()").unwrap();
    wait_until("five are gone", || count(&server, "mail") == 5);

    let hang_up = || server.signal(Signal::HUP);
    let option = |name: &str| {
        json(&ok(&server, &["list", "--json"])).first().map(|task| task[name].clone()).unwrap_or_default()
    };
    write("[[expiration]]\nname = \"old\"\nspace = \"mail\"\nfield = 3\nscan_size = 77\n");
    hang_up();
    wait_until("the new scan size", || option("scan_size") == 77);
    // What cannot be carried out is said, and what runs goes on.
    for (tables, message) in [
        ("[[expiration]]\nname = \"old\"\nspace = \"mail\"\nfield = \"dead\"\n", "has no field 'dead'"),
        ("[[expiration]]\nname = \"old\"\nspace = \"mail\"\nfield = 3\nbogus = 1\n", "bogus"),
        ("[[expiration]]\nname = \"old\"\n", "space"),
        ("[[expiration]\n", "TOML"),
    ] {
        write(tables);
        hang_up();
        wait_until(message, || server.log().contains(message));
        assert_eq!(option("scan_size"), 77, "{tables}");
    }
    // A task that is not declared any more goes on.
    write("");
    hang_up();
    eval(&server, "box.space.mail:insert{12, 'late', 1}").unwrap();
    wait_until("the late one is gone", || count(&server, "mail") == 5);
    ok(&server, &["stop", "old"]);

    // A wrong table keeps the server from starting, even before its space exists.
    write("[[expiration]]\nname = \"old\"\nspace = \"mail\"\nfield = 3\nunit = \"h\"\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let run = crate::support::lycosa(&[
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        elsewhere.path().to_str().unwrap(),
    ]);
    assert!(run.code != 0 && run.stderr.contains("unit is s, ms or us, not 'h'"), "{run:?}");
}

#[test]
fn the_article_s_sessions_go_over_net_box() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_address().port().to_string();
    let mut command = command();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/article.lua");
    command.arg(script).arg(port).current_dir(folder.path());
    let run = finish(command, "");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!((lines[0], lines[1], lines[3]), ("0 1 2", "0 1 2 3 4 5", "3 4 5 6 7 8"), "{run:?}");
    assert!(lines[2].contains("Illegal parameters, expected 7 arguments"), "{run:?}");
}

/// The port in the article.
const PORT: &str = "3300";

/// Types statements into `lycosa console`, each on a line, with a free port for the article's; what it shows after each.
fn typed(statements: &[String]) -> Vec<String> {
    let run = loop {
        let folder = tempfile::tempdir().unwrap();
        let port = free_address().port();
        let input: String =
            statements.iter().map(|line| line.replace(PORT, &port.to_string()) + "\n").collect();
        let mut console = command();
        console.arg("console").current_dir(folder.path());
        let run = finish(console, &input);
        // Another program may have taken the port meanwhile.
        if !run.stdout.contains("already in use") {
            break run;
        }
    };
    assert_eq!(run.code, 0, "{run:?}");
    let shown: Vec<String> =
        run.stdout.split("lycosa> ").skip(1).map(|shown| shown.trim().to_owned()).collect();
    assert_eq!(shown.len(), statements.len() + 1, "{run:?}");
    shown
}

/// What `capped-expirationd`'s article types first, with and without the index over the lifetime.
fn article_setup(with_index: bool) -> Vec<String> {
    let mut statements = vec![
        "fiber = require('fiber')".to_owned(),
        "net_box = require('net.box')".to_owned(),
        format!("box.cfg{{listen = {PORT}}}"),
    ];
    for name in ["start", "kill"] {
        let name = format!("libcapped-expirationd.{name}");
        statements.push(format!("box.schema.func.create('{name}', {{language = 'C'}})"));
        statements.push(format!("box.schema.user.grant('guest', 'execute', 'function', '{name}')"));
    }
    statements.push("box.schema.space.create('tester')".to_owned());
    let index = |name, unique, field| {
        let parts = format!("{{{field}, 'unsigned'}}");
        format!("box.space.tester:create_index('{name}', {{unique = {unique}, parts = {parts}}})")
    };
    statements.push(index("primary", true, 1));
    statements.extend(with_index.then(|| index("exp", false, 3)));
    statements.push(format!("capped_connection = net_box:new({PORT})"));
    statements
}

/// Its call of `start`, which walks this index.
fn article_start(name: &str, walked: &str) -> String {
    format!(
        "capped_connection:call('libcapped-expirationd.start', {{'{name}', box.space.tester.id, \
         box.space.tester.index.primary, box.space.tester.index.{walked}, 3, 1024, 3600}})"
    )
}

fn article_insert(id: u32) -> String {
    format!("box.space.tester:insert{{{id}, 'user{id}@tarantool.io', math.floor(fiber.time()) + 3600}}")
}

const SELECT: &str = "box.space.tester.index.primary:select()";
/// The lifetime of the first three tuples ends, and the test waits for the task.
const LET_EXPIRE: [&str; 2] = [
    "for id = 0, 2 do box.space.tester:update(id, {{'=', 3, math.floor(fiber.time())}}) end",
    "while box.space.tester:get(2) do fiber.sleep(0.01) end",
];

/// The statements of one example, from the tuples on, and the places of the two `select`s.
fn article_example(name: &str, inserts: u32) -> (Vec<String>, [usize; 2]) {
    let mut statements: Vec<String> = (0..inserts).map(article_insert).collect();
    let first = statements.len();
    statements.push(SELECT.to_owned());
    statements.extend(LET_EXPIRE.map(str::to_owned));
    let second = statements.len();
    statements.push(SELECT.to_owned());
    statements.push(format!("capped_connection:call('libcapped-expirationd.kill', {{'{name}'}})"));
    (statements, [first, second])
}

/// The ids of the tuples that a `select` shows.
fn shown_ids(shown: &str) -> Vec<u32> {
    shown.lines().filter_map(|line| line.split_once('[')?.1.split(',').next()?.parse().ok()).collect()
}

/// Types one example and looks at what it shows.
fn check_article(setup: Vec<String>, start: String, name: &str, inserts: u32, left: &[u32]) {
    let mut statements = setup;
    statements.push(start);
    let begin = statements.len();
    let (example, selects) = article_example(name, inserts);
    statements.extend(example);
    let shown = typed(&statements);
    for (statement, shown) in statements.iter().zip(&shown) {
        assert!(!shown.contains("error:"), "{statement}: {shown}");
    }
    assert_eq!(shown[begin - 1], "---\n- []\n...", "start");
    let all: Vec<u32> = (0..inserts).collect();
    assert_eq!(shown_ids(&shown[begin + selects[0]]), all, "{shown:?}");
    assert_eq!(shown_ids(&shown[begin + selects[1]]), left, "{shown:?}");
    if left.is_empty() {
        assert_eq!(shown[begin + selects[1]], "---\n- []\n...");
    }
}

#[test]
fn the_article_s_first_example_typed_into_the_console() {
    check_article(article_setup(false), article_start("non-indexed", "primary"), "non-indexed", 3, &[]);
}

#[test]
fn the_article_s_second_example_typed_into_the_console() {
    check_article(article_setup(true), article_start("indexed", "exp"), "indexed", 6, &[3, 4, 5]);
}

/// The lines of the article, if the text exists (`../shared/seeds`).
fn article_lines() -> Option<Vec<String>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
    let mut seeds = fs::read_dir(seeds).ok()?.flatten();
    let seed = seeds.find(|entry| entry.file_name().to_string_lossy().starts_with("002_"))?;
    let text = fs::read_to_string(seed.path()).ok()?;
    Some(text.lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn the_article_s_own_lines_typed_into_the_console() {
    let Some(lines) = article_lines() else {
        println!("skipped: the article is not there");
        return;
    };
    let setups: Vec<&String> = lines.iter().filter(|line| line.contains("net_box:new(")).collect();
    let start = |name: &str| {
        let begin = format!("capped_connection:call('libcapped-expirationd.start', {{'{name}'");
        lines.iter().find(|line| line.starts_with(&begin)).expect("the call of start").clone()
    };
    assert_eq!(setups.len(), 2, "two examples");
    check_article(vec![setups[0].clone()], start("non-indexed"), "non-indexed", 3, &[]);
    check_article(vec![setups[1].clone()], start("indexed"), "indexed", 6, &[3, 4, 5]);
}

#[test]
fn functions_are_objects_of_box_func() {
    let mut statements = article_setup(true);
    let begin = statements.len();
    let start = "box.func['libcapped-expirationd.start']:call{'f', box.space.tester.id, \
                 box.space.tester.index.primary, box.space.tester.index.exp, 3, 1024, 3600}";
    statements.extend(
        [
            start,
            start,
            "box.func['libcapped-expirationd.start']:call{'f'}",
            "box.func['libcapped-expirationd.start']:call('f')",
            "box.func['libcapped-expirationd.kill']:call{'f'}",
            start,
            "net_box.self:call('expiration.list')[1].name",
            "net_box.self:call('libcapped-expirationd.kill', {'f'})",
            "net_box.self:call('expiration.list')",
            "box.func['libcapped-expirationd.kill'].language, box.func['libcapped-expirationd.kill'].exports.lua",
            "function add(a, b) return a + b, box.session.effective_user() end",
            "box.schema.func.create('add')",
            "box.func.add:call{1, 2}",
            "box.schema.func.create('inc', {body = 'function(x) return x + 1 end'})",
            "box.func.inc:call{1}",
            "box.func.inc",
            "box.func.add:drop()",
            "box.func.add",
            "box.func.inc.call{1}",
            "capped_connection:call('inc', {1})",
            "type(box.func.inc.id), box.func[box.func.inc.id].name",
            "box.session.su('guest', function() return pcall(box.func.inc.call, box.func.inc, {1}) end)",
        ]
        .map(str::to_owned),
    );
    let shown = typed(&statements);
    let wanted = [
        "- []",
        "- error: Illegal parameters, expiration task 'f' already exists",
        "Illegal parameters, expected 7 arguments",
        "Use func:call(table)",
        "- []",
        "- []",
        "- f",
        "- []",
        "- []",
        "- C\n- true",
        "---\n...",
        "---\n...",
        "- 3\n- admin",
        "---\n...",
        "- 2",
        "body: function(x) return x + 1 end",
        "---\n...",
        "- null",
        "Use func:call(...) instead of func.call(...)",
        "Execute access to function 'inc' is denied for user 'guest'",
        "- number\n- inc",
        "Execute access to function 'inc' is denied for user 'guest'",
    ];
    for ((statement, shown), wanted) in statements.iter().zip(&shown).skip(begin).zip(wanted) {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = wanted.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&wanted), "{statement}: {shown}, not {wanted}");
    }
}
