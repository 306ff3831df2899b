//! Tests of constraints on the provider, at every endpoint.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{ApiError, ImageSize, InferenceRequest, InferenceTask};
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, validate_chat_request, validate_embeddings_request,
    validate_image_generation, validate_messages_request, validate_rerank_request,
};
use rust_decimal::Decimal;
use serde_json::{Value, json};

fn with(mut body: Value, members: &Value) -> bytes::Bytes {
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string().into_bytes().into()
}

/// Requests of each endpoint with the same additional members, by the name of the endpoint.
fn all(members: &Value) -> Vec<(&'static str, Result<InferenceRequest, ApiError>)> {
    let limits = RequestLimits::default();
    let talk = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]});
    vec![
        ("chat", validate_chat_request(with(talk.clone(), members), &limits)),
        (
            "messages",
            validate_messages_request(with(talk.clone(), members), &limits, MessagesPurpose::Generate),
        ),
        ("count", validate_messages_request(with(talk, members), &limits, MessagesPurpose::Count)),
        (
            "embeddings",
            validate_embeddings_request(with(json!({"model": "m", "input": "x"}), members), &limits),
        ),
        (
            "rerank",
            validate_rerank_request(
                with(json!({"model": "m", "query": "q", "documents": ["d"]}), members),
                &limits,
            ),
        ),
        ("images", validate_image_generation(with(json!({"model": "m", "prompt": "x"}), members), &limits)),
    ]
}

#[test]
fn filters_are_read_exactly() {
    for (path, ask) in all(&json!({"filters": {"countries": ["fr", "DE"], "max_carbon_intensity": 1e2}})) {
        let filters = ask.unwrap().filters.expect(path);
        assert_eq!(filters.countries, ["FR".into(), "DE".into()]);
        assert_eq!(filters.max_carbon_intensity, Some(Decimal::ONE_HUNDRED));
    }
    let limits = RequestLimits::default();
    let cost = |number: &str| {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"filters":{{"max_input_cost":{number}}}}}"#
        );
        validate_chat_request(body.into_bytes().into(), &limits)
            .map(|ask| ask.filters.unwrap().max_input_cost.unwrap())
    };
    for (number, expected) in [
        ("0.1", Decimal::new(1, 1)),
        ("0.3000000000000000000000001", Decimal::from_str_exact("0.3000000000000000000000001").unwrap()),
        ("5e-2", Decimal::new(5, 2)),
        ("0", Decimal::ZERO),
        ("1e9", Decimal::from(1_000_000_000)),
        ("1e-300", Decimal::ZERO),
    ] {
        assert_eq!(cost(number).unwrap(), expected, "{number}");
    }
    for invalid in ["-0.000001", "1.000001e9", "1e400", "\"1\"", "true", "[]", "{}"] {
        let refusal = cost(invalid).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("filters.max_input_cost"), "{invalid}");
    }
}

#[test]
fn no_constraint_is_no_filter() {
    for members in
        [json!({}), json!({"filters": null}), json!({"filters": {}}), json!({"filters": {"countries": null}})]
    {
        for (path, ask) in all(&members) {
            assert_eq!(ask.unwrap().filters, None, "{path} {members}");
        }
    }
}

#[test]
fn an_unsupported_filter_is_rejected_by_name_on_every_path() {
    let long: Vec<&str> = vec!["FR"; 257];
    for (members, param) in [
        (json!({"mode": "eco"}), "mode"),
        (json!({"custom_weights": {}}), "custom_weights"),
        (json!({"filters": {"speed": 1}}), "filters.speed"),
        (json!({"filters": {"a prompt": 1}}), "filters"),
        (json!({"filters": {"countries": ["FRA"]}}), "filters.countries[0]"),
        (json!({"filters": {"countries": ["FR", "F"]}}), "filters.countries[1]"),
        (json!({"filters": {"countries": ["ÉÉ"]}}), "filters.countries[0]"),
        (json!({"filters": {"countries": [7]}}), "filters.countries[0]"),
        (json!({"filters": {"countries": long}}), "filters.countries[256]"),
        (json!({"filters": 7}), "filters"),
    ] {
        for (path, ask) in all(&members) {
            let refusal = ask.unwrap_err();
            let dotted = param.replace('[', ".").replace(']', "");
            let expected = if matches!(path, "messages" | "count") { dotted } else { param.to_owned() };
            assert_eq!(
                (refusal.spec().status, refusal.param.as_deref()),
                (400, Some(&*expected)),
                "{path} {members}"
            );
        }
    }
}

#[test]
fn a_filter_on_what_a_kind_does_not_have_is_refused() {
    for (members, refused) in [
        (json!({"filters": {"min_speed_tps": 1}}), &["embeddings", "rerank", "images"][..]),
        (json!({"filters": {"max_input_cost": 1}}), &["images"]),
    ] {
        for (path, ask) in all(&members) {
            assert_eq!(ask.is_err(), refused.contains(&path), "{path} {members}");
        }
    }
}

#[test]
fn width_and_height_say_the_same_as_size() {
    let draw = |members: Value| {
        validate_image_generation(
            with(json!({"model": "m", "prompt": "x"}), &members),
            &RequestLimits::default(),
        )
        .map(|ask| match ask.task {
            InferenceTask::GenerateImages(draw) => draw.size,
            _ => panic!("it draws"),
        })
    };
    let size = |width, height| Some(ImageSize { width, height });
    assert_eq!(draw(json!({"width": 512, "height": 768})).unwrap(), size(512, 768));
    assert_eq!(draw(json!({"width": 512, "height": 768, "size": "512x768"})).unwrap(), size(512, 768));
    assert_eq!(draw(json!({"width": 512, "height": 768, "size": "auto"})).unwrap(), size(512, 768));
    assert_eq!(draw(json!({"width": 16_384, "height": 1})).unwrap(), size(16_384, 1));
    assert_eq!(draw(json!({"width": null, "height": null, "steps": null})).unwrap(), None);
    for (members, param) in [
        (json!({"width": 512}), "height"),
        (json!({"height": 512}), "width"),
        (json!({"width": 0, "height": 1}), "width"),
        (json!({"width": 1, "height": 16_385}), "height"),
        (json!({"width": 1.5, "height": 1}), "width"),
        (json!({"width": "512", "height": 512}), "width"),
        (json!({"width": 512, "height": 512, "size": "512x513"}), "width"),
        (json!({"steps": 0}), "steps"),
    ] {
        assert_eq!(draw(members.clone()).unwrap_err().param.as_deref(), Some(param), "{members}");
    }
}
