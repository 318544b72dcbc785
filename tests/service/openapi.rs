//! The description of the REST door: committed as it is served, and true of every path.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use thermite_svc::server::openapi::document;

use crate::scripted::Served;

#[test]
fn the_committed_description_is_the_one_that_is_served() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&committed, document()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());

    let served = rig.send_bare("GET", "/openapi.json", &[], b"");

    assert_eq!((served.status, served.headers["content-type"].as_str()), (200, "application/json"));
    assert_eq!(served.text(), document());
    let text = fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        text == document(),
        "docs/openapi.json is not what the rig serves; UPDATE_DOCS=1 cargo test -p thermite-tests-service openapi::"
    );
    rig.end();
}

#[test]
fn every_path_is_there_with_just_the_methods_that_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Served::start(folder.path());

    for (path, described) in paths() {
        let nil = "00000000-0000-7000-8000-000000000000";
        let real = path
            .replace("{lane}", "1")
            .split('{')
            .map(|part| part.split_once('}').map_or_else(|| part.to_owned(), |(_, rest)| format!("{nil}{rest}")))
            .collect::<String>();
        let answer = rig.send("TRACE", &real, &[], b"");
        answer.problem(405, "method-not-allowed");
        let allowed = answer.headers["allow"].split(", ").map(str::to_owned).filter(|method| method != "HEAD");
        assert_eq!(allowed.collect::<BTreeSet<_>>(), described, "{path}");
    }
    rig.end();
}

#[test]
fn every_path_of_the_door_is_described() {
    let routes =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../thermite-svc/src/server.rs")).unwrap();
    let routed: BTreeSet<String> = routes
        .lines()
        .filter(|line| line.contains(".service("))
        .filter_map(|line| line.split('"').nth(1))
        .map(str::to_owned)
        .collect();

    let described: BTreeSet<String> = paths().into_iter().map(|(path, _)| path).collect();

    assert!(routed.len() > 10, "{routed:?}");
    let missing: Vec<_> = routed.difference(&described).collect();
    assert!(missing.is_empty(), "not in the description (thermite-svc/src/server/openapi.rs): {missing:?}");
}

#[test]
fn every_no_is_described_as_a_problem() {
    let document: Value = serde_json::from_str(&document()).unwrap();
    let mut nos = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.starts_with(['4', '5']) {
                    let shape = &response["content"]["application/problem+json"]["schema"]["$ref"];
                    assert_eq!(shape, "#/components/schemas/Problem", "{method} {path} {status}");
                    nos += 1;
                }
            }
        }
    }
    assert!(nos > 50, "{nos}");
}

#[test]
fn what_a_body_may_say_is_described_to_the_end() {
    for described in [document(), thermite_svc::control::server::openapi::document()] {
        let document: Value = serde_json::from_str(&described).unwrap();
        let mut bodies = Bodies { document: &document, seen: BTreeSet::new(), objects: 0, open: Vec::new() };

        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                bodies.walk(schema, &format!("{method} {path}"));
            }
        }

        assert!(bodies.objects > 5, "{}", bodies.objects);
        assert!(
            bodies.open.is_empty(),
            "the door refuses unknown fields, and its description does not: {:?}",
            bodies.open
        );
    }
}

/// The shapes that request bodies are made of.
struct Bodies<'a> {
    document: &'a Value,
    seen: BTreeSet<&'a str>,
    objects: usize,
    open: Vec<String>,
}

impl<'a> Bodies<'a> {
    fn walk(&mut self, schema: &'a Value, at: &str) {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            if self.seen.insert(name) {
                self.walk(&self.document["components"]["schemas"][name], name);
            }
            return;
        }
        for parts in ["oneOf", "anyOf", "allOf"] {
            schema[parts].as_array().into_iter().flatten().for_each(|part| self.walk(part, at));
        }
        self.walk_if_any(&schema["items"], at);
        if schema["type"] == "object" {
            self.objects += 1;
            if schema["additionalProperties"].is_null() {
                self.open.push(at.to_owned());
            }
            self.walk_if_any(&schema["additionalProperties"], at);
            for (field, shape) in schema["properties"].as_object().into_iter().flatten() {
                self.walk(shape, &format!("{at}.{field}"));
            }
        }
    }

    fn walk_if_any(&mut self, schema: &'a Value, at: &str) {
        if schema.is_object() {
            self.walk(schema, at);
        }
    }
}

/// The described paths with their methods.
fn paths() -> Vec<(String, BTreeSet<String>)> {
    let document: Value = serde_json::from_str(&document()).unwrap();
    let methods = |operations: &Value| operations.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
    document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, operations)| (path.clone(), methods(operations)))
        .collect()
}
