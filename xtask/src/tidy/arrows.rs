//! Which crate may import which: the table of `ARCHITECTURE.md`, as data.

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::Fault;

/// One room of the house.
struct Room {
    name: &'static str,
    /// Our crates that it and its tests may import.
    imports: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room { name: "lycosa-tuple", imports: &[] },
    Room { name: "lycosa-iproto", imports: &["lycosa-tuple"] },
    Room { name: "lycosa-store", imports: &["lycosa-tuple"] },
    Room { name: "lycosa-journal", imports: &["lycosa-iproto", "lycosa-tuple"] },
    Room { name: "lycosa-queue", imports: &["lycosa-store", "lycosa-tuple"] },
    Room { name: "lycosa-expiration", imports: &["lycosa-store", "lycosa-tuple"] },
    Room { name: "lycosa-replication", imports: &["lycosa-iproto", "lycosa-tuple"] },
    Room {
        name: "lycosa-instance",
        imports: &[
            "lycosa-tuple",
            "lycosa-iproto",
            "lycosa-store",
            "lycosa-queue",
            "lycosa-expiration",
            "lycosa-replication",
        ],
    },
    Room {
        name: "lycosa-lua",
        imports: &["lycosa-instance", "lycosa-queue", "lycosa-store", "lycosa-tuple", "lycosa-iproto"],
    },
    Room { name: "lycosa-client", imports: &["lycosa-iproto", "lycosa-tuple"] },
    Room {
        name: "lycosa-server",
        imports: &[
            "lycosa-tuple",
            "lycosa-iproto",
            "lycosa-store",
            "lycosa-journal",
            "lycosa-queue",
            "lycosa-expiration",
            "lycosa-replication",
            "lycosa-instance",
            "lycosa-lua",
            "lycosa-client",
        ],
    },
    Room { name: "lycosa-bench", imports: &["lycosa-iproto", "lycosa-tuple"] },
    Room {
        name: "lycosa",
        imports: &[
            "lycosa-server",
            "lycosa-client",
            "lycosa-bench",
            "lycosa-journal",
            "lycosa-iproto",
            "lycosa-tuple",
        ],
    },
    Room {
        name: "lycosa-sim",
        imports: &[
            "lycosa-tuple",
            "lycosa-iproto",
            "lycosa-store",
            "lycosa-journal",
            "lycosa-queue",
            "lycosa-expiration",
            "lycosa-replication",
            "lycosa-instance",
        ],
    },
    Room {
        name: "lycosa-fuzz",
        imports: &[
            "lycosa-tuple",
            "lycosa-iproto",
            "lycosa-store",
            "lycosa-journal",
            "lycosa-queue",
            "lycosa-instance",
        ],
    },
    Room { name: "xtask", imports: &[] },
];

/// Compares the workspace with the table.
pub(super) fn check(metadata: &Json, faults: &mut Vec<Fault>) -> Result<()> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let name = |json: &Json| json["name"].as_str().unwrap_or_default().to_owned();
    let ours = packages.iter().map(name).collect::<Vec<_>>();
    for package in packages {
        let importer = name(package);
        let Some(room) = ROOMS.iter().find(|room| room.name == importer) else {
            faults.push(Fault::new(
                importer,
                "this crate is not in the table of imports (xtask/src/tidy/arrows.rs)",
            ));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies.iter().filter(|dependency| ours.contains(&name(dependency))) {
            let imported = name(dependency);
            if let Some(what) = refusal(room, &imported, dependency["kind"].as_str()) {
                faults.push(Fault::new(importer.clone(), what));
            }
        }
    }
    Ok(())
}

/// Why `room` may not import `imported`; `kind` as cargo names it, `None` for a normal dependency.
fn refusal(room: &Room, imported: &str, kind: Option<&str>) -> Option<String> {
    if room.imports.contains(&imported) {
        return None;
    }
    let where_from = if kind == Some("dev") { " in its tests" } else { "" };
    Some(format!("may not import {imported}{where_from}: the table of imports has no such arrow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(metadata: &Json) -> Vec<Fault> {
        let mut faults = Vec::new();
        check(metadata, &mut faults).expect("the metadata lists packages");
        faults
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
        ]});
        assert_eq!(faults_of(&metadata), []);
    }

    #[test]
    fn an_arrow_upwards_is_a_fault() {
        let metadata = serde_json::json!({"packages": [
            package("lycosa-tuple", &[]),
            package("lycosa-journal", &[]),
            package("lycosa-store", &[("lycosa-tuple", None), ("lycosa-journal", None)]),
        ]});
        let faults = faults_of(&metadata);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].what.contains("lycosa-journal"), "{faults:?}");
    }

    #[test]
    fn an_arrow_of_the_tests_alone_is_one_too() {
        let metadata = serde_json::json!({"packages": [
            package("lycosa-tuple", &[("lycosa-store", Some("dev"))]),
            package("lycosa-store", &[]),
        ]});
        assert!(faults_of(&metadata)[0].what.contains("in its tests"));
    }

    #[test]
    fn an_unknown_crate_is_a_fault() {
        let metadata = serde_json::json!({"packages": [package("lycosa-utils", &[])]});
        assert!(faults_of(&metadata)[0].what.contains("not in the table"));
    }

    #[test]
    fn the_table_names_only_rooms_and_has_no_cycle() {
        // Each room imports only rooms that stand before it, but for the client, which the server may use.
        let order =
            |name: &str| ROOMS.iter().position(|room| room.name == name).expect("an import names a room");
        for room in ROOMS {
            for import in room.imports {
                assert!(order(import) < order(room.name), "{} imports {import}", room.name);
            }
        }
    }
}
