//! Consoles: of a program, and of a server at its socket.

use std::io::Write;
use std::process::{Command, Output};

use super::{Served, lycosa};
use crate::addresses::free_address;

/// Types statements into a console that reads a pipe; what it prints.
fn console(arguments: &[&str], statements: &str) -> Output {
    let mut command = Command::new(lycosa());
    command.args(arguments).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    // A console that has no server reads nothing.
    let _ = child.stdin.take().expect("it is piped").write_all(statements.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_console_shows_results_as_yaml_and_lua() {
    let statements = [
        "1",
        "return 1, nil, {a = 1}",
        "error('x')",
        ")",
        "for i = 1, 2 do",
        "last = i",
        "end",
        "last",
        "\\set output lua",
        "{1, 'a', {b = 2, [3] = {}}, 5ULL, box.NULL}",
        "{1, nil, 3, [5] = 'x'}",
        "'q\"', true",
        "\\set output lua,block",
        "{a = {1}}",
        "\\set output yaml",
        "\\set output xml",
        "\\nosuch",
        "\\set delimiter ;",
        "7",
        "+ 8;",
        "\\set delimiter",
        "9",
        "\\quit",
        "after",
        "",
    ];
    let shown = console(&["console"], &statements.join("\n"));
    let text = String::from_utf8_lossy(&shown.stdout).replace("      > ", "").replace("lycosa> ", "");
    let yaml = |lines: &str| format!("---\n{lines}...\n\n");
    let wanted = [
        yaml("- 1\n"),
        yaml("- 1\n- null\n- a: 1\n"),
        yaml("- error: x\n"),
        yaml("- error: '[string \")\"]:1: unexpected symbol near '')'''\n"),
        yaml(""),
        yaml("- 2\n"),
        "true;\n".to_owned(),
        "{1, \"a\", {[3] = {}, b = 2}, 5, box.NULL};\n".to_owned(),
        "{1, nil, 3, nil, \"x\"};\n".to_owned(),
        "\"q\\\"\", true;\n".to_owned(),
        "true;\n{\n  a = {\n    1\n  }\n};\n".to_owned(),
        yaml("- true\n"),
        yaml("- error: 'Invalid format \"xml\", supported languages: lua and yaml.'\n"),
        yaml("- error: Invalid command \\nosuch. Type \\help for help.\n"),
        yaml(""),
        yaml("- 15\n"),
    ];
    assert!(text.starts_with(&wanted.concat()), "{text}\nwanted:\n{}", wanted.concat());
    assert!(text.trim_end().ends_with("- 9\n..."), "{text}");
    assert!(shown.status.success());
}

#[test]
fn a_console_reaches_a_server_by_both_protocols() {
    let folder = tempfile::tempdir().expect("a folder");
    let (binary, text) = (free_address().port(), free_address().port());
    let path = folder.path().join("control");
    let program = format!(
        "box.cfg{{listen = '127.0.0.1:{binary}'}}\n\
         box.schema.user.grant('guest', 'super', nil, nil, {{if_not_exists = true}})\n\
         box.schema.user.create('someone', {{password = 'secret', if_not_exists = true}})\n\
         box.schema.user.grant('someone', 'execute', 'universe')\n\
         require('console').listen('{path}')\nrequire('console').listen('127.0.0.1:{text}')\n\
         known = 'there'\nprint('ready')\n",
        path = path.display()
    );
    std::fs::write(folder.path().join("init.lua"), program).expect("a file");
    let mut command = Command::new(lycosa());
    command.arg("init.lua").current_dir(folder.path()).stderr(std::process::Stdio::null());
    let mut served = Served(command.stdout(std::process::Stdio::piped()).spawn().expect("the program runs"));
    let mut ready = [0; 6];
    let stdout = served.0.stdout.as_mut().expect("it is piped");
    std::io::Read::read_exact(stdout, &mut ready).expect("it says so");
    let statements = "known\nreturn 1,\n2\nerror('x')\n\\set output lua\n{1}\n";
    for address in [format!("127.0.0.1:{binary}"), format!("127.0.0.1:{text}"), path.display().to_string()] {
        let shown = console(&["console", &address], statements);
        let out = String::from_utf8_lossy(&shown.stdout).replace(&format!("{address}> "), "");
        let out = out.replace(&format!("{}> ", " ".repeat(address.len())), "");
        let wanted = "---\n- there\n...\n\n---\n- 1\n- 2\n...\n\n---\n- error: x\n...\n\ntrue;\n{1};\n\n";
        assert_eq!(out, wanted, "{address}: {}", String::from_utf8_lossy(&shown.stderr));
    }
    let named = console(&["console", &format!("someone:secret@127.0.0.1:{binary}")], "box.session.user()\n");
    let shown = String::from_utf8_lossy(&named.stdout).into_owned();
    assert!(shown.contains("- someone") && !shown.contains("secret"), "{shown}");
    let wrong = console(&["console", &format!("someone:wrong@127.0.0.1:{binary}")], "1\n");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("Incorrect password") && !said.contains("wrong"), "{said}");
    assert_eq!(wrong.status.code(), Some(4));
    let absent = console(&["console", &format!("127.0.0.1:{}", free_address().port())], "1\n");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("Connection refused"));
}
