//! The screens of jobs, of the audit log, and of the members of a group.

use std::time::{SystemTime, UNIX_EPOCH};

use lycosa_client::{AuditEntry, TubeJob, Value};
use lycosa_metrics::{Election, Gravity, GroupMember};

use super::detail::relative;
use super::{Canvas, Column, Lines, Theme, fit, list, plain};
use crate::listing::one_line;
use crate::top::change::{is_dry, result};
use crate::top::model::Model;
use crate::top::place::AuditView;
use crate::top::words::visible;
use crate::values::{cell, count, float};

fn ago(model: &Model, at: Option<SystemTime>) -> String {
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    cell(since, |since| relative(model, since.as_secs_f64()))
}

fn given(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { visible(text) }
}

/// A member of a job's reply as text.
fn said(job: &TubeJob, name: &str) -> String {
    given(job.reply.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// Jobs of a tube, or of all with the tube of each.
pub(super) fn jobs(canvas: Canvas<'_>, tube: Option<&str>, jobs: &[TubeJob]) -> Lines {
    let Canvas { model, width, .. } = canvas;
    if jobs.is_empty() {
        return vec![plain(match tube {
            Some(_) => "No job has changed or counted tasks of this tube.",
            None => "No job has changed or counted tasks of a tube that this user may look at.",
        })];
    }
    let unfinished = jobs.iter().filter(|job| !job.state.is_over()).count();
    let tally = format!("{} jobs, {} unfinished", count(jobs.len() as u64), count(unfinished as u64));
    let began = |job: &TubeJob| cell(job.reply.get("began").and_then(float), |at| relative(model, at));
    let operation = |job: &TubeJob| {
        let dry = if is_dry(job) && job.operation != "count" { " (dry run)" } else { "" };
        format!("{}{dry}", job.operation)
    };
    let columns: [Column<'_, TubeJob>; 10] = [
        Column("job", true, 0, &|job| job.id.to_string()),
        Column("tube", false, if tube.is_some() { 9 } else { 0 }, &|job| visible(&job.tube)),
        Column("operation", false, 0, &operation),
        Column("state", false, 0, &|job| format!("{:?}", job.state).to_lowercase()),
        Column("scanned", true, 4, &|job| format!("{} of {}", count(job.scanned), count(job.total))),
        Column("outcome", false, 1, &result),
        Column("kept for undo", true, 5, &|job| count(job.kept)),
        Column("user", false, 7, &|job| said(job, "user")),
        Column("began", false, 6, &began),
        Column("reason", false, 8, &|job| said(job, "reason")),
    ];
    list(canvas, plain(one_line(&tally, width)), jobs, &columns)
}

/// The user, or the token and its role.
fn author(entry: &AuditEntry) -> String {
    match (&entry.token, &entry.role) {
        (Some(token), Some(role)) => format!("token {} ({role})", visible(token)),
        (Some(token), None) => format!("token {}", visible(token)),
        (None, _) => given(&entry.user),
    }
}

pub(super) fn audit(canvas: Canvas<'_>, view: &AuditView) -> Lines {
    let Canvas { model, width, .. } = canvas;
    if view.entries.is_empty() {
        return vec![plain("No entry: pauses, resumes and jobs are written here.")];
    }
    let page = format!("Page {}, the newest first", view.befores.len());
    let columns: [Column<'_, AuditEntry>; 6] = [
        Column("when", false, 0, &|entry| ago(model, entry.time)),
        Column("user", false, 1, &author),
        Column("operation", false, 0, &|entry| visible(&entry.operation)),
        Column("tube", false, 2, &|entry| given(&entry.tube)),
        Column("job", true, 4, &|entry| cell(entry.job, |job| job.to_string())),
        Column("reason", false, 3, &|entry| given(entry.reason.as_deref().unwrap_or_default())),
    ];
    list(canvas, plain(one_line(&page, width)), &view.entries, &columns)
}

fn health(member: &GroupMember) -> &'static str {
    match (member.is_connected, member.is_active, member.awaits_snapshot) {
        (_, _, Some(true)) => "gets a snapshot",
        (false, _, _) => "not connected",
        (true, Some(false), _) => "does not answer",
        (true, ..) => "connected",
    }
}

pub(super) fn group(canvas: Canvas<'_>) -> Lines {
    let Canvas { model, theme, width, .. } = canvas;
    let Some(election) = model.election() else { return vec![plain("This server belongs to no group.")] };
    let leader = match election.leader {
        0 => "no leader is known".to_owned(),
        leader => format!("node {leader} leads"),
    };
    let Election { term, voters, node, .. } = election;
    let seen = format!("{leader}, term {term}, {voters} voters; as node {node} sees it");
    let style = if election.leader == 0 { theme.gravity(Gravity::Bad) } else { Theme::bold() };
    let role = |member: &GroupMember| {
        if member.node == election.leader { "leader".to_owned() } else { member.standing.clone() }
    };
    let columns: [Column<'_, GroupMember>; 5] = [
        Column("node", true, 0, &|member| member.node.to_string()),
        Column("role", false, 0, &role),
        Column("address", false, 2, &|member| visible(&member.address)),
        Column("health", false, 0, &|member| health(member).to_owned()),
        Column("behind", true, 1, &|member| cell(member.lag, |lag| format!("{} entries", count(lag)))),
    ];
    list(canvas, fit(&seen, width, style), &election.members, &columns)
}
