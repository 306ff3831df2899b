//! Tests of image generation requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, ImageSize, ImageTask, InferenceRequest, InferenceTask, ModelKind};
use penstock_request_validation::{RequestLimits, validate_image_generation};
use support::assert_refused;

fn ask(body: &str) -> Result<InferenceRequest, ApiError> {
    validate_image_generation(Bytes::from(body.to_owned()), &RequestLimits::default())
}

fn draw(body: &str) -> ImageTask {
    match ask(body).unwrap().task {
        InferenceTask::GenerateImages(draw) => draw,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_more_has_the_contracts_defaults() {
    let ask = ask(r#"{"model":"m:eco","prompt":"a \"cat\""}"#).unwrap();
    assert_eq!((ask.kind, &*ask.model, ask.stream, ask.prompt_bytes), (ModelKind::Image, "m:eco", false, 9));
    let expected =
        ImageTask { prompt: Bytes::from_static(br#""a \"cat\"""#), n: 1, size: None, as_base64: false };
    assert_eq!(ask.task, InferenceTask::GenerateImages(expected));
}

#[test]
fn every_field_is_read() {
    let draw = draw(r#"{"prompt":"p","model":"m","n":10,"size":"512x768","response_format":"b64_json"}"#);
    assert_eq!((draw.n, draw.size, draw.as_base64), (10, Some(ImageSize { width: 512, height: 768 }), true));
}

#[test]
fn null_and_parameters_of_other_services_change_nothing() {
    let body = r#"{"model":"m","prompt":"p","n":null,"size":"auto","response_format":null,"stream":false,
        "quality":"hd","style":"vivid","background":"auto","output_format":"png","user":"u","moderation":"low"}"#;
    assert_eq!(draw(body), draw(r#"{"model":"m","prompt":"p"}"#));
}

#[test]
fn each_invalid_field_is_named() {
    for (body, field, says) in [
        (r#"{"prompt":"p"}"#, "model", "expected the name of a model, but it is missing."),
        (r#"{"model":"m"}"#, "prompt", "expected a string, but it is missing."),
        (r#"{"model":"m","prompt":""}"#, "prompt", "expected a string that is not empty."),
        (r#"{"model":"m","prompt":["p"]}"#, "prompt", "expected a string, got an array."),
        (
            r#"{"model":"m","prompt":"p","n":0}"#,
            "n",
            "expected an integer from 1 to 10, got a number out of range.",
        ),
        (
            r#"{"model":"m","prompt":"p","n":11}"#,
            "n",
            "expected an integer from 1 to 10, got a number out of range.",
        ),
        (r#"{"model":"m","prompt":"p","n":"2"}"#, "n", "expected an integer from 1 to 10, got a string."),
        (
            r#"{"model":"m","prompt":"p","size":"large"}"#,
            "size",
            "expected width and height in pixels, such as \"1024x1024\", got another string.",
        ),
        (r#"{"model":"m","prompt":"p","size":1024}"#, "size", "expected a string, got a number."),
        (
            r#"{"model":"m","prompt":"p","response_format":"png"}"#,
            "response_format",
            "expected \"url\" or \"b64_json\", got another string.",
        ),
        (
            r#"{"model":"m","prompt":"p","output_format":"webp"}"#,
            "output_format",
            "expected \"png\", got another string.",
        ),
        (r#"{"model":"m","prompt":"p","stream":true}"#, "stream", "images are not streamed."),
        (r#"{"model":"m","prompt":"p","n":1,"n":2}"#, "n", "the key occurs more than once."),
    ] {
        assert_refused(ask(body), field, says, body);
    }
    assert_eq!(ask(r#"{"model":"m","prompt":"p","stream":true}"#).unwrap_err().code, ErrorCode::Unsupported);
    assert_eq!(ask("[]").unwrap_err().code, ErrorCode::InvalidRequest);
}

#[test]
fn steps_are_bounded_under_both_names() {
    for name in ["num_inference_steps", "steps"] {
        let steps = |value: &str| ask(&format!(r#"{{"model":"m","prompt":"p","{name}":{value}}}"#));
        for (value, read) in [("1", Some(1)), ("150", Some(150)), ("null", None)] {
            assert_eq!(steps(value).unwrap().diffusion_steps(), read, "{name} {value}");
        }
        for invalid in ["0", "151", "-1", "1.5", "4294967297", "\"9\"", "[]"] {
            assert_eq!(steps(invalid).unwrap_err().param.as_deref(), Some(name), "{name} {invalid}");
        }
    }
    let both = ask(r#"{"model":"m","prompt":"p","steps":9,"num_inference_steps":8}"#).unwrap();
    assert_eq!(both.diffusion_steps(), Some(8));
}

#[test]
fn clients_of_gpt_image_models_expect_base64() {
    let base64 = |body: serde_json::Value| {
        let ask = penstock_request_validation::validate_image_generation(
            bytes::Bytes::from(body.to_string()),
            &penstock_request_validation::RequestLimits::default(),
        );
        let penstock_core::InferenceTask::GenerateImages(draw) = ask.unwrap().task else {
            panic!("no drawing")
        };
        draw.as_base64
    };
    for (name, expected) in [
        ("gpt-image-1", true),
        ("gpt-image-1.5:eco", true),
        ("GPT-IMAGE-1", true),
        ("chatgpt-image-latest", true),
        ("openai/gpt-image-1", true),
        ("gpt-image", false),
        ("gpt-imag", false),
        ("not-gpt-image-1", false),
        ("gpt-image-1/else", false),
        ("é", false),
        ("dall-e-3", false),
    ] {
        assert_eq!(base64(serde_json::json!({"model": name, "prompt": "x"})), expected, "{name}");
        for (form, is) in [("url", false), ("b64_json", true)] {
            assert_eq!(
                base64(serde_json::json!({"model": name, "prompt": "x", "response_format": form})),
                is
            );
        }
    }
}
