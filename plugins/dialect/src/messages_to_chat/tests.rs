//! Tests of the translators with the messages dialect: golden cases, rules that golden
//! files do not cover, and the table of field translations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod citations;
mod delivered;
mod energy;
mod fidelity;
mod golden;
mod names;
mod property;
mod rescue;
mod rules;

use crate::{json_cursor, test_support, translators};
use penstock_core::*;
use std::path::{Path, PathBuf};

/// Returns the translators whose golden cases are run here, and their folders. The translator from chat to chat and
/// the translators of responses clients have tests of their own.
fn translated_pairs() -> impl Iterator<Item = (String, &'static dyn Translator)> {
    let pairs = translators().filter(|pair| pair.client_dialect() != Dialect::Responses);
    let pairs = pairs
        .filter(|pair| (pair.client_dialect(), pair.provider_dialect()) != (Dialect::Chat, Dialect::Chat));
    pairs.map(|pair| (format!("{}_{}", pair.client_dialect().name(), pair.provider_dialect().name()), pair))
}

fn case_dirs(pair: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(pair);
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// Parses a request as validation does.
fn admitted_request(dialect: Dialect, body: &[u8]) -> InferenceRequest {
    let mut ask = test_support::sample_request(dialect, body);
    if dialect == Dialect::Messages {
        ask.required = RequiredCapabilities::default();
        let text = String::from_utf8_lossy(body);
        let idle = [
            r#""text":"""#,
            r#""text":" "#,
            r#""text":"\n"#,
            r#""content":"""#,
            "x-anthropic-billing-header",
        ];
        ask.history = HistoryFeatures {
            late_system_messages: text.contains(r#""role":"system""#),
            removable_text: idle.iter().any(|idle| text.contains(idle)),
            nonstandard_ids: text.contains(r#"functions."#),
            ..HistoryFeatures::default()
        };
        ask.stop = json_cursor::elements(ask.member_value("stop_sequences").unwrap_or_default())
            .map(|stop| json_cursor::parse_string(stop).unwrap().into_owned())
            .collect();
        let single = ask
            .member_value("tool_choice")
            .and_then(|choice| json_cursor::member_value(choice, "disable_parallel_tool_use"));
        ask.parallel_tools = single != Some(b"true");
        let thinking = |name: &str| {
            ask.member_value("thinking")
                .and_then(|thinking| json_cursor::member_value(thinking, name))
                .and_then(json_cursor::parse_string)
                .unwrap_or_default()
        };
        ask.thinking = match (&*thinking("type"), &*thinking("display")) {
            ("" | "disabled", _) => ThinkingDisplay::Off,
            (_, "omitted") => ThinkingDisplay::Omitted,
            _ => ThinkingDisplay::Shown,
        };
    }
    ask
}
