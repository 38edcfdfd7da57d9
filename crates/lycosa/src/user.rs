//! `lycosa user`: accounts, over the administrator's socket of a running server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Context;
use lycosa_client::{Array, Value};
use serde_json::json;

use crate::arguments::UserCommand;
use crate::outcome::Outcome;
use crate::session::{PASSWORD_VARIABLE, Session, given_password, method, typed_password};
use crate::space_pages::{ALL, select};
use crate::{explain, output, payload};

/// The role of users who have every tube.
const EVERY_TUBE: &str = "lycosa_tubes";

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
            // A user with half of the grants is worse than none.
            grant(&session, &name, &role, &tube).map_err(|error| {
                let dropped = session.call("box.schema.user.drop", vec![name.as_str().into()]);
                let what = match dropped {
                    Ok(_) => "was not added".to_owned(),
                    Err(error) => {
                        format!("was added without all grants, and cannot be dropped again: {error}")
                    }
                };
                error.context(format!("user {name} {what}"))
            })?;
            said(admin.json, &name, "added")
        }
        UserCommand::Grant { name, role, tube, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            check_tubes(&session, &tube)?;
            grant(&session, &name, &role, &tube)?;
            let words = format_args!("granted to user {name}: {}", listed(&role, &tube));
            output::said(admin.json, json!({ "user": name, "done": "granted" }), words)
        }
        UserCommand::Revoke { name, role, tube, admin } => {
            let session = Session::open_admin(&admin.data_dir)?;
            check_tubes(&session, &tube)?;
            revoke(&session, &name, &role, &tube)?;
            let words = format_args!("revoked from user {name}: {}", listed(&role, &tube));
            output::said(admin.json, json!({ "user": name, "done": "revoked" }), words)
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
        UserCommand::List(admin) => list(&Session::open_admin(&admin.data_dir)?, admin.json),
    }
}

/// Refuses tubes that do not exist, before anything is changed.
fn check_tubes(session: &Session, wanted: &[String]) -> anyhow::Result<()> {
    let tubes = session.tubes()?;
    match wanted.iter().find(|tube| *tube != "*" && !tubes.contains(tube)) {
        Some(missing) => anyhow::bail!("{}; nothing was changed", explain::missing_tube(missing, tubes)),
        None => Ok(()),
    }
}

fn said(as_json: bool, user: &str, what: &str) -> anyhow::Result<Outcome> {
    output::said(as_json, json!({ "user": user, "done": what }), format_args!("{what} user {user}"))
}

/// Roles and tubes in words: `role viewer, tube mail`.
fn listed(roles: &[String], tubes: &[String]) -> String {
    let roles = roles.iter().map(|role| format!("role {role}"));
    let tubes = tubes.iter().map(|tube| format!("tube {tube}"));
    roles.chain(tubes).collect::<Vec<_>>().join(", ")
}

fn grant(session: &Session, user: &str, roles: &[String], tubes: &[String]) -> anyhow::Result<()> {
    for role in roles {
        let lenient = Value::map([("if_not_exists", true)]);
        let arguments = vec![user.into(), role.as_str().into(), Value::Nil, Value::Nil, lenient];
        session.call("box.schema.user.grant", arguments).with_context(|| format!("role {role}"))?;
    }
    for tube in tubes {
        let granted = if tube == "*" {
            session.call("queue.grant", vec![user.into(), tube.as_str().into()]).inspect(|replaced| {
                if replaced.first().and_then(Value::as_bool) == Some(true) {
                    eprintln!(
                        "{user} had rights to everything, which an older version granted for --tube '*': they are taken away, \
                         and {user} has every tube in their place"
                    );
                }
            })
        } else {
            let options = Value::map([("call", true), ("truncate", true)]);
            session.call(&method(tube, "grant"), vec![user.into(), options])
        };
        granted.with_context(|| format!("tube {tube}"))?;
    }
    Ok(())
}

