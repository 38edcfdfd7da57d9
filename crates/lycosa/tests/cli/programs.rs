//! Lua programs under the built binary: what they print is what Tarantool prints; the tutorial's queue works.

mod consoles;
mod replica_sets;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::Duration;

use crate::addresses::free_address;

pub(crate) fn lycosa() -> &'static str {
    env!("CARGO_BIN_EXE_lycosa")
}

pub(crate) fn run(program: &str, script: &Path, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.arg(script).args(arguments).current_dir(folder.path()).stdin(std::process::Stdio::null());
    command.output().expect("the program runs")
}

pub(crate) fn has_tarantool() -> bool {
    static IS_THERE: LazyLock<bool> =
        LazyLock::new(|| Command::new("tarantool").arg("--version").output().is_ok());
    *IS_THERE
}

pub(crate) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The same program under both prints the same and ends the same.
pub(crate) fn compare(name: &str, arguments: &[&str]) {
    let script = programs().join(name);
    let ours = run(lycosa(), &script, arguments);
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(ours.status.code().is_some(), "{errors}");
    if !has_tarantool() {
        return;
    }
    let theirs = run("tarantool", &script, arguments);
    let (ours_text, theirs_text) = (text(&ours), text(&theirs));
    let mut differences = Vec::new();
    for (number, (our, their)) in ours_text.lines().zip(theirs_text.lines()).enumerate() {
        if our != their {
            differences.push(format!("line {}\n  ours      {our}\n  tarantool {their}", number + 1));
        }
    }
    assert!(differences.is_empty(), "{}\n{errors}", differences.join("\n"));
    assert_eq!(ours_text.lines().count(), theirs_text.lines().count(), "{ours_text}\n{errors}");
    assert_eq!(ours.status.code(), theirs.status.code(), "{errors}");
}

#[test]
fn a_program_sees_the_box_that_it_knows() {
    compare("box.lua", &["one", "two"]);
}

#[test]
fn a_library_finds_what_it_patches() {
    compare("patch_points.lua", &[]);
}

#[test]
fn addresses_and_rows_of_csv_are_read_and_written_as_there() {
    compare("addresses.lua", &[]);
}

#[test]
fn what_programs_set_and_build_on_does_what_it_does_there() {
    compare("settings.lua", &[]);
}

#[test]
fn handles_of_children_and_descriptors_do_what_they_do_there() {
    compare("handles.lua", &[]);
}

#[test]
fn a_console_at_a_socket_pushes_and_has_a_session() {
    compare("consoles.lua", &[]);
}

#[test]
fn collations_and_sequences_of_indexes_are_made_and_refused_as_there() {
    compare("collations.lua", &[]);
}

#[test]
fn fibers_wait_for_the_configuration_as_there() {
    compare("waiting.lua", &[]);
}

#[test]
fn a_fiber_that_is_cancelled_or_woken_waits_no_longer() {
    compare("woken.lua", &[]);
}

#[test]
fn functions_fail_and_aborted_transactions_go_on_as_there() {
    compare("functions.lua", &[]);
}

#[test]
fn kept_objects_do_what_they_do_there() {
    compare("objects.lua", &[]);
}

#[test]
fn the_environment_names_places_of_modules_as_there() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("found.lua"), "return 'by LUA_PATH'").expect("a module");
    let places = format!("{}/?.lua;;", folder.path().display());
    let run = |program: &str, path: &str, c_path: &str| {
        let mut command = Command::new(program);
        command.env("LUA_PATH", path).env("LUA_CPATH", c_path).env("HOME", "/nowhere");
        command.args([
            "-e",
            "print(package.path) print(package.cpath) print(pcall(require, 'found')) os.exit(0)",
        ]);
        let output = command.stdin(std::process::Stdio::null()).output().expect("the program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let found = run(lycosa(), &places, "/own/?.so");
    assert!(found.starts_with(&format!("{}/?.lua;/nowhere/.luarocks", folder.path().display())), "{found}");
    assert!(found.contains("\n/own/?.so\ntrue\tby LUA_PATH\n"), "{found}");
    if !has_tarantool() {
        return;
    }
    for (path, c_path) in [(places.as_str(), "/own/?.so"), (";;", ";;/last/?.so"), ("/a%1;;/b;;", "")] {
        let first_two = |text: String| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            first_two(run(lycosa(), path, c_path)),
            first_two(run("tarantool", path, c_path)),
            "{path} {c_path}"
        );
    }
}

