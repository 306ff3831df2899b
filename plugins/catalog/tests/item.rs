//! Catalogue item that the client libraries of both dialects read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_catalog::{CatalogModel, CatalogPrice, ItemDetail, LifecycleStage, serialize_item};
use penstock_core::ModelKind;
use serde_json::{Value, json};

fn llama() -> CatalogModel {
    CatalogModel {
        name: "Llama \"3.1\" 8B".to_owned(),
        description: "Small.\nFast.".to_owned(),
        aliases: vec!["claude-haiku-4-5".to_owned()],
        context_length: 131_072,
        max_output: Some(16_384),
        created: 1_763_650_000,
        supported_parameters: vec!["tools".to_owned(), "stream".to_owned()],
        input_modalities: vec!["text".to_owned(), "image".to_owned()],
        price: Some(CatalogPrice {
            input: "0.05".parse().unwrap(),
            cached_input: "0.01".parse().unwrap(),
            output: "0.15".parse().unwrap(),
            ..CatalogPrice::default()
        }),
        ..CatalogModel::new("meta/llama-3.1-8b")
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn an_item_has_the_members_of_both_families_and_of_the_contract() {
    let item = json(&serialize_item(&llama(), "meta/llama-3.1-8b", ItemDetail::Plain, 0));
    let expected = json!({
        "id": "meta/llama-3.1-8b", "object": "model", "created": 1_763_650_000, "owned_by": "meta",
        "name": "Llama \"3.1\" 8B", "description": "Small.\nFast.", "context_length": 131_072,
        "pricing": {
            "input": 5e-8, "output": 1.5e-7, "cached_input": 1e-8,
            "prompt": "0.00000005", "completion": "0.00000015", "currency": "EUR",
        },
        "supported_parameters": ["tools", "stream"],
        "type": "model", "display_name": "Llama \"3.1\" 8B", "created_at": "2025-11-20T14:46:40Z",
        "lifecycle": "active", "max_input_tokens": 131_072, "max_tokens": 16_384, "kind": "chat",
        "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
        "top_provider": {"context_length": 131_072, "max_completion_tokens": 16_384},
    });
    assert_eq!(item, expected);
}

#[test]
fn prices_are_exact_decimals_in_the_bytes() {
    let price = CatalogPrice {
        input: "0.1".parse().unwrap(),
        output: "1234.567890123".parse().unwrap(),
        image: Some("0.040".parse().unwrap()),
        minute: Some("0.0036".parse().unwrap()),
        ..CatalogPrice::default()
    };
    let text = String::from_utf8(serialize_item(
        &CatalogModel { price: Some(price), ..llama() },
        "",
        ItemDetail::Plain,
        0,
    ))
    .unwrap();
    assert!(text.contains(r#""input":0.0000001,"output":0.001234567890123,"cached_input":0,"#), "{text}");
    assert!(text.contains(r#""image":0.04,"minute":0.0036,"#), "{text}");
}

#[test]
fn a_model_without_token_prices_still_has_the_two_numbers() {
    let item = json(&serialize_item(
        &CatalogModel { kind: ModelKind::Image, price: None, ..llama() },
        "",
        ItemDetail::Plain,
        0,
    ));
    assert_eq!(item["pricing"]["input"], 0);
    assert_eq!(item["pricing"]["output"], 0);
}

#[test]
fn an_alias_is_an_item_of_its_own_that_names_its_target() {
    let item = json(&serialize_item(&llama(), "claude-haiku-4-5", ItemDetail::Plain, 0));
    assert_eq!(item["id"], "claude-haiku-4-5");
    assert_eq!(item["display_name"], "claude-haiku-4-5 (Llama \"3.1\" 8B)");
    assert_eq!(item["alias_of"], "meta/llama-3.1-8b");
    assert_eq!(item["context_length"], 131_072);
    assert_eq!(
        json(&serialize_item(&llama(), "meta/llama-3.1-8b", ItemDetail::Plain, 0)).get("alias_of"),
        None
    );
}

#[test]
fn max_tokens_is_the_window_when_nothing_else_is_known() {
    let item = json(&serialize_item(&CatalogModel { max_output: None, ..llama() }, "", ItemDetail::Plain, 0));
    assert_eq!(item["max_tokens"], 131_072);
    let item = json(&serialize_item(
        &CatalogModel { max_output: Some(999_999), ..llama() },
        "",
        ItemDetail::Plain,
        0,
    ));
    assert_eq!(item["max_tokens"], 131_072, "no more than the window");
}

#[test]
fn lifecycle_is_one_of_three_values() {
    for (lifecycle, word) in [
        (LifecycleStage::Active, "active"),
        (LifecycleStage::Deprecated, "deprecated"),
        (LifecycleStage::Retired, "retired"),
    ] {
        assert_eq!(
            json(&serialize_item(&CatalogModel { lifecycle, ..llama() }, "", ItemDetail::Plain, 0))["lifecycle"],
            word
        );
    }
}

#[test]
fn created_at_is_right_on_leap_days_and_at_the_ends_of_centuries() {
    let cases = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_709_164_800, "2024-02-29T00:00:00Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (4_107_542_399, "2100-02-28T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (u64::MAX, "9999-12-31T23:59:59Z"),
    ];
    for (created, expected) in cases {
        assert_eq!(
            json(&serialize_item(&CatalogModel { created, ..llama() }, "", ItemDetail::Plain, 0))["created_at"],
            expected
        );
    }
}

#[test]
fn meta_describes_a_model_and_its_cost() {
    let model = CatalogModel {
        supported_parameters: ["tools", "response_format"].map(str::to_owned).to_vec(),
        ..llama()
    };
    let item = json(&serialize_item(&model, "claude-haiku-4-5", ItemDetail::Meta, 0));
    let expected = json!({
        "type": "chat", "display_name": "claude-haiku-4-5 (Llama \"3.1\" 8B)",
        "input_modalities": ["text", "image"], "output_modalities": ["text"],
        "capabilities": {"streaming": true, "function_calling": true, "vision": true, "structured_output": true,
            "json_schema": true, "reasoning": false, "audio_input": false},
        "context_length": 131_072, "max_output_tokens": 16_384, "reasoning_type": null,
        "pricing": {"input_cost_per_million_eur": 0.05, "output_cost_per_million_eur": 0.15,
            "cache_read_cost_per_million_eur": 0.01, "currency": "EUR"},
    });
    assert_eq!(item["_meta"], expected);
    assert_eq!(item["id"], "claude-haiku-4-5");
    let thinks =
        CatalogModel { supported_parameters: vec!["reasoning_effort".to_owned()], price: None, ..llama() };
    let meta = &json(&serialize_item(&thinks, "", ItemDetail::Meta, 0))["_meta"];
    assert_eq!(
        (&meta["reasoning_type"], &meta["capabilities"]["reasoning"]),
        (&json!("effort"), &json!(true))
    );
    assert_eq!(meta["pricing"]["input_cost_per_million_eur"], Value::Null);
    for (kind, word) in [
        (ModelKind::Chat, "chat"),
        (ModelKind::Embedding, "embeddings"),
        (ModelKind::Rerank, "rerank"),
        (ModelKind::Image, "image"),
        (ModelKind::Transcription, "audio"),
    ] {
        let meta =
            &json(&serialize_item(&CatalogModel { kind, ..llama() }, "", ItemDetail::Meta, 0))["_meta"];
        assert_eq!(
            (&meta["type"], &meta["capabilities"]["streaming"]),
            (&json!(word), &json!(kind == ModelKind::Chat))
        );
        assert_eq!(meta["max_output_tokens"].is_null(), kind != ModelKind::Chat, "{word}");
        assert_eq!(meta["capabilities"]["function_calling"], kind == ModelKind::Chat);
    }
}

#[test]
fn the_reasoning_type_follows_the_supported_parameters() {
    let meta = |kind: ModelKind, parameters: &[&str]| {
        let supported_parameters = parameters.iter().map(|name| (*name).to_owned()).collect();
        let model = CatalogModel { kind, supported_parameters, ..llama() };
        json(&serialize_item(&model, "", ItemDetail::Meta, 0))["_meta"].take()
    };
    // The table of `docs/scope.md`.
    for (parameters, expected) in [
        (&["reasoning_effort"][..], json!("effort")),
        (&["reasoning", "reasoning_effort"], json!("effort")),
        (&["thinking", "include_reasoning", "reasoning_effort"], json!("effort")),
        (&["reasoning"], json!("always")),
        (&["include_reasoning"], json!("always")),
        (&["thinking"], json!("always")),
        (&["temperature", "tools"], Value::Null),
        (&[], Value::Null),
    ] {
        let of_chat = meta(ModelKind::Chat, parameters);
        assert_eq!(of_chat["reasoning_type"], expected, "{parameters:?}");
        assert_eq!(of_chat["capabilities"]["reasoning"], !expected.is_null(), "{parameters:?}");
        let of_image = meta(ModelKind::Image, parameters);
        assert_eq!(of_image["reasoning_type"], Value::Null, "{parameters:?}");
        assert_eq!(of_image["capabilities"]["reasoning"], false, "{parameters:?}");
    }
}

#[test]
fn the_owner_is_the_one_that_is_written_or_the_first_part_of_the_id() {
    let owner =
        |model: CatalogModel| json(&serialize_item(&model, "", ItemDetail::Plain, 0))["owned_by"].clone();
    assert_eq!(owner(llama()), "meta");
    assert_eq!(owner(CatalogModel::new("plain")), "penstock");
    assert_eq!(owner(CatalogModel { owned_by: Some("Meta".to_owned()), ..llama() }), "Meta");
}

#[test]
fn meta_has_the_price_of_the_kind_s_own_unit() {
    let pricing = |kind: ModelKind, price: CatalogPrice| {
        let model = CatalogModel { kind, price: Some(price), ..llama() };
        json(&serialize_item(&model, "", ItemDetail::Meta, 0))["_meta"].take()
    };
    let tokens =
        CatalogPrice { input: 2.into(), output: 3.into(), cached_input: 1.into(), ..CatalogPrice::default() };
    let minute = CatalogPrice { minute: Some(4.into()), ..CatalogPrice::default() };
    let image = CatalogPrice { image: Some(5.into()), ..CatalogPrice::default() };
    for (kind, price, input, output, unit) in [
        (ModelKind::Chat, tokens, json!(2), json!(3), ""),
        (ModelKind::Embedding, tokens, json!(2), Value::Null, ""),
        (ModelKind::Moderation, CatalogPrice::default(), json!(0), Value::Null, ""),
        (ModelKind::Speech, minute, Value::Null, Value::Null, "cost_per_minute_eur"),
        (ModelKind::Transcription, minute, Value::Null, Value::Null, "cost_per_minute_eur"),
        (ModelKind::Image, image, Value::Null, Value::Null, "cost_per_image_eur"),
    ] {
        let meta = pricing(kind, price);
        let costs = &meta["pricing"];
        assert_eq!(costs["input_cost_per_million_eur"], input, "{kind:?}");
        assert_eq!(costs["output_cost_per_million_eur"], output, "{kind:?}");
        for name in ["cost_per_minute_eur", "cost_per_image_eur"] {
            assert_eq!(costs.get(name).is_some_and(Value::is_number), name == unit, "{kind:?}: {name}");
        }
    }
    assert_eq!(pricing(ModelKind::Speech, minute)["capabilities"]["streaming"], true);
}
