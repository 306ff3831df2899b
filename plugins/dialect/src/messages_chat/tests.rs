//! Tests of the translators with the messages dialect: golden cases, rules that golden
//! files do not cover, and the table of field translations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod energy;
mod fidelity;
mod golden;
mod names;
mod property;
mod rescue;
mod rules;

use crate::{scan, trial};
use penstock_contract::*;
use std::path::{Path, PathBuf};

/// Translators whose golden cases are run here: folder, client dialect, provider dialect.
const PAIRS: [(&str, Dialect, Dialect); 3] = [
    ("chat_messages", Dialect::Chat, Dialect::Messages),
    ("messages_chat", Dialect::Messages, Dialect::Chat),
    ("messages_messages", Dialect::Messages, Dialect::Messages),
];

fn cases(pair: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(pair);
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// Parses a request as admission does.
fn ask(dialect: Dialect, body: &[u8]) -> Ask {
    let mut ask = trial::ask(dialect, body);
    if dialect == Dialect::Messages {
        ask.needs = Needs::default();
        let text = String::from_utf8_lossy(body);
        let idle = [
            r#""text":"""#,
            r#""text":" "#,
            r#""text":"\n"#,
            r#""content":"""#,
            "x-anthropic-billing-header",
        ];
        ask.said = Said {
            later_system: text.contains(r#""role":"system""#),
            idle_text: idle.iter().any(|idle| text.contains(idle)),
            odd_ids: text.contains(r#"functions."#),
            ..Said::default()
        };
        ask.stop = scan::elements(ask.value("stop_sequences").unwrap_or_default())
            .map(|stop| scan::string(stop).unwrap().into_owned())
            .collect();
        let single =
            ask.value("tool_choice").and_then(|choice| scan::member(choice, "disable_parallel_tool_use"));
        ask.parallel_tools = single != Some(b"true");
        let thinking = |name: &str| {
            ask.value("thinking")
                .and_then(|thinking| scan::member(thinking, name))
                .and_then(scan::string)
                .unwrap_or_default()
        };
        ask.thinking = match (&*thinking("type"), &*thinking("display")) {
            ("" | "disabled", _) => Thinking::Off,
            (_, "omitted") => Thinking::Omitted,
            _ => Thinking::Shown,
        };
    }
    ask
}