#[test]
fn a_refused_option_leaves_box_unconfigured() {
    compare("refused_options.lua", &[]);
}

/// A program's own code has no time limit, so the log says which line keeps everything else waiting, in Lua and in a pattern.
#[test]
fn a_loop_that_never_pauses_is_told_with_its_place() {
    use std::io::{BufRead, BufReader};

    for endless in ["while true do end", "local _ = ('a'):rep(60):find(('a*'):rep(30) .. 'b')"] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("busy.lua");
        std::fs::write(&script, format!("box.cfg{{}}\nrequire('fiber').yield()\n{endless}\n"))
            .expect("a program");
        let mut command = Command::new(lycosa());
        command.arg(&script).current_dir(folder.path()).stdin(std::process::Stdio::null());
        let mut program = command.stderr(std::process::Stdio::piped()).spawn().expect("the program runs");
        let log = BufReader::new(program.stderr.take().expect("its standard error"));
        let mut lines = log.lines().map_while(Result::ok);
        let told = lines.find(|line| line.contains("without a pause, and nothing else is served meanwhile"));
        program.kill().expect("it runs");
        program.wait().expect("it ends");
        let told = told.expect("the log says so before the program ends");
        assert!(told.contains("busy.lua:3: Lua code has run for"), "{told}");
    }
}

/// What stands on the command line before a program, and a program on standard input.
#[test]
fn the_command_line_of_a_program_is_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("x")).expect("a folder");
    std::fs::write(folder.path().join("x/y.lua"), "return 'module'").expect("a module");
    let program = "#!/usr/bin/env tarantool\nprint('file', arg[0], v, ...)\nos.exit(tonumber((...)))\n";
    for name in ["program", "program.lua"] {
        std::fs::write(folder.path().join(name), program).expect("a program");
    }
    let lines: [(&[&str], &str); 10] = [
        (&["-"], "print(arg[0], #arg, ...) print(debug.getinfo(1).source, require('fiber').self():name())"),
        (&["-", "one", "-e"], "print(arg[0], #arg, ...) error('from a text')"),
        (&["-"], "print("),
        (&["-lfiber", "-ev = arg[0]", "-", "3"], "print(v, fiber ~= nil, ...)"),
        (&["-e", "v = 1", "-l", "log", "-e", "v = log and 2", "program.lua", "7"], ""),
        (&["-l", "x.y", "-e", "print(_G['x.y'], x)"], ""),
        (&["-e", "v = ...", "--", "program", "8", "-e"], ""),
        (&["-e", "v = 5", "program", "9"], ""),
        (&["program.lua", "10", "-e", "print(1)"], ""),
        (&["-e", "print(arg[1])"], ""),
    ];
    let failing: [(&[&str], &str); 2] = [
        (&["-e", "error('x')", "program", "9"], "LuajitError: (command line):1: x"),
        (&["-l", "nowhere", "program"], "LuajitError: module 'nowhere' not found:"),
    ];
    let outcome = |program: &str, arguments: &[&str], input: &str| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder.path());
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("the program runs");
        // A program that does not read its input may have ended.
        _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let errors = text(&output.stderr).lines().next().unwrap_or_default().to_owned();
        (output.status.code(), text(&output.stdout), errors)
    };
    for (arguments, input) in lines {
        let ours = outcome(lycosa(), arguments, input);
        assert!(ours.0.is_some(), "{arguments:?}: {ours:?}");
        if has_tarantool() {
            assert_eq!(ours, outcome("tarantool", arguments, input), "{arguments:?}");
        }
    }
    // Tarantool 2.6 says so too, and then does not end.
    for (arguments, error) in failing {
        assert_eq!(outcome(lycosa(), arguments, ""), (Some(1), String::new(), error.to_owned()));
    }
}

/// Settings of serializers, texts taken apart, error objects of modules, and reads in transactions.
#[test]
fn values_and_their_settings() {
    compare("values.lua", &[]);
}

#[test]
fn fibers_run_in_their_order_and_end() {
    compare("fiber_order.lua", &[]);
}

#[test]
fn the_log_of_a_program() {
    compare("logs.lua", &[]);
}

