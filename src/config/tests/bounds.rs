//! Tests of values that have the right type but are invalid.

use super::{mistakes, tells, with};

#[test]
fn a_list_that_must_not_be_empty_is_not() {
    let (why, fix) = ("must not be empty", "\"chat\", \"messages\"");
    tells(&with("", "", "dialects = []", ""), "providers.p1.dialects", why, fix);
    tells(&with("", "", "", "dialects = []"), "providers.p1.offers[0].dialects", why, fix);
}

#[test]
fn an_invalid_day_is_a_mistake() {
    let from = |day: &str| with("", &format!("price_changes = [{{ from = {day:?}, price = {{}} }}]"), "", "");
    for day in ["x", "", "2027-02-30", "2027-01-011"] {
        tells(&from(day), "models.m1.price_changes[0].from", "It is not a day.", "2027-01-01");
    }
    assert_eq!(mistakes(&from("2027-01-01")), []);
}

#[test]
fn a_preset_has_only_members_of_a_request() {
    let preset = |members: &str| with("", &format!("presets = {{ reasoning = {{ {members} }} }}"), "", "");
    let key = |name: &str| format!("models.m1.presets.reasoning.{name}");
    tells(&preset("temperature = \"hot\""), &key("temperature"), "expected a number", "a request may set");
    tells(&preset("top_p = 7"), &key("top_p"), "from 0 to 1", "a request may set");
    tells(&preset("seed = 1.5"), &key("seed"), "an integer", "");
    tells(&preset("reasoning_effort = \"most\""), &key("reasoning_effort"), "another string", "");
    assert_eq!(mistakes(&preset("temperature = \"hot\", top_p = 7")).len(), 2);
    let good = "temperature = 0.6, top_p = 0.95, top_k = 20, min_p = 0, seed = 7, repetition_penalty = 1.1, \
                reasoning_effort = \"high\", verbosity = \"low\", chat_template_kwargs = { enable_thinking = true }";
    assert_eq!(mistakes(&preset(good)), []);
}

#[test]
fn limits_admit_a_request() {
    for (key, least) in
        [("head", "1KiB"), ("target", "64B"), ("json_body", "512B"), ("response_buffer", "1KiB")]
    {
        let limit = |size: &str| with(&format!("[limits]\n{key} = {size:?}"), "", "", "");
        tells(&limit("0B"), &format!("limits.{key}"), &format!("at least {least}"), least);
        tells(&limit("1B"), &format!("limits.{key}"), &format!("at least {least}"), least);
        assert_eq!(mistakes(&limit(least)), []);
    }
}

#[test]
fn an_initial_value_above_its_maximum_is_rejected() {
    let breaker = |lines: &str| with(&format!("[routing.breaker]\n{lines}"), "", "", "");
    let key = "routing.breaker.rest";
    tells(&breaker("rest = \"2m\"\nrest_max = \"1m\""), key, "longer than `rest_max`, 1m", "lengthen");
    assert_eq!(mistakes(&breaker("rest = \"1m\"\nrest_max = \"1m\"")), []);
    let batches = with("[batches]\nretry_first = \"2s\"\nretry_most = \"1s\"", "", "", "");
    tells(&batches, "batches.retry_first", "longer than `retry_most`, 1s", "Shorten");
}

#[test]
fn an_offer_has_no_longer_window_than_its_model() {
    let offer = |length: u32| with("", "", "", &format!("context_length = {length}"));
    tells(&offer(8193), "providers.p1.offers[0].context_length", "own window, 8192", "model's block");
    assert_eq!(mistakes(&offer(8192)), []);
}

#[test]
fn a_batch_line_is_as_long_as_one_that_can_be_read() {
    let line = |size: &str| with(&format!("[batches]\nline = {size:?}"), "", "", "");
    tells(&line("1023B"), "batches.line", "at least 1KiB", "1KiB");
    tells(&line("268435457B"), "batches.line", "at most 256MiB", "256MiB");
    for size in ["1KiB", "256MiB"] {
        assert_eq!(mistakes(&line(size)), [], "{size}");
    }
}

#[test]
fn there_are_no_more_listeners_than_an_upgrade_hands_over() {
    let addresses =
        |ip: &str, count: u8| (1..=count).map(|n| format!("\"{ip}.{n}:1\"")).collect::<Vec<_>>().join(",");
    let listen = |http: u8, dashboard: u8| {
        let lines = [addresses("127.0.0", http), addresses("127.0.1", dashboard)];
        with(&format!("[listen]\nhttp = [{}]\n[console]\nlisten = [{}]", lines[0], lines[1]), "", "", "")
    };
    // The admin listener counts as one more listener.
    assert_eq!(mistakes(&listen(60, 3)), []);
    tells(&listen(61, 3), "listen.http", "has 65 listeners, and at most 64", "fewer addresses");
    tells(&listen(1, 250), "console.listen", "has 252 listeners, and at most 64", "fewer addresses");
}

#[test]
fn texts_have_at_most_the_length_of_the_schema() {
    let top = |section: &str, key: &str, value: &str| {
        let rest = if section == "invoice" && key != "seller" { "seller = \"S\"\n" } else { "" };
        with(&format!("[{section}]\n{rest}{key} = {value}"), "", "", "")
    };
    for (section, key, most) in [
        ("invoice", "seller", 200),
        ("invoice", "vat_id", 50),
        ("invoice", "number_prefix", 20),
        ("invoice", "note", 1_000),
        ("fleet", "name", 100),
        ("console.oidc", "client_id", 255),
        ("console.oidc", "name", 64),
    ] {
        let found = |length: usize| {
            // Characters count, and not bytes.
            let found = mistakes(&top(section, key, &format!("{:?}", "é".repeat(length))));
            found.into_iter().filter(|found| found.key == format!("{section}.{key}")).collect::<Vec<_>>()
        };
        let too_long = found(most + 1);
        assert!(too_long.len() == 1, "{section}.{key}: {too_long:?}");
        assert_eq!(too_long[0].reason, format!("It must have at most {most} characters."));
        let is_long = |found: &super::Diagnostic| found.reason.contains("at most");
        assert!(!found(most).iter().any(is_long), "{section}.{key}");
    }
    let line = "x".repeat(201);
    let address = top("invoice", "address", &format!("[\"a\", {line:?}]"));
    tells(&address, "invoice.address[1]", "at most 200 characters", "");
}

/// Keywords of JSON Schema that the checker enforces, and those that only describe. `oneOf` and `const` list the names
/// of enum variants.
const KEYWORDS: [&str; 22] = [
    "$schema",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "exclusiveMinimum",
    "format",
    "items",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "oneOf",
    "properties",
    "required",
    "title",
    "type",
    "$defs",
];

#[test]
fn every_keyword_of_the_schema_is_enforced() {
    fn collect(schema: &serde_json::Value, unknown: &mut Vec<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "properties" | "$defs" => {
                    value.as_object().into_iter().flatten().for_each(|(_, schema)| collect(schema, unknown));
                }
                "anyOf" | "oneOf" => {
                    value.as_array().into_iter().flatten().for_each(|schema| collect(schema, unknown));
                }
                "items" | "additionalProperties" => collect(value, unknown),
                known if KEYWORDS.contains(&known) => {}
                other => unknown.push(other.to_owned()),
            }
        }
    }
    let schema = serde_json::from_str(&super::super::schema_json()).unwrap();
    let mut unknown = Vec::new();
    collect(&schema, &mut unknown);
    assert_eq!(unknown, Vec::<String>::new());
}
