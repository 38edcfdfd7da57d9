//! Imports between crates: the table of `ARCHITECTURE.md` is the rule.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

use super::Fault;
use crate::top;

const TABLE: &str = "ARCHITECTURE.md";
/// How the table begins; its rows follow the line under it.
const HEAD: &str = "| crate | imports |";
/// What stands in a cell that names nothing.
const NOTHING: &str = "–";

/// The crates that each crate and its tests may import, by their names in the table.
type Arrows = BTreeMap<String, Vec<String>>;

/// Compares the workspace with the table.
pub(super) fn check(metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let text = fs::read_to_string(top().join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    compare(&arrows(&text)?, metadata, faults)
}

/// The table: rows of a name and of the names behind it.
fn arrows(text: &str) -> Result<Arrows> {
    let rows = text.lines().skip_while(|line| !line.starts_with(HEAD)).skip(2);
    let mut arrows = Arrows::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let (Some(name), Some(imports)) = (cells.next(), cells.next()) else {
            bail!("{TABLE}: the row `{row}` has no crate and no imports");
        };
        let imports = imports.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != NOTHING);
        arrows.insert(name.trim_matches('`').to_owned(), imports.map(str::to_owned).collect());
    }
    if arrows.is_empty() {
        bail!("{TABLE} has no table that begins with `{HEAD}`");
    }
    for (name, imports) in &arrows {
        if let Some(unknown) = imports.iter().find(|import| !arrows.contains_key(*import)) {
            bail!("{TABLE}: `{name}` imports `{unknown}`, which has no row of its own");
        }
    }
    Ok(arrows)
}

/// A crate's name in the table.
fn short(package: &str) -> &str {
    package.strip_prefix("lycosa-").unwrap_or(package)
}

fn compare(arrows: &Arrows, metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let name = |json: &Json| json["name"].as_str().unwrap_or_default().to_owned();
    let ours = packages.iter().map(name).collect::<Vec<_>>();
    for package in packages {
        let importer = name(package);
        let Some(imports) = arrows.get(short(&importer)) else {
            faults.push(Fault::new(importer, format!("this crate has no row in the table of {TABLE}")));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies.iter().filter(|dependency| ours.contains(&name(dependency))) {
            let imported = name(dependency);
            if !imports.iter().any(|import| import == short(&imported)) {
                let place = if dependency["kind"] == "dev" { " in its tests" } else { "" };
                let what =
                    format!("may not import {imported}{place}: the table of {TABLE} has no such arrow");
                faults.push(Fault::new(importer.clone(), what));
            }
        }
    }
    for name in arrows.keys().filter(|name| !ours.iter().any(|package| short(package) == *name)) {
        faults
            .push(Fault::new(TABLE, format!("the table has a row for `{name}`, and there is no such crate")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Words\n\n| crate | imports | must never know |\n|---|---|---|\n\
                        | `tuple` | – | everything else |\n| `store` | tuple | clocks |\n\
                        | `lycosa` | store, tuple | – |\n\n| not | of the table |\n";

    fn faults_of(metadata: &Json) -> Vec<String> {
        let mut faults = Vec::new();
        let arrows = arrows(TEXT).expect("the table has its shape");
        compare(&arrows, metadata, &mut faults).expect("the metadata lists packages");
        faults.into_iter().map(|fault| format!("{}: {}", fault.place, fault.what)).collect()
    }

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Json {
        let dependencies =
            dependencies.iter().map(|(name, kind)| serde_json::json!({"name": name, "kind": kind}));
        serde_json::json!({"name": name, "dependencies": dependencies.collect::<Vec<_>>()})
    }

    #[test]
    fn allowed_arrows_and_foreign_crates_pass() {
        let metadata = serde_json::json!({"packages": [
            package("lycosa-tuple", &[("thiserror", None)]),
            package("lycosa-store", &[("lycosa-tuple", None), ("proptest", Some("dev"))]),
            package("lycosa", &[("lycosa-store", None)]),
        ]});
        assert_eq!(faults_of(&metadata), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_a_new_crate_and_a_missing_one_are_faults() {
        let metadata = serde_json::json!({"packages": [
            package("lycosa-tuple", &[("lycosa-store", Some("dev"))]),
            package("lycosa-store", &[]),
            package("lycosa-extra", &[]),
        ]});
        assert_eq!(
            faults_of(&metadata),
            [
                "lycosa-tuple: may not import lycosa-store in its tests: the table of ARCHITECTURE.md has no \
                 such arrow",
                "lycosa-extra: this crate has no row in the table of ARCHITECTURE.md",
                "ARCHITECTURE.md: the table has a row for `lycosa`, and there is no such crate",
            ]
        );
    }

    #[test]
    fn a_table_that_is_missing_or_names_strangers_is_refused() {
        assert!(arrows("no table\n").is_err());
        let strange = TEXT.replace("store, tuple", "store, tupel");
        assert!(arrows(&strange).is_err_and(|error| error.to_string().contains("tupel")));
    }
}
