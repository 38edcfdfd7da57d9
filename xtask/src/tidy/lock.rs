//! The lock file of the instrumented fuzz targets, which are a workspace of their own.
//!
//! Cargo writes the file anew when it builds them, which `cargo xtask test` does not: a dependency that a crate got or lost since would
//! stay unnoticed until `cargo xtask endure` changes the tree. Versions are not compared: the two workspaces may differ in them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::Fault;
use crate::top;

const LOCK: &str = "fuzz/libfuzzer/Cargo.lock";

/// Compares the dependencies in the manifest of each crate of `metadata` with the names in the lock file.
///
/// # Errors
/// The lock file cannot be read; the metadata have another form.
pub(super) fn check(metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let text = std::fs::read_to_string(top().join(LOCK)).with_context(|| format!("cannot read {LOCK}"))?;
    compare(metadata, &text, faults)
}

fn compare(metadata: &Json, lock: &str, faults: &mut Vec<Fault>) -> Result<()> {
    let lock: toml::Table = lock.parse().with_context(|| format!("{LOCK} is no TOML"))?;
    let locked = lock
        .get("package")
        .and_then(toml::Value::as_array)
        .with_context(|| format!("{LOCK} has no packages"))?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let packages = packages.iter().filter_map(|package| Some((package["name"].as_str()?, package)));
    let packages = packages.collect::<BTreeMap<_, _>>();
    for package in locked.iter().filter(|package| package.get("source").is_none()) {
        let Some(name) = package.get("name").and_then(toml::Value::as_str) else { continue };
        let Some(described) = packages.get(name) else { continue };
        let known = package
            .get("dependencies")
            .and_then(toml::Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        // A name stands alone, or with its version where there are several.
        let known = known.iter().filter_map(|name| name.as_str()?.split(' ').next()).collect::<Vec<_>>();
        let wanted = described["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted = wanted.iter().filter(|wanted| wanted["kind"] != "dev");
        let names = |wanted: &Json| wanted["name"].as_str().unwrap_or_default().to_owned();
        let needed =
            wanted.clone().filter(|wanted| wanted["optional"] != true).map(names).collect::<Vec<_>>();
        let possible = wanted.map(names).collect::<Vec<_>>();
        let is_missing = needed.iter().any(|name| !known.contains(&name.as_str()));
        let is_left_over = known.iter().any(|name| !possible.iter().any(|possible| possible == name));
        if is_missing || is_left_over {
            let what = format!(
                "has other dependencies of `{name}` than its manifest: \
                 `cargo metadata --manifest-path fuzz/libfuzzer/Cargo.toml` writes the file anew"
            );
            faults.push(Fault::new(LOCK, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_came_or_went_is_a_fault() {
        let metadata = serde_json::json!({"packages": [{"name": "ours", "dependencies": [
            {"name": "always", "kind": null, "optional": false},
            {"name": "perhaps", "kind": null, "optional": true},
            {"name": "tests", "kind": "dev", "optional": false},
        ]}]});
        for (dependencies, is_right) in [
            (r#"["always"]"#, true),
            (r#"["always 1.2.3", "perhaps"]"#, true),
            (r#"["perhaps"]"#, false),
            (r#"["always", "gone"]"#, false),
        ] {
            let lock = format!("[[package]]\nname = \"ours\"\ndependencies = {dependencies}\n");
            let mut faults = Vec::new();
            compare(&metadata, &lock, &mut faults).unwrap();
            assert_eq!(faults.is_empty(), is_right, "{dependencies}: {faults:?}");
        }
    }
}
