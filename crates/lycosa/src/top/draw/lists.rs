//! The screens of jobs, of the audit log, and of the members of a group.

use std::time::{SystemTime, UNIX_EPOCH};

use lycosa_client::{AuditEntry, TubeJob, Value};
use lycosa_metrics::{Gravity, GroupMember};
use ratatui::text::Line;

use super::detail::relative;
use super::{Column, Theme, list, plain, styled};
use crate::listing::one_line;
use crate::top::change::{is_dry, result};
use crate::top::model::Model;
use crate::top::place::AuditView;
use crate::top::words::visible;
use crate::values::count;

fn ago(model: &Model, at: Option<SystemTime>) -> String {
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or_else(|| "-".to_owned(), |since| relative(model, since.as_secs_f64()))
}

fn given(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { visible(text) }
}

/// A member of a job's reply as text.
fn said(job: &TubeJob, name: &str) -> String {
    given(job.reply.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// Jobs of a tube, or of all with the tube of each.
pub(super) fn jobs(
    model: &Model,
    tube: Option<&str>,
    jobs: &[TubeJob],
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    if jobs.is_empty() {
        return vec![plain(match tube {
            Some(_) => "No job has changed or counted tasks of this tube.",
            None => "No job has changed or counted tasks of a tube that this user may look at.",
        })];
    }
    let unfinished = jobs.iter().filter(|job| !job.state.is_over()).count();
    let tally = format!("{} jobs, {} unfinished", count(jobs.len() as u64), count(unfinished as u64));
    let columns = [
        Column("job", true, 0),
        Column("tube", false, if tube.is_some() { 9 } else { 0 }),
        Column("operation", false, 0),
        Column("state", false, 0),
        Column("scanned", true, 4),
        Column("outcome", false, 1),
        Column("kept for undo", true, 5),
        Column("user", false, 7),
        Column("began", false, 6),
        Column("reason", false, 8),
    ];
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            let began = match job.reply.get("began") {
                Some(Value::Double(at)) => relative(model, *at),
                at => {
                    at.and_then(Value::as_u64).map_or_else(|| "-".to_owned(), |at| relative(model, at as f64))
                }
            };
            let dry = if is_dry(job) && job.operation != "count" { " (dry run)" } else { "" };
            vec![
                job.id.to_string(),
                visible(&job.tube),
                format!("{}{dry}", job.operation),
                format!("{:?}", job.state).to_lowercase(),
                format!("{} of {}", count(job.scanned), count(job.total)),
                result(job),
                count(job.kept),
                said(job, "user"),
                began,
                said(job, "reason"),
            ]
        })
        .collect();
    list(model, plain(one_line(&tally, width)), (&columns, &rows), (width, height))
}

/// The user, or the token and its role.
fn author(entry: &AuditEntry) -> String {
    match (&entry.token, &entry.role) {
        (Some(token), Some(role)) => format!("token {} ({role})", visible(token)),
        (Some(token), None) => format!("token {}", visible(token)),
        (None, _) => given(&entry.user),
    }
}

pub(super) fn audit(model: &Model, view: &AuditView, width: usize, height: usize) -> Vec<Line<'static>> {
    if view.entries.is_empty() {
        return vec![plain("No entry: pauses, resumes and jobs are written here.")];
    }
    let page = format!("Page {}, the newest first", view.befores.len());
    let columns = [
        Column("when", false, 0),
        Column("user", false, 1),
        Column("operation", false, 0),
        Column("tube", false, 2),
        Column("job", true, 4),
        Column("reason", false, 3),
    ];
    let rows: Vec<Vec<String>> = view
        .entries
        .iter()
        .map(|entry| {
            vec![
                ago(model, entry.time),
                author(entry),
                visible(&entry.operation),
                given(&entry.tube),
                entry.job.map_or_else(|| "-".to_owned(), |job| job.to_string()),
                given(entry.reason.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    list(model, plain(one_line(&page, width)), (&columns, &rows), (width, height))
}

fn health(member: &GroupMember) -> &'static str {
    match (member.is_connected, member.is_active, member.awaits_snapshot) {
        (_, _, Some(true)) => "gets a snapshot",
        (false, _, _) => "not connected",
        (true, Some(false), _) => "does not answer",
        (true, ..) => "connected",
    }
}

pub(super) fn group(model: &Model, theme: Theme, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(election) = model.election() else { return vec![plain("This server belongs to no group.")] };
    let leader = match election.leader {
        0 => "no leader is known".to_owned(),
        leader => format!("node {leader} leads"),
    };
    let seen = format!(
        "{leader}, term {}, {} voters; as node {} sees it",
        election.term, election.voters, election.node
    );
    let style = if election.leader == 0 { theme.gravity(Gravity::Bad) } else { Theme::bold() };
    let columns = [
        Column("node", true, 0),
        Column("role", false, 0),
        Column("address", false, 2),
        Column("health", false, 0),
        Column("behind", true, 1),
    ];
    let rows: Vec<Vec<String>> = election
        .members
        .iter()
        .map(|member| {
            let role = if member.node == election.leader { "leader" } else { member.standing.as_str() };
            let lag = member.lag.map_or_else(|| "-".to_owned(), |lag| format!("{} entries", count(lag)));
            vec![
                member.node.to_string(),
                role.to_owned(),
                visible(&member.address),
                health(member).to_owned(),
                lag,
            ]
        })
        .collect();
    list(model, styled(one_line(&seen, width), style), (&columns, &rows), (width, height))
}
