//! Tests of requests for speech and moderation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::task_parameters::{EMBEDDING_PARAMETERS, RERANK_PARAMETERS, TaskParameter};
use penstock_core::{
    ApiError, ErrorCode, InferenceRequest, InferenceTask, ModelKind, PassthroughDelivery, PassthroughTask,
    WorkDone,
};
use penstock_request_validation::members::{
    REFUSED_EMBEDDING_MEMBERS, REFUSED_MODERATION_MEMBERS, REFUSED_RERANK_MEMBERS, REFUSED_SPEECH_MEMBERS,
    RefusedMember, RefusedValues,
};
use penstock_request_validation::{
    RequestLimits, validate_embeddings_request, validate_rerank_request, validate_speech_request,
    validate_text_input_request,
};
use rust_decimal::Decimal;
use serde_json::{Value, json};

type Validate = fn(Bytes, &RequestLimits) -> Result<InferenceRequest, ApiError>;

fn moderation(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    validate_text_input_request(body, limits, ModelKind::Moderation, None)
}

fn check(validate: Validate, body: &Value) -> Result<PassthroughTask, String> {
    match validate(Bytes::from(body.to_string()), &RequestLimits::default()) {
        Ok(InferenceRequest { task: InferenceTask::Passthrough(task), .. }) => Ok(task),
        Ok(_) => panic!("another task"),
        Err(refusal) => Err(refusal.message.into_owned()),
    }
}

#[test]
fn the_seconds_of_speech_are_bounded_by_its_text_and_speed() {
    let most = |members: Value| {
        let mut body = json!({"model": "m", "input": "x".repeat(100)});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        match check(validate_speech_request, &body).unwrap().max_work {
            WorkDone::Audio { seconds } => seconds,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(most(json!({})), Decimal::from(55));
    assert_eq!(most(json!({"speed": 0.25})), Decimal::from(205));
    assert_eq!(most(json!({"speed": 4})), Decimal::new(175, 1));
    assert_eq!(most(json!({"input": "\u{1f600}"})), Decimal::new(55, 1), "a character of four bytes is one");
}

#[test]
fn the_content_type_follows_the_format() {
    let kind = |format: Value| {
        let body = json!({"model": "m", "input": "a", "response_format": format});
        check(validate_speech_request, &body).unwrap().content_type
    };
    assert_eq!(kind(Value::Null), Some("audio/mpeg"));
    assert_eq!(kind(json!("opus")), Some("audio/ogg"));
    assert_eq!(kind(json!("pcm")), Some("audio/pcm"));
}

#[test]
fn speech_is_streamed_in_the_form_that_was_asked_for() {
    for (format, delivery) in [
        (Value::Null, PassthroughDelivery::Bytes),
        (json!("audio"), PassthroughDelivery::Bytes),
        (json!("sse"), PassthroughDelivery::Events),
    ] {
        let body = json!({"model": "m", "input": "a", "stream_format": format});
        assert_eq!(check(validate_speech_request, &body).unwrap().delivery, delivery, "{body}");
    }
}

#[test]
fn invalid_speech_is_named() {
    for (body, message) in [
        (json!({"model": "m"}), "input: "),
        (json!({"model": "m", "input": "x".repeat(100_001)}), "input: expected at most 100000 characters"),
        (json!({"model": "m", "input": "a", "speed": 0.2}), "speed: "),
        (json!({"model": "m", "input": "a", "response_format": "mid"}), "response_format: "),
        (json!({"model": "m", "input": "a", "stream_format": "mp3"}), "stream_format: "),
        (json!({"model": "m", "input": "a", "language": 5}), "language: expected a string, got a number"),
        (json!({"model": "m", "input": "a", "language": ""}), "language: "),
        (json!({"input": "a"}), "model: "),
    ] {
        let got = check(validate_speech_request, &body).unwrap_err();
        assert!(got.starts_with(message), "{got}");
    }
}

#[test]
fn moderation_takes_a_text_or_texts() {
    let texts =
        |input: Value| check(moderation, &json!({"model": "m", "input": input})).map(|task| task.texts.len());
    assert_eq!(texts(json!("a")), Ok(1));
    assert_eq!(texts(json!(["a", "b"])), Ok(2));
    assert_eq!(texts(json!([{"type": "text", "text": "a"}, "b"])), Ok(2));
    let body = Bytes::from_static(br#"{"input":[{"type":"text","text":"a"}]}"#);
    let ask = validate_text_input_request(body, &RequestLimits::default(), ModelKind::Moderation, Some("d"))
        .unwrap();
    let InferenceTask::Passthrough(task) = &ask.task else { panic!() };
    assert_eq!((&*ask.model, &task.texts[..]), ("d", &[Bytes::from_static(b"\"a\"")][..]));
    for (input, message) in [
        (json!([]), "input: expected at least one text"),
        (json!([1]), "input[0]: expected a string, got a number"),
        (json!([{"type": "image_url", "image_url": {"url": "x"}}]), "input[0].type: only parts of the type"),
        (json!([{"text": "a"}]), "input[0].type: expected \"text\", but it is missing"),
        (json!([{"type": "text", "text": 5}]), "input[0].text: expected a string, got a number"),
        (json!({}), "input: expected a string or an array of strings, got an object"),
    ] {
        let got = texts(input).unwrap_err();
        assert!(got.starts_with(message), "{got}");
    }
}

#[test]
fn no_parameter_is_both_refused_and_sent_to_offers() {
    for (parameters, refused) in
        [(EMBEDDING_PARAMETERS, REFUSED_EMBEDDING_MEMBERS), (RERANK_PARAMETERS, REFUSED_RERANK_MEMBERS)]
    {
        let is_refused =
            |parameter: &&TaskParameter| refused.iter().any(|(name, ..)| *name == parameter.name);
        assert_eq!(parameters.iter().find(is_refused), None);
    }
}

#[test]
fn members_that_change_speech_scores_and_vectors_are_refused_by_name() {
    let value = |asks: RefusedValues| match asks {
        RefusedValues::ProviderConstraints => json!({"only": ["x"]}),
        _ => json!(3),
    };
    let rows: [(Validate, Value, &[RefusedMember]); 4] = [
        (validate_speech_request, json!({"input": "a"}), REFUSED_SPEECH_MEMBERS),
        (moderation, json!({"input": "a"}), REFUSED_MODERATION_MEMBERS),
        (validate_embeddings_request, json!({"input": "a"}), REFUSED_EMBEDDING_MEMBERS),
        (validate_rerank_request, json!({"query": "a", "documents": ["b"]}), REFUSED_RERANK_MEMBERS),
    ];
    for (validate, mut body, members) in rows {
        body["model"] = json!("m");
        for (name, asks, _) in members {
            for (value, is_refused) in [(value(*asks), true), (Value::Null, false)] {
                body[*name] = value;
                let outcome = validate(Bytes::from(body.to_string()), &RequestLimits::default());
                let refused = outcome.err().map(|refusal| (refusal.code, refusal.param.unwrap_or_default()));
                match refused {
                    Some((code, param)) if is_refused => {
                        assert_eq!(code, ErrorCode::Unsupported, "{name}");
                        assert!(param.starts_with(name), "{name}: {param}");
                    }
                    other => assert!(other.is_none() && !is_refused, "{name}: {other:?}"),
                }
            }
        }
    }
}
