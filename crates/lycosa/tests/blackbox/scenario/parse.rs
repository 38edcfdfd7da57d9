//! The parser of scenarios: text to steps. The format is described in `scenarios/README.md`.
//!
//! What counts only for one side (`real:`, `ours:`, `~` lines) is decided here, so that a parsed scenario is a plain
//! list of things to do.

use regex::Regex;

use super::request::Request;
use super::want::{self, Want};
use crate::server::Peer;
use crate::value;

/// One file, as it runs against one side.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) queue: Vec<(String, serde_json::Value)>,
    pub(crate) setup: Vec<(usize, Vec<Request>)>,
    pub(crate) steps: Vec<Step>,
}

/// What the head of a file says about where it can run.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) only: Option<Peer>,
    /// The comment line `# oracle`: needs nothing of the queue module, runs against a plain Tarantool.
    pub(crate) oracle: bool,
    pub(crate) needs: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) action: Action,
}

/// How a request is named when its reply is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tag {
    /// The oldest request without a tag that is not yet awaited.
    Next,
    Name(String),
    Sync(u64),
}

/// Limits on when a reply comes: seconds, and the mark they count from (absent: the request's sending).
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    pub(crate) after: Option<(f64, Option<String>)>,
    pub(crate) within: Option<(f64, Option<String>)>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// The line of the reply.
    pub(crate) line: usize,
    pub(crate) want: Want,
    pub(crate) times: Times,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// `A>` with its reply line; `until`: for how many seconds it is repeated.
    Ask {
        connection: String,
        request: Request,
        until: Option<f64>,
        answer: Answer,
    },
    /// `A>>TAG`, `times` of them in one write.
    Send {
        connection: String,
        request: Request,
        tag: Tag,
        times: u32,
    },
    /// `A<<TAG`.
    Await {
        connection: String,
        tag: Tag,
        answer: Answer,
    },
    Rest {
        connection: String,
        want: Want,
    },
    Cork {
        connection: String,
    },
    Uncork {
        connection: String,
    },
    Bytes {
        connection: String,
        bytes: Vec<u8>,
    },
    Arrived {
        connection: String,
        tags: Vec<Tag>,
    },
    Pending {
        connection: String,
        tags: Vec<Tag>,
    },
    Close {
        connection: String,
        at_once: bool,
    },
    Closed {
        connection: String,
    },
    Greeting {
        connection: String,
        pattern: Regex,
    },
    Sleep {
        seconds: f64,
    },
    Mark {
        name: String,
    },
    Restart {
        kill: bool,
        down: f64,
    },
}

/// Reads only what decides whether the file runs at all.
pub(crate) fn reach(text: &str) -> Result<Reach, String> {
    let mut reach = Reach::default();
    for line in text.lines().map(str::trim) {
        if line == "# oracle" {
            reach.oracle = true;
        } else if let Some(rest) = line.strip_prefix("only:") {
            reach.only = Some(match word(rest).0 {
                "ours" => Peer::Lycosa,
                "real" => Peer::Tarantool,
                other => return Err(format!("only: {other}?")),
            });
        } else if let Some(rest) = line.strip_prefix("needs:") {
            reach.needs.push(word(rest).0.to_owned());
        }
    }
    Ok(reach)
}

/// Parses a whole file for one side; an error begins with the number of its line.
pub(crate) fn parse(text: &str, side: Peer) -> Result<Scenario, String> {
    let mut parser = Parser::new(side);
    for (number, line) in text.lines().enumerate() {
        parser.line = number + 1;
        parser.item(line.trim()).map_err(|reason| format!("{}: {reason}", number + 1))?;
    }
    parser.finish().map_err(|reason| format!("{}: {reason}", parser.line))?;
    Ok(parser.scenario)
}

/// An `A>` whose reply line has not come yet.
struct Open {
    line: usize,
    connection: String,
    request: Request,
    until: Option<f64>,
}

struct Parser {
    side: Peer,
    line: usize,
    scenario: Scenario,
    open: Option<Open>,
    times: Times,
    until: Option<f64>,
    repeat: Option<u32>,
    /// A `~` line counted for this connection and tag: the next reply line there is passed over.
    pass_over: Option<(String, Option<Tag>)>,
}

impl Parser {
    fn new(side: Peer) -> Self {
        Self {
            side,
            line: 0,
            scenario: Scenario { queue: Vec::new(), setup: Vec::new(), steps: Vec::new() },
            open: None,
            times: Times::default(),
            until: None,
            repeat: None,
            pass_over: None,
        }
    }

