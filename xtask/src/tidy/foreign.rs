//! Crates of others: their licences, their sources, and crates that are banned, by the rules in `deny.toml`.
//!
//! The file has the form that `cargo deny` reads, and this checks the part of it that says something about this workspace:
//! allowed licences, banned crates, requirements of any version, registries. `cargo metadata` lists every crate of every
//! platform and feature, with the licence that its manifest states. Absent: a look at the texts of licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

use super::Fault;
use crate::top;

const RULES: &str = "deny.toml";
/// What `cargo metadata` calls the public registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The rules of `deny.toml`.
struct Rules {
    allowed: BTreeSet<String>,
    /// Licences of crates whose manifests state none, by the crate's name.
    clarified: BTreeMap<String, String>,
    /// Reasons by the banned crate's name.
    banned: BTreeMap<String, String>,
}

/// Compares all crates of `metadata` (with dependencies and all features) with the rules.
///
/// # Errors
/// The rules cannot be read, or a licence is no expression.
pub(super) fn check(metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let text = fs::read_to_string(top().join(RULES)).with_context(|| format!("cannot read {RULES}"))?;
    let rules = rules(&text).with_context(|| RULES.to_owned())?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    compare(&rules, packages, faults)
}

fn rules(text: &str) -> Result<Rules> {
    let rules: toml::Table = text.parse()?;
    let array = |table: &str, key: &str| {
        let found = rules.get(table).and_then(|table| table.get(key));
        let found = found.and_then(toml::Value::as_array).map(Vec::as_slice);
        found.with_context(|| format!("[{table}] has no array `{key}`"))
    };
    let text = |value: &toml::Value, key: &str| {
        let text = value.get(key).and_then(toml::Value::as_str);
        text.map(str::to_owned).with_context(|| format!("`{value}` has no `{key}`"))
    };
    let pairs = |values: &[toml::Value], key: &str| {
        values.iter().map(|value| Ok((text(value, "crate")?, text(value, key)?))).collect::<Result<_>>()
    };
    let allowed = array("licenses", "allow")?.iter().filter_map(toml::Value::as_str);
    Ok(Rules {
        allowed: allowed.map(str::to_owned).collect(),
        clarified: pairs(array("licenses", "clarify")?, "expression")?,
        banned: pairs(array("bans", "deny")?, "reason")?,
    })
}

fn compare(rules: &Rules, packages: &[Json], faults: &mut Vec<Fault>) -> Result<()> {
    let mut used = BTreeSet::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has a name")?;
        if let Some(reason) = rules.banned.get(name) {
            faults.push(Fault::new(RULES, format!("`{name}` is banned: {reason}")));
        }
        let Some(source) = package["source"].as_str() else {
            wildcards(name, package, faults);
            continue;
        };
        if source != REGISTRY {
            faults.push(Fault::new(name, format!("comes from {source}, not from the public registry")));
        }
        let clarified = rules.clarified.get_key_value(name);
        used.extend(clarified.map(|(name, _)| name.as_str()));
        let license = clarified.map(|(_, license)| license.as_str()).or(package["license"].as_str());
        match license {
            None => faults.push(Fault::new(name, format!("states no licence, and {RULES} clarifies none"))),
            Some(license) => {
                let is_allowed = |license: &str| rules.allowed.contains(license);
                let holds = Expression::new(license, &is_allowed).value();
                if !holds.with_context(|| format!("the licence `{license}` of {name}"))? {
                    let what = format!("has the licence `{license}`, which {RULES} does not allow");
                    faults.push(Fault::new(name, what));
                }
            }
        }
    }
    for name in rules.clarified.keys().filter(|name| !used.contains(name.as_str())) {
        faults.push(Fault::new(RULES, format!("clarifies the licence of `{name}`, which is no dependency")));
    }
    Ok(())
}

/// Requirements of any version, in a manifest of ours. Our own crates are named by their paths.
fn wildcards(name: &str, package: &Json, faults: &mut Vec<Fault>) {
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let any = |dependency: &&Json| dependency["req"] == "*" && dependency["path"].is_null();
    for dependency in dependencies.iter().filter(any) {
        let what = format!("takes any version of {}: name one", dependency["name"]);
        faults.push(Fault::new(name, what));
    }
}

