//! `lycosa user`: accounts, over the administrator's socket of a running server.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use lycosa_client::Value;
use serde_json::json;

use crate::arguments::UserCommand;
use crate::explain;
use crate::outcome::Outcome;
use crate::output;
use crate::payload;
use crate::session::{PASSWORD_VARIABLE, Session, read_password};

/// `_vuser` is read through its primary index.
const USER_SPACE: u32 = 304;

pub(crate) fn run(command: UserCommand) -> anyhow::Result<Outcome> {
    match command {
        UserCommand::Add { name, password_file, role, tube, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            check_tubes(&session, &tube)?;
            let password = password(&name, password_file.as_deref())?;
            let options = Value::map([("password", password)]);
            session.call("box.schema.user.create", vec![name.as_str().into(), options])?;
            if let Err(error) = grant(&session, &name, &role, &tube) {
                // A user with half of the grants is worse than none.
                let dropped = session.call("box.schema.user.drop", vec![name.as_str().into()]);
                let what = match dropped {
                    Ok(_) => format!("user {name} was not added"),
                    Err(error) => format!(
                        "user {name} was added without all grants, and cannot be dropped again: {error}"
                    ),
                };
                return Err(error.context(what));
            }
            said(admin.json, &name, "added")
        }
        UserCommand::Grant { name, role, tube, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            check_tubes(&session, &tube)?;
            grant(&session, &name, &role, &tube)?;
            said(admin.json, &name, "granted")
        }
        UserCommand::Passwd { name, password_file, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            let password = password(&name, password_file.as_deref())?;
            session.call("box.schema.user.passwd", vec![name.as_str().into(), password.into()])?;
            said(admin.json, &name, "changed")
        }
        UserCommand::Drop { name, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            session.call("box.schema.user.drop", vec![name.as_str().into()])?;
            said(admin.json, &name, "dropped")
        }
        UserCommand::List { admin } => list(&Session::open_admin(&admin.data_dir)?, admin.json),
    }
}

/// Refuses tubes that do not exist, before anything is changed.
fn check_tubes(session: &Session, wanted: &[String]) -> anyhow::Result<()> {
    let values = session.call("queue.tube", Vec::new())?;
    let tubes = values.first().and_then(Value::as_array).unwrap_or_default();
    let tubes: Vec<String> = tubes.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    match wanted.iter().find(|tube| *tube != "*" && !tubes.contains(tube)) {
        Some(missing) => anyhow::bail!("{}; nothing was changed", explain::missing_tube(missing, tubes)),
        None => Ok(()),
    }
}

fn said(as_json: bool, user: &str, what: &str) -> anyhow::Result<Outcome> {
    if as_json {
        output::line(json!({ "user": user, "done": what }))?;
    } else {
        output::line(format_args!("{what} user {user}"))?;
    }
    Ok(Outcome::Done)
}

fn grant(session: &Session, user: &str, roles: &[String], tubes: &[String]) -> anyhow::Result<()> {
    for role in roles {
        let lenient = Value::map([("if_not_exists", true)]);
        let arguments = vec![user.into(), role.as_str().into(), Value::Nil, Value::Nil, lenient];
        session.call("box.schema.user.grant", arguments).with_context(|| format!("role {role}"))?;
    }
    for tube in tubes {
        let granted = if tube == "*" {
            let lenient = Value::map([("if_not_exists", true)]);
            let privileges = "read,write,execute,create,drop,alter";
            let arguments = vec![user.into(), privileges.into(), "universe".into(), Value::Nil, lenient];
            session.call("box.schema.user.grant", arguments)
        } else {
            let options = Value::map([("call", true), ("truncate", true)]);
            session.call(&crate::commands::method(tube, "grant"), vec![user.into(), options])
        };
        granted.with_context(|| format!("tube {tube}"))?;
    }
    Ok(())
}

fn list(session: &Session, as_json: bool) -> anyhow::Result<Outcome> {
    let (runtime, connection) = session.parts();
    let users = runtime.block_on(connection.select(USER_SPACE, 0, 2, (), 0, u32::MAX))?.values()?;
    let mut rows = Vec::new();
    for user in &users {
        let fields = user.as_array().unwrap_or_default();
        let (Some(name), Some(kind)) =
            (fields.get(2).and_then(Value::as_str), fields.get(3).and_then(Value::as_str))
        else {
            continue;
        };
        let has_password = fields.get(4).and_then(|auth| auth.get("chap-sha1")).is_some();
        let info = match kind {
            "role" => session.call("box.schema.role.info", vec![name.into()])?,
            _ => session.call("box.schema.user.info", vec![name.into()])?,
        };
        let grants = info.into_iter().next().unwrap_or(Value::Nil);
        if as_json {
            output::line(json!({
                "user": name, "kind": kind, "password": has_password, "grants": payload::to_json(&grants),
            }))?;
        } else {
            let password = if has_password { "yes" } else { "no" };
            rows.push(vec![name.to_owned(), kind.to_owned(), password.to_owned(), summary(&grants)]);
        }
    }
    if !as_json {
        output::table(&["name", "kind", "password", "grants"], &rows)?;
    }
    Ok(Outcome::Done)
}

/// Grants in one line; many functions of one tube are counted.
fn summary(grants: &Value) -> String {
    let mut parts = Vec::new();
    let mut functions = 0;
    for grant in grants.as_array().unwrap_or_default() {
        let field =
            |at: usize| grant.as_array().and_then(|g| g.get(at)).and_then(Value::as_str).unwrap_or("");
        match field(1) {
            "function" => functions += 1,
            "universe" => parts.push(format!("{} on everything", field(0))),
            "role" => parts.push(format!("role {}", field(2))),
            kind => parts.push(format!("{} on {kind} {}", field(0), field(2))),
        }
    }
    if functions > 0 {
        parts.push(format!("{functions} functions"));
    }
    parts.join("; ")
}

/// The password for `user`: from the file, the environment, or typed twice.
fn password(user: &str, file: Option<&Path>) -> anyhow::Result<String> {
    if let Some(file) = file {
        return read_password(file);
    }
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password);
    }
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        let password = line.trim_end_matches(['\r', '\n']).to_owned();
        anyhow::ensure!(
            !password.is_empty(),
            "no password: type one, or use --password-file or {PASSWORD_VARIABLE}"
        );
        return Ok(password);
    }
    let ask = |prompt: &str| -> anyhow::Result<String> {
        write!(io::stderr(), "{prompt}")?;
        io::stderr().flush()?;
        Ok(rpassword::read_password()?)
    };
    let first = ask(&format!("Password for {user}: "))?;
    anyhow::ensure!(first == ask("Once more: ")?, "the two passwords differ");
    Ok(first)
}
