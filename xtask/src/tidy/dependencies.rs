//! Manifests: every crate inherits the workspace's lints, every crate of others has its reason in writing.
//!
//! The workspace's lints forbid unsafe code. A crate that needs it (see [`OWN_LINTS`]) states lints of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::Fault;
use crate::top;

/// Where the reasons stand, each dependency's name between backticks.
const REASONS: &str = "docs/dependencies.md";

/// Crates with lints of their own, because their unsafe code was reviewed.
const OWN_LINTS: [&str; 1] = ["lycosa-lua"];

pub(super) fn check(metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    for package in packages {
        let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
        let text = fs::read_to_string(manifest).with_context(|| format!("cannot read {manifest}"))?;
        let shown =
            Path::new(manifest).strip_prefix(top()).unwrap_or(Path::new(manifest)).display().to_string();
        let name = package["name"].as_str().unwrap_or_default();
        if !OWN_LINTS.contains(&name) && !inherits_lints(&text)? {
            faults.push(Fault::new(
                shown,
                "does not inherit the workspace's lints (`[lints] workspace = true`)",
            ));
        }
    }
    match fs::read_to_string(top().join(REASONS)) {
        Ok(reasons) => {
            for name in foreign(packages).iter().filter(|name| !reasons.contains(&format!("`{name}`"))) {
                faults.push(Fault::new(REASONS, format!("does not say why we depend on `{name}`")));
            }
        }
        Err(_) => faults.push(Fault::new(REASONS, "is missing")),
    }
    Ok(())
}

/// The names of all direct dependencies that are not ours.
fn foreign(packages: &[Json]) -> BTreeSet<String> {
    let dependencies = packages.iter().filter_map(|package| package["dependencies"].as_array()).flatten();
    let foreign = dependencies.filter(|dependency| dependency["path"].is_null());
    foreign.filter_map(|dependency| dependency["name"].as_str()).map(str::to_owned).collect()
}

fn inherits_lints(manifest: &str) -> Result<bool> {
    let manifest: toml::Table = manifest.parse().context("a manifest is TOML")?;
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    Ok(lints.and_then(toml::Value::as_bool) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_are_inherited_or_not() {
        assert!(inherits_lints("[package]\nname = \"a\"\n[lints]\nworkspace = true\n").expect("TOML"));
        assert!(!inherits_lints("[package]\nname = \"a\"\n").expect("TOML"));
        assert!(!inherits_lints("[lints.rust]\nunsafe_code = \"allow\"\n").expect("TOML"));
    }

    #[test]
    fn only_dependencies_of_others_need_a_reason() {
        let packages = serde_json::json!([{"dependencies": [
            {"name": "tokio", "path": null},
            {"name": "lycosa-tuple", "path": "/there/tuple"},
            {"name": "tokio", "path": null},
        ]}]);
        let names = foreign(packages.as_array().expect("an array"));
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["tokio"]);
    }
}
