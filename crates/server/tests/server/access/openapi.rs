//! The document tells of every route, and nothing in it leads nowhere.

use engine::limits;
use serde_json::Value;

#[test]
fn every_route_is_in_the_document_with_its_scope() {
    let document = server::api::describe();
    assert_eq!(document["openapi"], "3.1.0");
    let mut count = 0;
    for (method, path, scope) in server::api::table() {
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
        assert!(operation["responses"].as_object().is_some_and(|all| !all.is_empty()), "{path}");
        let told = operation["x-scope"].as_str();
        assert_eq!(told, scope.filter(|scope| *scope != "any"), "{method} {path}");
        count += 1;
    }
    let operations = document["paths"].as_object().unwrap().values();
    let told: usize = operations.map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(told, count);
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
    let document = server::api::describe();
    let mut names = Vec::new();
    walk(&document, &mut |value| {
        if let Some(place) = value["$ref"].as_str() {
            let place = place.strip_prefix('#').expect("within the document");
            assert!(document.pointer(place).is_some(), "{place}");
        }
        names.extend(value["operationId"].as_str().map(str::to_owned));
    });
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_eq!(count, server::api::table().len());
}

#[test]
fn the_limits_in_the_document_are_the_limits() {
    let document = server::api::describe();
    let number = |count: usize| u64::try_from(count).unwrap();
    let millis = |length: std::time::Duration| u64::try_from(length.as_millis()).unwrap();
    for (schema, field, rule, limit) in [
        ("TriggerSpec", "name", "maxLength", number(limits::NAME_CHARS_MAX)),
        ("TriggerSpec", "catch_up_cap", "maximum", limits::CATCH_UP_CAP_MAX),
        ("TriggerSpec", "pause_after", "maximum", limits::PAUSE_AFTER_MAX),
        ("TriggerSpec", "labels", "maxProperties", number(limits::LABELS_MAX)),
        ("ScheduleSpec", "at", "maxItems", number(limits::AT_MAX)),
        ("ScheduleSpec", "exclude", "maxItems", number(limits::EXCLUDED_DATES_MAX)),
        ("ScheduleSpec", "quiet", "maxItems", number(limits::QUIET_WINDOWS_MAX)),
        ("WebhookSpec", "url", "maxLength", number(limits::WEBHOOK_URL_BYTES_MAX)),
        ("WebhookSpec", "body", "maxLength", number(limits::WEBHOOK_BODY_BYTES_MAX)),
        ("RetrySpec", "attempts", "maximum", limits::RETRY_ATTEMPTS_MAX),
        ("PauseRequest", "note", "maxLength", number(limits::NOTE_CHARS_MAX)),
        ("BackfillRequest", "request", "maxLength", number(limits::NAME_CHARS_MAX)),
        ("NewProjectSpec", "name", "maxLength", number(limits::NAME_CHARS_MAX)),
        ("KeySpec", "name", "maxLength", number(limits::KEY_NAME_CHARS_MAX)),
        ("CampaignRequest", "candidate", "maxLength", number(limits::NODE_ID_BYTES_MAX)),
        ("CampaignRequest", "ttl_ms", "maximum", millis(limits::GUEST_TTL_MAX)),
        ("CampaignRequest", "ttl_ms", "minimum", millis(limits::LEASE_TTL_MIN)),
        ("CampaignRequest", "wait_ms", "maximum", millis(limits::CAMPAIGN_WAIT_MAX)),
        ("StoreScan", "limit", "maximum", number(limits::PAGE_ENTRIES_MAX)),
    ] {
        let told = &document["components"]["schemas"][schema]["properties"][field];
        assert_eq!(told[rule], limit, "{schema}.{field}: {told}");
    }
    for schema in
        ["TriggerSpec", "ScheduleSpec", "WebhookSpec", "RetrySpec", "KeySpec", "CampaignRequest"]
    {
        let told = &document["components"]["schemas"][schema];
        assert_eq!(told["additionalProperties"], false, "{schema}");
    }
}

fn walk(value: &Value, look: &mut impl FnMut(&Value)) {
    look(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|value| walk(value, look)),
        Value::Array(items) => items.iter().for_each(|value| walk(value, look)),
        _ => {}
    }
}
