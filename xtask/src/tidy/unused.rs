//! Dependencies that a manifest names and no code of that crate uses.
//!
//! A dependency is used where its library's name stands as a path's beginning (`name::…`, `use name;`, `use name as …`) in
//! the sources that see it: those of a build script for a build dependency, all others for the rest. Comments do not count.
//! The compiler's own lint (`unused_crate_dependencies`) looks at one target at a time, and calls each dependency unused
//! that another target of the package needs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::{Fault, Source};
use crate::top;

/// Checks each package of the workspace in `metadata`, which lists dependencies too.
///
/// # Errors
/// The metadata have another form.
pub(super) fn check(metadata: &Json, sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let libraries =
        packages.iter().filter_map(|package| Some((package["name"].as_str()?, library(package)?)));
    let libraries = libraries.collect::<BTreeMap<_, _>>();
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
        let manifest = Path::new(manifest).strip_prefix(top()).unwrap_or(Path::new(manifest));
        let folder = manifest.parent().unwrap_or(Path::new(""));
        let inside = sources.iter().filter(|source| source.path.starts_with(folder));
        let code = inside.filter(|source| source.has_extension(&["rs"])).collect::<Vec<_>>();
        let (script, rest): (Vec<_>, Vec<_>) =
            code.into_iter().partition(|source| source.path == folder.join("build.rs"));
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies {
            let Some(name) = dependency["name"].as_str() else { continue };
            let renamed = dependency["rename"].as_str().map(|name| name.replace('-', "_"));
            let library =
                renamed.or_else(|| libraries.get(name).cloned()).unwrap_or_else(|| name.replace('-', "_"));
            let seen_by = if dependency["kind"] == "build" { &script } else { &rest };
            if !seen_by.iter().any(|source| names(&source.text, &library)) {
                let what = format!("names the dependency `{name}`, which no code uses");
                faults.push(Fault::new(manifest.display().to_string(), what));
            }
        }
    }
    Ok(())
}

/// The name by which code calls the package's library.
fn library(package: &Json) -> Option<String> {
    const KINDS: [&str; 3] = ["lib", "proc-macro", "rlib"];
    let targets = package["targets"].as_array()?;
    let is_library = |target: &&Json| {
        KINDS.iter().any(|kind| target["kind"].as_array().is_some_and(|is| is.contains(&(*kind).into())))
    };
    Some(targets.iter().find(is_library)?["name"].as_str()?.replace('-', "_"))
}

/// Whether the library's name begins a path in the code.
fn names(code: &str, library: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(library).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + library.len()..]);
            let begins = !before.ends_with(|c| is_word(c) || c == '.') && !before.ends_with("::");
            let is_used = before.trim_end().ends_with("use") || before.trim_end().ends_with("extern crate");
            let goes_on = after.starts_with("::") || (is_used && !after.starts_with(is_word));
            begins && goes_on
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_library() {
        for code in [
            "use serde::Serialize;",
            "    let x = serde::de::value();",
            "#[derive(serde::Serialize)]",
            "use serde;",
            "pub use serde as format;",
            "extern crate serde;",
            "use {serde::Serialize, other};",
            "fn f() -> Result<(), serde::Error>",
        ] {
            assert!(names(code, "serde"), "{code}");
        }
        for code in [
            "// serde::Serialize",
            "    /// as serde::Serialize does",
            "use serde_json::Value;",
            "my_serde::x()",
            "crate::serde::x()",
            "let serde = 5;",
            "fn serde() {}",
            "",
        ] {
            assert!(!names(code, "serde"), "{code}");
        }
    }

    #[test]
    fn dependencies_without_code_are_faults_in_their_own_sources() {
        let package = |name: &str, library: &str| serde_json::json!({"name": name, "source": "registry", "targets": [{"name": library, "kind": ["lib"]}]});
        let ours = serde_json::json!({
            "name": "ours", "source": null, "manifest_path": top().join("crates/ours/Cargo.toml"),
            "targets": [{"name": "ours", "kind": ["lib"]}],
            "dependencies": [
                {"name": "md-5", "kind": null}, {"name": "cc", "kind": "build"}, {"name": "serde", "kind": null},
                {"name": "long-name", "rename": "short", "kind": "dev"}, {"name": "build-only", "kind": null},
            ],
        });
        let metadata =
            serde_json::json!({"packages": [ours, package("md-5", "md5"), package("serde", "serde")]});
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let sources = [
            source("crates/ours/src/lib.rs", "use md5::Md5;\n"),
            source("crates/ours/build.rs", "fn main() { cc::Build::new(); build_only::x(); }\n"),
            source("crates/ours/tests/a.rs", "use short::x;\n"),
            source("crates/other/src/lib.rs", "use serde::Serialize;\n"),
        ];
        let mut faults = Vec::new();
        check(&metadata, &sources, &mut faults).unwrap();
        let faults =
            faults.iter().map(|fault| format!("{}: {}", fault.place, fault.what)).collect::<Vec<_>>();
        assert_eq!(
            faults,
            [
                "crates/ours/Cargo.toml: names the dependency `serde`, which no code uses",
                "crates/ours/Cargo.toml: names the dependency `build-only`, which no code uses",
            ]
        );
    }
}