#[test]
fn an_instance_tells_of_itself() {
    compare("informed.lua", &[&free_address().to_string()]);
}

/// Modules that luarocks has put into the user's folder are found under both.
#[test]
fn modules_of_luarocks_are_found() {
    let home = tempfile::tempdir().expect("a folder");
    let place = home.path().join(".luarocks/share/lua/5.1/rock");
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join("init.lua"), "return 'a rock'").expect("a module");
    let script = home.path().join("program.lua");
    std::fs::write(&script, "print(require('rock')) os.exit(0)").expect("a program");
    for program in [lycosa(), "tarantool"] {
        if program == "tarantool" && !has_tarantool() {
            continue;
        }
        let mut command = Command::new(program);
        command.arg(&script).current_dir(std::env::temp_dir()).env("HOME", home.path());
        let output = command.stdin(std::process::Stdio::null()).output().expect("the program runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a rock\n", "{program}");
    }
}

#[test]
fn triggers_of_the_schema_run_once() {
    compare("schema_init.lua", &[]);
}

#[test]
fn indexes_of_every_kind() {
    compare("indexes.lua", &[]);
}

#[test]
fn rights_by_numbers_and_sequences_with_rights() {
    compare("rights.lua", &[]);
}

#[test]
fn users_without_rights_read_views_and_move_sequences() {
    compare("users.lua", &[]);
}

