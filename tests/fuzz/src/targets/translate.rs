//! Requests in each dialect, translated for each provider: valid JSON, always the same, accepted as a request of the
//! provider's dialect, and with the same content.

use crate::spoken::Spoken;
use crate::{abilities, choice, json, target};
use bytes::Bytes;
use penstock_core::{ApiError, Dialect, InferenceRequest, RequestBodyFormat};
use penstock_dialect::write::ResponseIdentity;
use penstock_dialect::write::messages::write_empty_message;
use penstock_dialect::{conformance, translators};
use penstock_request_validation::{RequestLimits, validate_generation_request};
use serde_json::Value;
use std::collections::BTreeSet;

fn admit(dialect: Dialect, body: Bytes) -> Result<InferenceRequest, ApiError> {
    let limits = RequestLimits { max_body: 4 << 20, max_values: 1 << 16, ..RequestLimits::default() };
    validate_generation_request(dialect, body, &limits)
}

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let abilities = abilities(choice);
    for translator in translators() {
        let Ok(ask) = admit(translator.client_dialect(), Bytes::copy_from_slice(body)) else { continue };
        if ask.max_tokens == Some(0) {
            // The gateway itself answers a request with `max_tokens: 0`, without a provider.
            empty(&ask);
            continue;
        }
        let target = target(translator.provider_dialect(), &abilities);
        let Ok(sent) = translator.build_request(&ask, &target) else { continue };
        assert_eq!(
            translator.build_request(&ask, &target).map(|sent| sent.concat()).ok(),
            Some(sent.concat())
        );
        let value = json(&sent);
        assert_eq!(value["model"], "engine/model");
        assert_eq!(value["stream"] == true, ask.stream);
        says_the_same(&ask, &sent.concat(), translator.provider_dialect());
        // Clients of other dialects may send files, and several tools of the same name. Clients of the responses
        // dialect may not.
        let is_lenient = translator.provider_dialect() == Dialect::Responses
            && (ask.required.files || has_equal_names(&value["tools"]));
        if !is_lenient && let Err(refusal) = admit(translator.provider_dialect(), Bytes::from(sent.concat()))
        {
            panic!("{}: {value}", refusal.message);
        }
        if let Ok(sent) = translator.build_continuation(&ask, &target, "so \"far\"\n") {
            assert_eq!(json(&sent)["model"], "engine/model");
        }
    }
}

fn has_equal_names(tools: &Value) -> bool {
    let mut names = tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
    let mut known = BTreeSet::new();
    !names.all(|name| known.insert(name))
}

/// Asserts that a translation to another dialect has the same content. Bodies that `serde_json` cannot parse, such as
/// with half of a surrogate pair, are skipped.
fn says_the_same(ask: &InferenceRequest, sent: &[u8], provider: Dialect) {
    let read = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(asked), Some(sent)) = (read(&ask.body), read(sent)) else { return };
    // With `allowed_tools`, the translation contains only the allowed tools.
    let some = !asked["tool_choice"]["allowed_tools"].is_null();
    let form = match ask.dialect.request_body_format() {
        RequestBodyFormat::Chat => Dialect::Chat,
        RequestBodyFormat::Messages => Dialect::Messages,
    };
    if form != provider && !some {
        Spoken::read(form, &asked).assert_in(&Spoken::read(provider, &sent));
    }
}

/// Checks the answer to a request with `max_tokens: 0`, for any model name.
fn empty(ask: &InferenceRequest) {
    let message = |stream| {
        let face =
            ResponseIdentity { id: "4b8e".into(), model: ask.model.to_string(), created: 1_763_650_000 };
        write_empty_message(face, stream, br#""billing_cost":{}"#)
    };
    assert_eq!(conformance::check_messages_stream(&message(true)), Ok(()));
    let whole = json(&[Bytes::from(message(false))]);
    assert_eq!((&whole["stop_reason"], whole["model"].as_str()), (&"max_tokens".into(), Some(&*ask.model)));
}