    fn item(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        for (prefix, side) in [("real:", Peer::Tarantool), ("ours:", Peer::Lycosa)] {
            if let Some(rest) = line.strip_prefix(prefix) {
                return if side == self.side { self.item(rest.trim()) } else { Ok(()) };
            }
        }
        if let Some(rest) = line.strip_prefix("setup:") {
            return self.setup(rest.trim());
        }
        if line.starts_with("only:") || line.starts_with("needs:") {
            return Ok(());
        }
        if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(line.len());
            return self.connection_item(&line[..end], &line[end..]);
        }
        self.plain_item(line)
    }

    fn finish(&self) -> Result<(), String> {
        if let Some(open) = &self.open {
            return Err(format!("the request of line {} has no reply line", open.line));
        }
        if self.times.after.is_some()
            || self.times.within.is_some()
            || self.until.is_some()
            || self.repeat.is_some()
        {
            return Err("`after`, `within`, `until` or `times` with nothing behind it".into());
        }
        Ok(())
    }

    fn setup(&mut self, rest: &str) -> Result<(), String> {
        if let Some(options) = rest.strip_prefix("queue.cfg") {
            let (options, _) = json(options)?;
            let serde_json::Value::Object(options) = options else {
                return Err("queue.cfg takes a map".into());
            };
            self.scenario.queue.extend(options);
            return Ok(());
        }
        let words = rest.split_whitespace().collect::<Vec<_>>();
        self.scenario.setup.push((self.line, Request::of_setup(&words)?));
        Ok(())
    }

    fn plain_item(&mut self, line: &str) -> Result<(), String> {
        let (keyword, rest) = word(line);
        match keyword {
            "sleep" => {
                let seconds = seconds(rest)?;
                self.push(Action::Sleep { seconds })
            }
            "mark" => {
                let name = word(rest).0.to_owned();
                self.push(Action::Mark { name })
            }
            "times" => {
                self.repeat = Some(word(rest).0.parse().map_err(|_| "times: not a number")?);
                Ok(())
            }
            "until" => {
                self.until = Some(seconds(rest)?);
                Ok(())
            }
            "after" | "within" => {
                let (number, rest) = word(rest);
                let mark = Some(word(rest).0).filter(|name| !name.is_empty() && !name.starts_with('#'));
                let limit = Some((seconds(number)?, mark.map(str::to_owned)));
                if keyword == "after" {
                    self.times.after = limit;
                } else {
                    self.times.within = limit;
                }
                Ok(())
            }
            "restart" => {
                let down = optional_seconds(rest)?;
                self.push(Action::Restart { kill: false, down })
            }
            "kill" => {
                let (flag, rest) = word(rest);
                if flag != "-9" {
                    return Err("only `kill -9` is known".into());
                }
                let down = optional_seconds(rest)?;
                self.push(Action::Restart { kill: true, down })
            }
            other => Err(format!("unknown item `{other}`")),
        }
    }

    fn connection_item(&mut self, connection: &str, rest: &str) -> Result<(), String> {
        let name = connection.to_owned();
        // Doubled signs first: `>` is the beginning of `>>`.
        if let Some(rest) = rest.strip_prefix(">>") {
            let (tag, rest) = tag(rest)?;
            let request = Request::parse(rest.trim())?;
            let times = self.repeat.take().unwrap_or(1);
            return self.push(Action::Send { connection: name, request, tag, times });
        }
        for (sign, error, real) in [("<<", false, false), ("!!", true, false), ("~~", false, true)] {
            if let Some(rest) = rest.strip_prefix(sign) {
                let (tag, rest) = tag(rest)?;
                return self.reply_line(name, Some(tag), rest, error, real);
            }
        }
        if let Some(rest) = rest.strip_prefix('>') {
            if let Some(open) = &self.open {
                return Err(format!("the request of line {} has no reply line yet", open.line));
            }
            let request = Request::parse(rest.trim())?;
            self.open = Some(Open { line: self.line, connection: name, request, until: self.until.take() });
            return Ok(());
        }
        for (sign, error, real) in [("<", false, false), ("!", true, false), ("~", false, true)] {
            if let Some(rest) = rest.strip_prefix(sign) {
                return self.reply_line(name, None, rest, error, real);
            }
        }
        let (keyword, rest) = word(rest);
        let action = match keyword {
            "rest" => Action::Rest { connection: name, want: Want::parse(rest)? },
            "cork" => Action::Cork { connection: name },
            "uncork" => Action::Uncork { connection: name },
            "bytes" => {
                let digits = rest.split('#').next().unwrap_or_default();
                Action::Bytes { connection: name, bytes: value::unhex(digits)? }
            }
            "arrived" => Action::Arrived { connection: name, tags: tags(rest)? },
            "pending" => Action::Pending { connection: name, tags: tags(rest)? },
            "close" => Action::Close { connection: name, at_once: word(rest).0 == "now" },
            "closed" => Action::Closed { connection: name },
            "greeting" => Action::Greeting { connection: name, pattern: want::regex(rest)?.0 },
            other => return Err(format!("unknown item `{connection} {other}`")),
        };
        self.push(action)
    }

    /// A reply line with sign `<`, `!` or `~`, single or double. A `~` line counts against the real thing alone, where
    /// the line that follows it is passed over.
    fn reply_line(
        &mut self,
        connection: String,
        tag: Option<Tag>,
        rest: &str,
        error: bool,
        real: bool,
    ) -> Result<(), String> {
        let place = (connection, tag);
        if real && self.side == Peer::Lycosa {
            return Ok(());
        }
        if self.pass_over.take_if(|passed| !real && *passed == place).is_some() {
            return Ok(());
        }
        let rest = rest.trim();
        let want = match rest.strip_prefix('!').filter(|_| real) {
            Some(rest) => Want::parse_error(rest.trim())?,
            None if error => Want::parse_error(rest)?,
            None => Want::parse(rest)?,
        };
        let answer = Answer { line: self.line, want, times: std::mem::take(&mut self.times) };
        if real {
            self.pass_over = Some(place.clone());
        }
        let (connection, tag) = place;
        match tag {
            Some(tag) => self.push(Action::Await { connection, tag, answer }),
            None => {
                let open = self.open.take().ok_or("a reply line without a request")?;
                if open.connection != connection {
                    return Err(format!("the request of line {} was sent on {}", open.line, open.connection));
                }
                let Open { line, connection, request, until } = open;
                self.scenario
                    .steps
                    .push(Step { line, action: Action::Ask { connection, request, until, answer } });
                Ok(())
            }
        }
    }

    fn push(&mut self, action: Action) -> Result<(), String> {
        if let Some(open) = &self.open {
            return Err(format!("the request of line {} has no reply line yet", open.line));
        }
        self.scenario.steps.push(Step { line: self.line, action });
        Ok(())
    }
}