fn revoke(session: &Session, user: &str, roles: &[String], tubes: &[String]) -> anyhow::Result<()> {
    for role in roles {
        let arguments = vec![user.into(), role.as_str().into()];
        session.call("box.schema.user.revoke", arguments).with_context(|| format!("role {role}"))?;
    }
    for tube in tubes {
        let revoked = session.call("queue.revoke", vec![user.into(), tube.as_str().into()]);
        let revoked = revoked.with_context(|| format!("tube {tube}"))?;
        if revoked.first().and_then(Value::as_bool) == Some(false) {
            let lacking = match tube.as_str() {
                "*" => format!("{user} was not granted every tube (--tube '*')"),
                tube => format!("{user} has no grant on tube \"{tube}\" itself"),
            };
            anyhow::bail!(
                "nothing to revoke: {lacking}; `lycosa user list` shows the grants and roles of {user}"
            );
        }
    }
    Ok(())
}

/// The rows of all users and roles.
fn rows(session: &Session) -> anyhow::Result<Vec<Value>> {
    Ok(select(session, USER_SPACE, 0, ALL, Array::from(()), u32::MAX)?.values()?)
}

/// The names of all users, without roles.
pub(crate) fn names(session: &Session) -> anyhow::Result<Vec<String>> {
    let users = rows(session)?;
    let fields = users.iter().filter_map(Value::as_array);
    let users = fields.filter(|fields| fields.get(3).and_then(Value::as_str) == Some("user"));
    Ok(users.filter_map(|fields| fields.get(2)?.as_str().map(str::to_owned)).collect())
}

fn list(session: &Session, as_json: bool) -> anyhow::Result<Outcome> {
    let users = rows(session)?;
    let mut found = Vec::new();
    for user in &users {
        let text = |field: usize| user.as_array().and_then(|fields| fields.get(field)?.as_str());
        let (Some(name), Some(kind)) = (text(2), text(3)) else { continue };
        let auth = user.as_array().and_then(|fields| fields.get(4)?.get("chap-sha1"));
        let function = if kind == "role" { "box.schema.role.info" } else { "box.schema.user.info" };
        let info = session.call(function, vec![name.into()])?.into_iter().next().unwrap_or(Value::Nil);
        found.push((name, kind, auth.is_some(), info));
    }
    let parties: Parties<'_> = found.iter().map(|(name, _, _, info)| (*name, grants(info))).collect();
    let is_admin = |name| name == "admin" || can_become_admin(name, &parties, &mut BTreeSet::new());
    if as_json {
        return output::lines(&found, |(name, kind, has_password, info)| {
            json!({
                "user": name, "kind": kind, "password": has_password, "can_become_admin": is_admin(name),
                "tubes": tubes_of(&grants(info)), "grants": payload::to_json(info),
            })
        });
    }
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let rows = found.iter().map(|(name, kind, has_password, info)| {
        let (password, admin, shown) =
            (yes(*has_password), yes(is_admin(name)), summary(name, &grants(info)));
        [(*name).to_owned(), (*kind).to_owned(), password, admin, shown]
    });
    output::table(&["name", "kind", "password", "can become admin", "grants"], rows)
}

/// A row of `box.schema.user.info`: privileges, the type of the object, its name (empty: all of the type).
#[derive(Debug, Clone, Copy)]
struct Grant<'a> {
    privileges: &'a str,
    kind: &'a str,
    object: &'a str,
}

/// The grants of users and roles, by name.
type Parties<'a> = BTreeMap<&'a str, Vec<Grant<'a>>>;

fn grants(info: &Value) -> Vec<Grant<'_>> {
    let list = info.as_array().unwrap_or_default().iter().filter_map(Value::as_array);
    list.map(|grant| {
        let field = |at: usize| grant.get(at).and_then(Value::as_str).unwrap_or("");
        Grant { privileges: field(0), kind: field(1), object: field(2) }
    })
    .collect()
}

