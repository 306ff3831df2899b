//! The rendering, compared with `openai-harmony` (`testdata/harmony.json`, see the README there).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use serde_json::Value;

struct Writing(String);

impl PromptSink for Writing {
    fn push_text(&mut self, text: &str) -> Result<(), CountHalt> {
        self.0.push_str(text);
        Ok(())
    }

    fn push_special_token(&mut self, token: &'static str) -> Result<(), CountHalt> {
        self.0.push_str(token);
        Ok(())
    }
}

/// 22 November 2026.
const NOW: i64 = 1_795_305_600;

fn prompt(conversation: &PromptConversation) -> String {
    let mut sink = Writing(String::new());
    render(conversation, &mut sink).unwrap();
    sink.0
}

fn tokens(conversation: &PromptConversation) -> u64 {
    count(O200kTokenizer::shared(), conversation, TokenMeter::new(0, crate::CountBudget::unlimited()))
        .unwrap()
}

#[test]
fn every_prompt_and_count_is_that_of_the_reference() {
    let cases: Value = serde_json::from_str(include_str!("../../testdata/cases.json")).unwrap();
    let expected: Value = serde_json::from_str(include_str!("../../testdata/harmony.json")).unwrap();
    assert!(expected.as_object().unwrap().len() >= 13);
    for (name, reference) in expected.as_object().unwrap() {
        let body = cases[name].to_string();
        let conversation = PromptConversation::from_chat(body.as_bytes()).unwrap().with_time(NOW);
        assert_eq!(prompt(&conversation), reference["prompt"].as_str().unwrap(), "{name}");
        let counted = tokens(&conversation);
        assert_eq!(counted, reference["tokens"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn the_date_does_not_change_the_count() {
    let conversation =
        PromptConversation::from_chat(br#"{"messages":[{"role":"user","content":"Hi"}]}"#).unwrap();
    let at = |seconds| tokens(&conversation.clone().with_time(seconds));
    assert_eq!(at(0), at(NOW));
    assert_eq!(at(951_782_400), at(NOW));
}

#[test]
fn a_message_to_be_continued_stays_open_and_adds_no_other() {
    let body = br#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well"}]}"#;
    let conversation = PromptConversation::from_messages(body).unwrap();
    assert!(prompt(&conversation).ends_with("<|start|>assistant<|channel|>final<|message|>Well"));
}