/// Crates of which several versions are built in, with the versions.
pub(super) fn several_versions(metadata: &Json) -> BTreeMap<String, BTreeSet<String>> {
    let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
    for package in metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default() {
        if let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str()) {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

/// An expression of licences (SPDX): names, `WITH` an exception, `AND` before `OR`, parentheses. `/` is an old `OR`.
struct Expression<'a> {
    words: Vec<String>,
    at: usize,
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Expression<'a> {
    fn new(text: &str, is_allowed: &'a dyn Fn(&str) -> bool) -> Self {
        let spaced = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        Self { words: spaced.split_whitespace().map(str::to_owned).collect(), at: 0, is_allowed }
    }

    /// Whether the allowed licences satisfy the whole expression.
    fn value(mut self) -> Result<bool> {
        let value = self.any()?;
        match self.words.get(self.at) {
            None => Ok(value),
            Some(word) => bail!("`{word}` does not belong there"),
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let takes = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(takes);
        takes
    }

    fn any(&mut self) -> Result<bool> {
        let mut value = self.all()?;
        while self.takes("OR") {
            value |= self.all()?;
        }
        Ok(value)
    }

    fn all(&mut self) -> Result<bool> {
        let mut value = self.one()?;
        while self.takes("AND") {
            value &= self.one()?;
        }
        Ok(value)
    }

    fn one(&mut self) -> Result<bool> {
        if self.takes("(") {
            let value = self.any()?;
            return if self.takes(")") { Ok(value) } else { bail!("a parenthesis is not closed") };
        }
        let mut license = self.name()?;
        if self.takes("WITH") {
            license = format!("{license} WITH {}", self.name()?);
        }
        Ok((self.is_allowed)(&license))
    }

    fn name(&mut self) -> Result<String> {
        let name =
            self.words.get(self.at).filter(|word| !matches!(word.as_str(), "OR" | "AND" | "WITH" | ")"));
        self.at += 1;
        name.cloned().context("a licence is missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
        clarify = [{ crate = "nameless", expression = "MIT", license-files = [] }]
        [bans]
        deny = [{ crate = "openssl-sys", reason = "TLS is rustls" }]
    "#;

    fn faults_of(packages: &[Json]) -> Vec<String> {
        let nameless = serde_json::json!({"name": "nameless", "source": REGISTRY, "license": null});
        let packages = packages.iter().cloned().chain([nameless]).collect::<Vec<_>>();
        let mut faults = Vec::new();
        compare(&rules(TEXT).unwrap(), &packages, &mut faults).unwrap();
        faults.into_iter().map(|fault| format!("{}: {}", fault.place, fault.what)).collect()
    }

    fn package(name: &str, license: Option<&str>) -> Json {
        serde_json::json!({"name": name, "source": REGISTRY, "license": license})
    }

    #[test]
    fn expressions_have_a_value() {
        let value = |text: &str| {
            let is_allowed =
                |license: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&license);
            Expression::new(text, &is_allowed).value()
        };
        for text in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "MIT AND ISC",
            "(GPL-3.0 OR MIT) AND ISC",
            "GPL-3.0 AND X OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(value(text).unwrap(), "{text}");
        }
        for text in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR X)", "Apache-2.0", "MIT WITH X"] {
            assert!(!value(text).unwrap(), "{text}");
        }
        for text in ["", "MIT OR", "MIT MIT", "(MIT", "MIT)", "MIT WITH"] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn allowed_crates_pass() {
        let ours = serde_json::json!({"name": "lycosa", "source": null, "dependencies": [
            {"name": "lycosa-tuple", "req": "*", "path": "/there"}, {"name": "tokio", "req": "^1", "path": null},
        ]});
        assert_eq!(faults_of(&[package("a", Some("MIT OR GPL-3.0")), ours]), Vec::<String>::new());
    }

    #[test]
    fn each_rule_has_its_fault() {
        let ours = serde_json::json!({"name": "lycosa", "source": null, "dependencies": [
            {"name": "tokio", "req": "*", "path": null},
        ]});
        let git = serde_json::json!({"name": "c", "source": "git+https://example.com/c", "license": "MIT"});
        let faults = faults_of(&[
            package("a", Some("GPL-3.0")),
            package("b", None),
            git,
            package("openssl-sys", Some("MIT")),
            ours,
        ]);
        assert_eq!(
            faults,
            [
                "a: has the licence `GPL-3.0`, which deny.toml does not allow",
                "b: states no licence, and deny.toml clarifies none",
                "c: comes from git+https://example.com/c, not from the public registry",
                "deny.toml: `openssl-sys` is banned: TLS is rustls",
                "lycosa: takes any version of \"tokio\": name one",
            ]
        );
    }

    #[test]
    fn a_clarification_of_nothing_is_a_fault() {
        let mut faults = Vec::new();
        compare(&rules(TEXT).unwrap(), &[], &mut faults).unwrap();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].what.contains("`nameless`"));
    }

    #[test]
    fn several_versions_are_listed() {
        let package = |name: &str, version: &str| serde_json::json!({"name": name, "version": version});
        let metadata = serde_json::json!({"packages": [package("a", "1.0.0"), package("b", "1.0.0"), package("a", "2.1.0")]});
        let several = several_versions(&metadata);
        assert_eq!(several.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(several["a"].iter().collect::<Vec<_>>(), ["1.0.0", "2.1.0"]);
    }
}