/// Spaces in which a writer can make itself an administrator.
const OF_RIGHTS: [&str; 6] = ["", "_user", "_priv", "_func", "_space", "_lycosa_tokens"];

/// Whether a user or role can do what `admin` can: run programs, or change users, rights or functions.
fn can_become_admin<'a>(name: &'a str, parties: &Parties<'a>, seen: &mut BTreeSet<&'a str>) -> bool {
    if name == "super" || !seen.insert(name) {
        return name == "super";
    }
    parties.get(name).into_iter().flatten().any(|grant| {
        let has = |wanted: &[&str]| grant.privileges.split(',').any(|privilege| wanted.contains(&privilege));
        match grant.kind {
            "universe" => has(&["write", "execute", "create", "alter"]),
            "space" => has(&["write"]) && OF_RIGHTS.contains(&grant.object),
            "function" => {
                grant.object.is_empty() && has(&["execute", "create"])
                    || grant.object == "LUA" && name != "public"
            }
            "user" => has(&["alter"]) && ["", "admin"].contains(&grant.object),
            "role" => can_become_admin(grant.object, parties, seen),
            _ => false,
        }
    })
}

/// The tube whose method a function is.
fn tube_of(grant: &Grant<'_>) -> Option<String> {
    let method = grant.object.strip_prefix("queue.tube.").filter(|_| grant.kind == "function")?;
    Some(method.rsplit_once(':')?.0.to_owned())
}

fn tubes_of(grants: &[Grant<'_>]) -> BTreeSet<String> {
    let is_every = |grant: &Grant<'_>| grant.kind == "role" && grant.object == EVERY_TUBE;
    let every = grants.iter().any(is_every).then(|| "*".to_owned());
    grants.iter().filter_map(tube_of).chain(every).collect()
}

/// Grants in one line: tubes by their names. What every user has is left out, and what a grant on a tube gives beside the tube.
fn summary(name: &str, grants: &[Grant<'_>]) -> String {
    let tubes = tubes_of(grants);
    let is_of_tube = |space: &str| {
        space.starts_with("_queue") || tubes.contains(space.strip_suffix("_ready_buffer").unwrap_or(space))
    };
    let (mut roles, mut others, mut functions) = (Vec::new(), Vec::new(), 0);
    for grant in grants {
        let Grant { privileges, kind, object } = *grant;
        match kind {
            "function"
                if tube_of(grant).is_some() || object == "queue.identify" || object == "queue.statistics" => {
            }
            "function" => functions += 1,
            "space" if !tubes.is_empty() && is_of_tube(object) => {}
            "universe" if privileges == "session,usage" => {}
            "universe" => others.push(format!("{privileges} on everything")),
            "role" if object == EVERY_TUBE || object == "public" => {}
            "user" if object == name => {}
            "role" => roles.push(object),
            kind if object.is_empty() => others.push(format!("{privileges} on every {kind}")),
            kind => others.push(format!("{privileges} on {kind} {object}")),
        }
    }
    let mut parts = Vec::new();
    let mut named: Vec<&str> = tubes.iter().map(String::as_str).filter(|tube| *tube != "*").collect();
    if tubes.contains("*") {
        named.insert(0, "every tube");
    }
    parts.extend((!named.is_empty()).then(|| format!("tubes: {}", named.join(", "))));
    parts.extend((!roles.is_empty()).then(|| format!("roles: {}", roles.join(", "))));
    parts.extend(others);
    parts.extend((functions > 0).then(|| format!("{functions} functions")));
    parts.join("; ")
}

/// The password for `user`: from the file, the environment, or typed twice.
fn password(user: &str, file: Option<&Path>) -> anyhow::Result<String> {
    if let Some(password) = given_password(file)? {
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
    let first = typed_password(&format!("Password for {user}"))?;
    anyhow::ensure!(first == typed_password("Once more")?, "the two passwords differ");
    Ok(first)
}
