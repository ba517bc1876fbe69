//! `/openapi.json`: the API as `OpenAPI` 3.1 tells it, made from the table of routes and the types of `client`.

use std::sync::OnceLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use client::problem::{MEDIA_TYPE, Problem};
use engine::limits::{IDEMPOTENCY_KEY_BYTES_MAX, NAME_CHARS_MAX};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::authentication::{IDEMPOTENCY_KEY, Need, PROJECT};
use super::route::{AnswerBody, Param, ParamKind, Route, routes};

/// A length of time: `90s`, `1h30m`.
const LENGTH: &str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$";

pub(super) async fn document() -> impl IntoResponse {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        serde_json::to_string_pretty(&describe()).expect("a document always serializes")
    });
    ([(CONTENT_TYPE, "application/json")], text.as_str())
}

/// The whole document.
pub fn describe() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route, &mut schemas);
    }
    let problems = json!({
        "description": "Something is wrong; the problem says what, and what to do.",
        "content": { MEDIA_TYPE: { "schema": problem } },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Watchbell",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Rings on time, takes turns, and lets exactly one hold the watch. docs/api.md tells more.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "responses": { "Problem": problems },
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key, wbk_…; watchbell dev needs none.",
                },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let of_path = |name| path_param(route.path, name);
    let mut parameters: Vec<Value> = path_params(route.path).map(of_path).collect();
    parameters.extend(route.params.iter().map(query_param));
    if route.need != Need::Nothing {
        parameters.push(header(
            PROJECT.as_str(),
            "An admin says by it which project the request is about.",
            &name_schema(),
        ));
    }
    if route.method == "POST" && route.need.remembers() {
        parameters.push(header(
            IDEMPOTENCY_KEY.as_str(),
            "A request that is sent again under the same key within a day is done once.",
            &json!({ "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_BYTES_MAX }),
        ));
    }
    if route.problems.contains(&412) {
        let tag =
            json!({ "type": "string", "pattern": r#"^(\*|"[0-9]+")$"#, "examples": ["\"3\""] });
        parameters.push(header("if-match", "Only if it is at this entity tag.", &tag));
        let star = json!({ "type": "string", "const": "*" });
        parameters.push(header("if-none-match", "Only if there is none of this name.", &star));
    }
    let mut responses: Map<String, Value> = Map::new();
    for (status, given) in &route.gives {
        let response = response(*given, schemas);
        match responses.get_mut(&status.to_string()).map(|known| &mut known["content"]) {
            // The same answer, in another form.
            Some(Value::Object(forms)) => {
                forms.extend(response["content"].as_object().cloned().into_iter().flatten());
            }
            _ => drop(responses.insert(status.to_string(), response)),
        }
    }
    for status in &route.problems {
        let problem = json!({ "$ref": "#/components/responses/Problem" });
        responses.entry(status.to_string()).or_insert(problem);
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [tag(route.path)],
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(shape) = route.takes {
        let schema = shape(schemas);
        operation["requestBody"] = json!({
            "required": route.is_body_needed,
            "content": { "application/json": { "schema": schema } },
        });
    }
    if route.need != Need::Nothing {
        operation["security"] = json!([{ "key": [] }, {}]);
        let scopes: Vec<_> = route.need.scopes().iter().map(|scope| scope.as_str()).collect();
        match scopes.as_slice() {
            [] => {}
            [scope] => operation["x-scope"] = json!(scope),
            _ => operation["x-scope"] = json!(scopes),
        }
    }
    operation
}

fn response(given: AnswerBody, schemas: &mut SchemaGenerator) -> Value {
    let id = json!({
        "x-request-id": {
            "description": "The request, as it stands in the server's log.",
            "schema": { "type": "string" },
        },
    });
    match given {
        AnswerBody::Json(shape) => json!({
            "description": "What was asked for.",
            "headers": id,
            "content": { "application/json": { "schema": shape(schemas) } },
        }),
        AnswerBody::Text(media_type) => {
            let schema = match media_type {
                // Any JSON; events, each of a form that the documents tell.
                "application/json" | "text/event-stream" => json!({}),
                _ => json!({ "type": "string" }),
            };
            json!({
                "description": "What was asked for.",
                "headers": id,
                "content": { media_type: { "schema": schema } },
            })
        }
        AnswerBody::Nothing => json!({ "description": "It is done.", "headers": id }),
    }
}

/// The names between braces.
fn path_params(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_param(path: &str, name: &str) -> Value {
    let id = |prefix: &str| json!({ "type": "string", "pattern": format!("^{prefix}_[0-9a-z]+$") });
    let (about, schema) = match tag(path) {
        "runs" => ("Its id.", id("run")),
        "keys" => ("Its id.", id("key")),
        "cluster" if name == "id" => {
            ("Its number.", json!({ "type": "string", "pattern": "^[0-9]{1,4}$" }))
        }
        "rings" if name == "number" => {
            ("The number of the turn.", json!({ "type": "string", "pattern": "^[0-9]{1,20}$" }))
        }
        "rings" if name == "ring" => ("The ring's name.", name_schema()),
        "triggers" => ("Its name, or its id.", name_schema()),
        _ => ("Its name.", name_schema()),
    };
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
}

/// What names of triggers and projects are made of.
fn name_schema() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_CHARS_MAX,
        "pattern": "^[A-Za-z0-9._-]+$",
    })
}

fn query_param(param: &Param) -> Value {
    let schema = match param.kind {
        ParamKind::Text => json!({ "type": "string" }),
        ParamKind::Like(pattern) => json!({ "type": "string", "pattern": pattern }),
        ParamKind::Word(words) => json!({ "type": "string", "enum": words() }),
        ParamKind::Words(words) => json!({
            "type": "array",
            "items": { "type": "string", "enum": words() },
        }),
        ParamKind::Count(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
        ParamKind::Instant => json!({ "type": "string", "format": "date-time" }),
        ParamKind::Length => json!({ "type": "string", "pattern": LENGTH, "examples": ["10s"] }),
    };
    let mut told =
        json!({ "name": param.name, "in": "query", "description": param.about, "schema": schema });
    if let ParamKind::Words(_) = param.kind {
        // One parameter, with commas.
        (told["style"], told["explode"]) = (json!("form"), json!(false));
    }
    told
}

fn header(name: &str, about: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "header", "description": about, "schema": schema })
}

fn tag(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    match parts.next() {
        Some("v1") => parts.next().unwrap_or("v1"),
        _ => "server",
    }
}

/// `postTriggersNamePause`: unique, and fit for the name of a function.
fn operation_id(route: &Route) -> String {
    let mut id = route.method.as_str().to_lowercase();
    for part in route.path.split(|char: char| !char.is_ascii_alphanumeric()) {
        if part == "v1" || part.is_empty() {
            continue;
        }
        id.push_str(&part[..1].to_uppercase());
        id.push_str(&part[1..]);
    }
    id
}