/// The first word, and what stands behind it.
pub(crate) fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// A JSON value at the beginning of `text`, and what stands behind it.
pub(crate) fn json(text: &str) -> Result<(serde_json::Value, &str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let first =
        values.next().ok_or("JSON is missing")?.map_err(|error| format!("not JSON: {error}: {text}"))?;
    Ok((first, text[values.byte_offset()..].trim_start()))
}

/// Fails if anything but a comment stands there.
pub(crate) fn only_comment(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') { Ok(()) } else { Err(format!("not understood: {text}")) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let (number, rest) = word(text);
    only_comment(rest)?;
    number.parse().ok().filter(|s| (0.0..=600.0).contains(s)).ok_or_else(|| format!("not seconds: {text}"))
}

fn optional_seconds(text: &str) -> Result<f64, String> {
    if text.is_empty() || text.starts_with('#') { Ok(0.0) } else { seconds(text) }
}

/// A tag directly behind `>>`, `<<`, `!!` or `~~`.
fn tag(text: &str) -> Result<(Tag, &str), String> {
    let (tag, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    Ok((tag_of(tag)?, rest))
}

fn tag_of(text: &str) -> Result<Tag, String> {
    if text.is_empty() {
        return Ok(Tag::Next);
    }
    if let Some(sync) = text.strip_prefix('@') {
        return sync.parse().map(Tag::Sync).map_err(|_| format!("not a sync: {text}"));
    }
    let named =
        text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(|c| c.is_ascii_alphanumeric());
    if named { Ok(Tag::Name(text.to_owned())) } else { Err(format!("not a tag: {text}")) }
}

fn tags(text: &str) -> Result<Vec<Tag>, String> {
    text.split('#').next().unwrap_or_default().split_whitespace().map(tag_of).collect()
}
