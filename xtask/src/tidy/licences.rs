//! Licences and bans of `deny.toml`, checked for every crate that is built in.
//!
//! `cargo deny check` reads the same file and knows more (the text of licences, yanked crates), but it is a large program
//! to build on a new machine. `spdx`, the library that reads expressions for it, reads them here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use spdx::{Expression, ParseMode};

use super::Fault;
use crate::command::Program;
use crate::top;

const RULES: &str = "deny.toml";

/// What `deny.toml` allows and refuses.
#[derive(Debug)]
struct Rules {
    allowed: BTreeSet<String>,
    banned: BTreeSet<String>,
    /// Licences of crates whose manifests name none, as people have read them.
    clarified: BTreeMap<String, String>,
}

pub(super) fn check(faults: &mut Vec<Fault>) -> Result<()> {
    let text = fs::read_to_string(top().join(RULES)).with_context(|| format!("cannot read {RULES}"))?;
    let rules = Rules::read(&text).with_context(|| format!("{RULES} has another shape"))?;
    let metadata = Program::cargo().arguments(["metadata", "--format-version", "1", "--quiet"]).output()?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let clarified = rules.clarified.get(name).map(String::as_str);
        let licence = package["license"].as_str().or(clarified);
        if rules.banned.contains(name) {
            faults.push(Fault::new(RULES, format!("`{name}` is banned and is built in")));
        }
        match licence {
            // A crate that only names a file of its own has to be looked at by a person.
            None => faults.push(Fault::new(RULES, format!("`{name}` names no licence"))),
            Some(licence) if !is_allowed(licence, &rules.allowed) => {
                faults.push(Fault::new(RULES, format!("`{name}` is under {licence}, which is not allowed")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Rules {
    fn read(text: &str) -> Result<Self> {
        let rules: toml::Table = text.parse()?;
        let allowed = rules["licenses"]["allow"].as_array().context("no list of licences")?;
        let banned = rules["bans"]["deny"].as_array().context("no list of bans")?;
        let text = |value: &toml::Value| value.as_str().map(str::to_owned);
        let clarified = rules["licenses"].get("clarify").and_then(toml::Value::as_array);
        let clarify = |rule: &toml::Value| Some((text(rule.get("crate")?)?, text(rule.get("expression")?)?));
        Ok(Self {
            clarified: clarified.into_iter().flatten().filter_map(clarify).collect(),
            allowed: allowed.iter().filter_map(text).collect(),
            banned: banned.iter().filter_map(|ban| ban.get("crate").and_then(text)).collect(),
        })
    }
}

/// Whether an SPDX expression (or the older form with slashes) can be met with the allowed licences.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    Expression::parse_mode(expression, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(|wanted| allowed.contains(&wanted.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into()
    }

    #[test]
    fn expressions_are_met_or_not() {
        for met in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(met, &allowed()), "{met}");
        }
        for not_met in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH Something-exception",
            "(MIT",
            "MIT GPL-3.0",
            "Freeware",
            "",
        ] {
            assert!(!is_allowed(not_met, &allowed()), "{not_met}");
        }
    }

    #[test]
    fn the_repository_s_own_rules_can_be_read() {
        let text = fs::read_to_string(top().join(RULES)).expect("it is there");
        let rules = Rules::read(&text).expect("it has its shape");
        assert!(rules.allowed.contains("MIT") && rules.banned.contains("openssl-sys"));
    }
}
