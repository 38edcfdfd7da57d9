//! Dependencies that a manifest names and no code uses, found by `cargo-machete`.

use anyhow::Result;

use super::Fault;
use crate::command::Program;
use crate::install;

pub(super) fn check(faults: &mut Vec<Fault>) -> Result<()> {
    let output = Program::new(install::machete()?).arguments(["--skip-target-dir"]).report()?;
    faults.extend(unused(&output).map(|(manifest, name)| {
        Fault::new(manifest, format!("names the dependency `{name}`, which no code uses"))
    }));
    Ok(())
}

/// The manifests and dependencies of a report: a line `crate -- manifest:`, then each dependency behind a tab.
fn unused(report: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut manifest = "";
    report.lines().filter_map(move |line| {
        if let Some((_, path)) = line.split_once(" -- ") {
            manifest = path.trim_end_matches(':').trim_start_matches("./");
            return None;
        }
        line.strip_prefix('\t').map(|name| (manifest, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_manifests_and_dependencies() {
        let report = "cargo-machete found the following unused dependencies in this directory:\n\
                      lycosa-sim -- ./crates/sim/Cargo.toml:\n\tanyhow\n\
                      lycosa -- ./crates/lycosa/Cargo.toml:\n\ttracing\n\tserde\n\nDone!\n";
        assert_eq!(
            unused(report).collect::<Vec<_>>(),
            [
                ("crates/sim/Cargo.toml", "anyhow"),
                ("crates/lycosa/Cargo.toml", "tracing"),
                ("crates/lycosa/Cargo.toml", "serde"),
            ]
        );
        assert_eq!(unused("cargo-machete didn't find any unused dependencies\n").count(), 0);
    }
}