/// In Tarantool such a fiber has the rights of `admin` for every caller: a difference on purpose, which docs/lua.md names first.
#[test]
fn a_fiber_of_a_call_has_the_rights_of_the_caller() {
    let output = run(lycosa(), &programs().join("fiber_rights.lua"), &[]);
    let expected = "plain\tu false\tu false\tu false\ntrusted\tu true\tu true\tu true\n";
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn functional_indexes() {
    compare("functional.lua", &[]);
}

/// What a script in a mode prints in a folder, under one of the servers.
pub(crate) fn in_folder(script: &str, program: &str, folder: &Path, mode: &str) -> String {
    let mut command = Command::new(program);
    command.arg(programs().join(script)).arg(mode).current_dir(folder).stdin(std::process::Stdio::null());
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {mode}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What one server wrote the other one reads: multikey, functional, BITSET and RTREE indexes in a data folder.
#[test]
fn indexes_of_every_kind_change_hands() {
    let in_folder = |program: &str, folder: &Path, mode: &str| in_folder("kinds.lua", program, folder, mode);
    let handed_over = |from: &str, to: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        in_folder(from, folder.path(), "write");
        in_folder(to, folder.path(), "read")
    };
    let ours = handed_over(lycosa(), lycosa());
    assert!(ours.contains("places\tdeep\tRTREE\tnil\t3\tnil\t177"), "{ours}");
    if has_tarantool() {
        assert_eq!(ours, handed_over(lycosa(), "tarantool"));
        assert_eq!(ours, handed_over("tarantool", lycosa()));
    }
}

#[test]
fn before_triggers_and_transactions_that_yield() {
    compare("before.lua", &[]);
}

#[test]
fn net_box_speaks_with_a_server() {
    compare("net_box.lua", &[&free_address().port().to_string()]);
}

#[test]
fn without_a_journal_a_statement_does_not_yield() {
    compare("unjournaled.lua", &[]);
}

#[test]
fn while_box_cfg_waits_for_a_master_fibers_run_and_clients_are_told() {
    compare("loading.lua", &[&free_address().port().to_string()]);
}

#[test]
fn triggers_of_sessions_run_and_refuse_as_theirs() {
    compare("sessions.lua", &[&free_address().port().to_string()]);
}

#[test]
fn modules_are_found_and_named_as_theirs() {
    compare("modules.lua", &[]);
}

#[test]
fn sql_over_one_space_is_theirs() {
    compare("sql.lua", &[&free_address().port().to_string()]);
}

#[test]
fn sql_over_several_spaces_is_theirs() {
    compare("joins_said.lua", &[]);
}

#[test]
fn collations_and_views_of_sql_are_theirs() {
    compare("sql_views.lua", &[]);
}

#[test]
fn triggers_and_foreign_keys_of_sql_are_theirs() {
    compare("sql_triggers.lua", &[]);
}

#[test]
fn forms_types_and_mismatches_of_sql_are_theirs() {
    compare("sql_forms.lua", &[]);
}

#[test]
fn conflicts_defaults_and_counts_of_sql_are_theirs() {
    compare("sql_changes.lua", &[]);
}

#[test]
fn errors_have_codes_texts_and_causes() {
    compare("errors.lua", &[]);
}

#[test]
fn keys_and_merged_sources_are_theirs() {
    compare("key_def.lua", &[]);
}

#[test]
fn functions_that_name_their_object_are_theirs() {
    compare("named.lua", &[]);
}

/// Every 29th of 7 500 combinations, from all parts of the table; with `LYCOSA_TEST_STRIDE=1` all, which takes minutes.
#[test]
fn triggers_that_do_what_they_should_not_break_nothing() {
    let stride = std::env::var("LYCOSA_TEST_STRIDE").unwrap_or_else(|_| "29".to_owned());
    let folder = tempfile::tempdir().expect("a folder");
    let run = |second: &str| {
        let mut command = Command::new(lycosa());
        command
            .arg(programs().join("hostile_triggers.lua"))
            .args([free_address().port().to_string().as_str(), second]);
        let output = command.current_dir(folder.path()).stdin(std::process::Stdio::null()).output();
        let output = output.expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !errors.contains("panicked"), "{:?}\n{errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let left = run(&stride);
    assert!(left.contains("watched [3, 'c', 3]"), "{left}");
    assert_eq!(run("again"), left, "a restart finds what was there");
}

/// Nothing interrupts these: a program's own code has no time limit.
#[test]
fn a_program_that_never_pauses_is_ended_by_sigterm() {
    use std::io::Read;
    for (endless, signals) in [("while true do end", 1), ("('a'):rep(60):find(('a*'):rep(30) .. 'b')", 2)] {
        let mut command = Command::new(lycosa());
        let program = format!("print('ready') io.stdout:flush(); {endless}");
        command.args(["-e", &program]).stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut served = Served(command.spawn().expect("it runs"));
        let mut ready = [0; 6];
        served.0.stdout.as_mut().expect("it is piped").read_exact(&mut ready).expect("it says so");
        for _ in 0..signals {
            let id = rustix::process::Pid::from_child(&served.0);
            rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is a child");
        }
        let status = served.0.wait().expect("it is a child");
        let mut said = String::new();
        served.0.stderr.as_mut().expect("it is piped").read_to_string(&mut said).expect("text");
        assert_eq!(status.code(), Some(143), "{said}");
        assert!(said.contains("the next start recovers its data"), "{said}");
    }
}

#[test]
fn programs_cannot_confuse_native_code() {
    passes("borders.lua");
}

#[test]
fn triggers_do_what_they_do_there() {
    compare("triggers.lua", &[]);
}

/// The bytes of an answer that has to be one.
fn data(answer: Result<lycosa_client::Response, lycosa_client::Error>) -> Vec<u8> {
    answer.expect("an answer").data().to_vec()
}

/// A program that serves, ended by its own id.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_s_own_queue_serves_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_address().port();
    let own = "local queue = {}\n\
               function queue.stats() return {own = box.space.kept:len()} end\n\
               function queue.put(x) return box.space.kept:insert{x} end\n\
               function queue.wait() require('fiber').sleep(0.01) return 'done' end\n\
               return queue\n";
    let init = format!(
        "box.cfg{{listen = '127.0.0.1:{port}'}}\n\
         box.schema.create_space('kept'):create_index('pk')\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n\
         queue = require 'queue'\n\
         connected = 0\n\
         box.session.on_connect(function() connected = connected + 1 end)\n"
    );
    std::fs::write(folder.path().join("queue.lua"), own).expect("a file");
    std::fs::write(folder.path().join("init.lua"), init).expect("a file");
    let mut command = Command::new(lycosa());
    command.arg("init.lua").current_dir(folder.path()).stderr(std::process::Stdio::null());
    let _served = Served(command.spawn().expect("the program runs"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = format!("127.0.0.1:{port}");
        let mut connection = None;
        for _ in 0..200 {
            let options = lycosa_client::ConnectOptions::new(&address);
            if let Ok(found) = lycosa_client::Connection::connect(&options).await {
                connection = Some(found);
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let connection = connection.expect("the program listens");
        let mut stats = connection.call("queue.stats", ()).await;
        for _ in 0..200 {
            // It listens before the program's next line has defined the queue.
            if matches!(&stats, Ok(answer) if answer.data().ends_with(&[0]) && answer.data().len() > 6) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            stats = connection.call("queue.stats", ()).await;
        }
        let text = |answer| String::from_utf8_lossy(&data(answer)).into_owned();
        assert!(text(stats).contains("own"));
        let waited = connection.call("queue.wait", ()).await;
        assert!(text(waited).contains("done"));
        // Its triggers stand now, so that a new connection finds them.
        let options = lycosa_client::ConnectOptions::new(&address);
        let second = lycosa_client::Connection::connect(&options).await.expect("it listens");
        let counted = second.eval("return connected > 0", ()).await;
        assert_eq!(data(counted).last(), Some(&0xc3));
    });
}

#[test]
fn a_program_and_its_replica_change_places() {
    let ports = [free_address().port().to_string(), free_address().port().to_string()];
    let output = run(lycosa(), &programs().join("pair.lua"), &[&ports[0], &ports[1]]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let wanted = [
        "upstream at once\ttrue",
        "'replication_timeout': the value must be greather than 0",
        "'replication_timeout': should be of type number",
        "'replication_connect_quorum': should be a whole number from 0 to 31, not 40",
        "'replication_sync_timeout': the value must be greater than 0",
        "'replicas_missing': should be \"wait\" or \"refuse\", not \"never\"",
        "'replication_anon': the value may be set to true only when the instance is read-only",
        "'replication_synchro_quorum': the value must be greater than zero and less than maximal number of replicas",
        "'replication_synchro_timeout': the value must be greater than zero",
        "synchro\t2\t3",
        "by default\t0\twait\tfalse",
        "now\t1\t0.5",
        "still writable\tfalse",
        "INIT\tRUNNING",
        "acknowledged there\tfirst",
        "ok the idle session ends",
        "ok nor is it there",
        "tasks left\t0",
    ];
    let missing: Vec<_> = wanted.iter().filter(|wanted| !said.contains(**wanted)).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{said}\n{errors}");
}

/// A program that checks itself.
fn passes(name: &str) {
    let output = run(lycosa(), &programs().join(name), &[]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.ends_with(b"done\n"), "{errors}");
}

#[test]
fn a_module_of_ones_own_finds_nothing_reserved() {
    let output = run(
        lycosa(),
        Path::new("--no-native-queue"),
        &[programs().join("own_queue.lua").to_str().expect("UTF-8")],
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.ends_with(b"done\n"), "{errors}");
}

#[test]
fn a_fork_of_the_module_runs_as_it_is_and_no_client_makes_a_native_queue_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [&[][..], &["again"]] {
        let mut command = Command::new(lycosa());
        command.arg(programs().join("fork.lua")).args(arguments).current_dir(folder.path());
        let output = command.stdin(std::process::Stdio::null()).output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout.ends_with(b"done\n"), "{arguments:?}: {errors}");
    }
}

#[test]
fn the_queue_of_a_program_starts_when_it_is_asked_for() {
    passes("queue_on_demand.lua");
}

#[test]
fn tubes_with_drivers_in_lua_are_tubes() {
    passes("drivers.lua");
}

#[test]
fn drivers_in_lua_do_what_native_ones_do() {
    passes("lua_drivers.lua");
}

#[test]
fn triggers_see_what_everyone_does() {
    passes("hooks.lua");
}

#[test]
fn a_program_is_loaded_again_and_keeps_what_it_has() {
    passes("reload.lua");
}

#[test]
fn the_first_read_of_an_index_with_deferred_entries_lets_others_run() {
    let output = run(lycosa(), &programs().join("deferred.lua"), &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let expected = "select\ttrue\t0\t10\t10\ncount\ttrue\t0\t20000\t20000\npairs\ttrue\t0\t10\t10\n\
                    transaction\t0\t20001\ttrue\ncommitted\ttrue\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

#[test]
fn spaces_and_indexes_are_theirs() {
    compare("spaces.lua", &[]);
}

#[test]
fn tuples_are_theirs() {
    compare("tuples.lua", &[]);
}

#[test]
fn definitions_and_sessions_are_theirs() {
    compare("schema.lua", &[]);
}

#[test]
fn error_objects_are_theirs() {
    compare("error_objects.lua", &[]);
}
