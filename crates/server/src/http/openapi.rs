//! The OpenAPI 3.1 document, made of the table of routes.
//!
//! Paths, parameters, roles and answers come from the [`Table`]; the shapes of bodies stand in `schemas.json`. A test compares
//! the whole with `docs/openapi.json`, so that a change of the interface is seen in a change of that file, and refuses
//! schemas that nothing refers to or that do not exist.

use lycosa_instance::TokenRole;
use serde_json::{Map, Value as Json, json};

use super::problem::Kind;
use super::routes::{Route, Table};

const SCHEMAS: &str = include_str!("schemas.json");

/// The document about these routes.
pub(crate) fn document(table: Table) -> Json {
    let mut paths = Map::new();
    for route in table.0.iter().copied().flatten() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    let mut schemas: Json = serde_json::from_str(SCHEMAS).expect("schemas.json is JSON, as a test sees");
    schemas["Problem"]["properties"]["type"]["enum"] =
        Kind::ALL.iter().map(|kind| kind.urn()).collect::<Vec<_>>().into();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lycosa",
            "version": "1",
            "description": "A durable in-memory task queue over HTTP. See docs/http.md.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Json {
    let in_path = route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let in_path = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": shape_in_path(name) }));
    let in_query = route.query.iter().map(|(name, kind, meaning)| {
        let optional = kind.strip_suffix(REQUIRED);
        let mut parameter = json!({
            "name": name, "in": "query", "schema": shape(optional.unwrap_or(kind)), "description": meaning,
        });
        if optional.is_some() {
            parameter["required"] = true.into();
        }
        parameter
    });
    let in_head = route.headers.iter().map(|(name, meaning)| {
        json!({ "name": name, "in": "header", "schema": { "type": "string" }, "description": meaning })
    });
    let parameters: Vec<Json> = in_path.chain(in_query).chain(in_head).collect();
    let mut shown = json!({ "operationId": route.operation, "summary": route.summary });
    if !parameters.is_empty() {
        shown["parameters"] = parameters.into();
    }
    match route.role {
        Some(role) => {
            shown["description"] = format!("Needs a token with the role {}.", at_least(role)).into();
        }
        None => shown["security"] = json!([]),
    }
    if !route.bodies.is_empty() {
        let content = route.bodies.iter().map(|(media, schema)| ((*media).to_owned(), refer(schema)));
        shown["requestBody"] = json!({ "required": true, "content": content.collect::<Map<_, _>>() });
    }
    let mut answers = Map::new();
    let ok = Some((200, route.ok)).filter(|(_, schema)| !schema.is_empty());
    for (status, schema) in ok.iter().chain(route.answers) {
        let media = match *schema {
            "Problem" => "application/problem+json",
            "Metrics" => "text/plain; version=0.0.4",
            _ => "application/json",
        };
        let reason =
            axum::http::StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
        let mut answer = json!({ "description": reason.unwrap_or_default() });
        if !schema.is_empty() {
            answer["content"] = json!({ media: refer(schema) });
        }
        answers.insert(status.to_string(), answer);
    }
    if route.role.is_some() {
        let problem = json!({ "application/problem+json": refer("Problem") });
        answers.insert("default".to_owned(), json!({ "description": "Refused", "content": problem }));
    }
    shown["responses"] = answers.into();
    shown
}

/// Stands behind the type of a query's member that has to be given.
const REQUIRED: &str = ", required";

/// The shape of a query's member. No number there is negative.
fn shape(kind: &str) -> Json {
    match kind {
        "integer" | "number" => json!({ "type": kind, "minimum": 0 }),
        _ => json!({ "type": kind }),
    }
}

/// The shape of a part of a path: ids are whole numbers, names are any texts.
fn shape_in_path(name: &str) -> Json {
    match name {
        "id" | "job" | "connection" => json!({ "type": "string", "pattern": "^[0-9]{1,19}$" }),
        _ => json!({ "type": "string" }),
    }
}

fn at_least(role: TokenRole) -> String {
    match role {
        TokenRole::Administrator => role.name().to_owned(),
        _ => format!("{}, or one that may do more", role.name()),
    }
}

fn refer(schema: &str) -> Json {
    json!({ "schema": { "$ref": format!("#/components/schemas/{schema}") } })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::http::routes::table::TABLE;

    fn file() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
    }

    fn printed() -> String {
        serde_json::to_string_pretty(&document(Table(TABLE))).unwrap() + "\n"
    }

    #[test]
    fn the_document_is_the_one_in_docs() {
        let kept = std::fs::read_to_string(file()).unwrap_or_default();
        assert!(
            kept == printed(),
            "docs/openapi.json differs: `cargo test -p lycosa-server write_openapi -- --ignored` writes it"
        );
    }

    #[test]
    #[ignore = "writes docs/openapi.json"]
    fn write_openapi() {
        std::fs::write(file(), printed()).unwrap();
    }

    /// Collects the names of all schemas that a value refers to.
    fn collect(value: &Json, found: &mut BTreeSet<String>) {
        match value {
            Json::Object(members) => {
                for (name, member) in members {
                    match member.as_str().and_then(|text| text.strip_prefix("#/components/schemas/")) {
                        Some(schema) if name == "$ref" => drop(found.insert(schema.to_owned())),
                        _ => collect(member, found),
                    }
                }
            }
            Json::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_exists_and_is_used() {
        let document = document(Table(TABLE));
        let mut used = BTreeSet::new();
        collect(&document, &mut used);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let known: BTreeSet<String> = schemas.keys().cloned().collect();
        assert_eq!(used, known);
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let routes: Vec<&Route> = TABLE.iter().copied().flatten().collect();
        let names: BTreeSet<_> = routes.iter().map(|route| route.operation).collect();
        let places: BTreeSet<_> = routes.iter().map(|route| (route.path, route.method)).collect();
        assert_eq!((names.len(), places.len()), (routes.len(), routes.len()));
    }
}
