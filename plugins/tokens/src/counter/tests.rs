//! Complete counts, compared with the reference counts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::conversation::{PromptMessage, SpeakerRole};
use crate::image::ImageRule;

/// 22 November 2026.
const NOW: i64 = 1_795_305_600;

fn cases() -> Value {
    serde_json::from_str(include_str!("../../testdata/cases.json")).unwrap()
}

macro_rules! family {
    ($name:literal) => {
        Family {
            tokenizer: include_bytes!(concat!("../../testdata/families/", $name, "/tokenizer.json")),
            template: include_str!(concat!("../../testdata/families/", $name, "/chat_template.jinja")),
            config: include_bytes!(concat!("../../testdata/families/", $name, "/tokenizer_config.json")),
            expected: include_str!(concat!("../../testdata/families/", $name, "/expected.json")),
        }
    };
}

struct Family {
    tokenizer: &'static [u8],
    template: &'static str,
    config: &'static [u8],
    expected: &'static str,
}

impl Family {
    fn counter(&self) -> TokenCounter {
        TokenCounter::from_files(self.tokenizer, Some(self.template), Some(self.config)).unwrap()
    }

    /// Asserts that each case has the same count as in the reference. If the reference refuses a case, the counter
    /// may refuse it too, or count it by a fallback form.
    fn equal(&self, counter: &TokenCounter, least: usize) {
        let expected: Value = serde_json::from_str(self.expected).unwrap();
        let (cases, mut equal) = (cases(), 0);
        for (name, reference) in expected["chats"].as_object().unwrap() {
            let chat =
                PromptConversation::from_chat(cases[name].to_string().as_bytes()).unwrap().with_time(NOW);
            match (reference.get("tokens"), counter.count(&chat)) {
                (Some(tokens), Ok(count)) => {
                    assert_eq!(
                        count,
                        TokenCount { tokens: tokens.as_u64().unwrap(), method: CountMethod::Exact },
                        "{name}"
                    );
                    equal += 1;
                }
                (Some(_), Err(error)) => panic!("{name}: {error}"),
                (None, Ok(_)) => {}
                (None, Err(error)) => assert!(matches!(error, CountError::Template(_)), "{name}"),
            }
        }
        assert!(equal >= least, "{equal} cases");
    }
}

#[test]
fn llama_3_counts_are_those_of_the_reference() {
    let family = family!("llama3");
    family.equal(&family.counter(), 13);
}

#[test]
fn qwen_counts_are_those_of_the_reference_images_included() {
    let family = family!("qwen");
    let rule = ImageRule::Patches { px: 28, min: 4, max: 16_384 };
    let images = ImageTokenSettings { rule, placeholder: Some("<|image_pad|>".into()), unknown: None };
    family.equal(&family.counter().with_images(images), 15);
}

#[test]
fn mistral_counts_are_those_of_the_reference_images_included() {
    let family = family!("mistral");
    let rule = ImageRule::Rows { px: 16, longest: 1024 };
    let images = ImageTokenSettings { rule, placeholder: Some("[IMG]".into()), unknown: None };
    family.equal(&family.counter().with_images(images), 14);
}

#[test]
fn gemma_counts_are_those_of_the_reference_images_included() {
    let family = family!("gemma");
    let images = ImageTokenSettings {
        rule: ImageRule::Fixed { tokens: 256 },
        placeholder: Some("<image_soft_token>".into()),
        unknown: None,
    };
    family.equal(&family.counter().with_images(images), 11);
}

#[test]
fn both_dialects_count_the_same() {
    let chat = br#"{"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}]}"#;
    let messages = br#"{"system":"S","messages":[{"role":"user","content":"U"}]}"#;
    for counter in [TokenCounter::o200k_harmony(), family!("qwen").counter()] {
        let chat = counter.count(&PromptConversation::from_chat(chat).unwrap()).unwrap();
        assert_eq!(Ok(chat), counter.count(&PromptConversation::from_messages(messages).unwrap()));
    }
}

#[test]
fn an_inexact_count_is_an_error() {
    let image = PromptConversation::from_chat(cases()["image"].to_string().as_bytes()).unwrap();
    assert_eq!(TokenCounter::o200k_harmony().count(&image), Err(CountError::NoImageRule));
    let sound =
        br#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}}]}]}"#;
    let sound = PromptConversation::from_chat(sound).unwrap();
    assert_eq!(
        TokenCounter::o200k_harmony().count(&sound),
        Err(CountError::UncountablePart("input_audio".to_owned()))
    );
    let bare = TokenCounter::from_files(family!("qwen").tokenizer, None, None).unwrap();
    assert_eq!(bare.count(&PromptConversation::default()), Err(CountError::NoTemplate));
}

#[test]
fn the_template_may_stand_in_the_configuration() {
    let tokenizer = family!("llama3").tokenizer;
    let one = br#"{"chat_template":"{{ bos_token }}a","bos_token":{"content":"<|begin_of_text|>"}}"#;
    let named = br#"{"chat_template":[{"name":"tool_use","template":"aaaa"},{"name":"default","template":"{{ bos_token }}a"}],"bos_token":"<|begin_of_text|>"}"#;
    for config in [one.as_slice(), named] {
        let counter = TokenCounter::from_files(tokenizer, None, Some(config)).unwrap();
        assert_eq!(counter.count(&PromptConversation::default()).unwrap().tokens, 2);
    }
}

#[test]
fn files_that_do_not_parse_are_named_in_one_sentence() {
    let family = family!("llama3");
    let error = |template, config| {
        TokenCounter::from_files(family.tokenizer, template, config).unwrap_err().to_string()
    };
    assert!(error(Some("{% if %}"), None).starts_with("chat template: syntax error: "));
    assert!(error(None, Some(b"{".as_slice())).starts_with("tokenizer_config.json: does not parse ("));
    assert_eq!(
        error(None, Some(br#"{"chat_template":5}"#.as_slice())),
        "tokenizer_config.json: chat_template is neither a text nor a list with a default"
    );
    let all = [error(Some("{% if %}"), None), error(None, Some(b"{".as_slice()))];
    assert!(all.iter().all(|sentence| !sentence.contains('\n')), "{all:?}");
}

#[test]
fn a_mark_written_by_a_user_is_text() {
    let family = family!("qwen");
    let images = ImageTokenSettings {
        rule: ImageRule::Fixed { tokens: 10 },
        placeholder: Some("<|image_pad|>".into()),
        unknown: None,
    };
    let counter = family.counter().with_images(images);
    let tokens = |text: &str| {
        let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
        counter.count(&PromptConversation::from_chat(body.as_bytes()).unwrap()).unwrap().tokens
    };
    assert_eq!(tokens("<|image_pad|>"), tokens("x"));
}

#[test]
fn a_count_ends_one_beyond_its_budget_however_long_the_text_is() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let letters = |count: usize| ('a'..='z').cycle().step_by(7).take(count).collect::<String>();
    let chat = |text: String| PromptConversation {
        messages: vec![PromptMessage::from_text(SpeakerRole::User, text)],
        ..PromptConversation::default()
    };
    for counter in [TokenCounter::o200k_harmony(), family!("llama3").counter(), family!("mistral").counter()]
    {
        let long = chat(letters(400_000));
        let all = counter.count(&long).unwrap().tokens;
        let within = |most: u64| {
            counter.count_within(&long, &CountBudget { max_tokens: most, stop: &stop }).unwrap().tokens
        };
        assert_eq!((within(all), within(all - 1), within(1_000)), (all, all, 1_001));
        let text = |most: u64| {
            counter.count_text_within("one two three four", &CountBudget { max_tokens: most, stop: &stop })
        };
        let words = counter.count_text("one two three four");
        assert_eq!((text(words), text(words - 1), text(1)), (Some(words), Some(words), Some(2)));
    }
    // The text has too many bytes for the budget, so it is not even scanned.
    let endless = chat(" ".repeat(4 << 20));
    let counted = TokenCounter::o200k_harmony()
        .count_within(&endless, &CountBudget { max_tokens: 10_000, stop: &stop });
    assert_eq!(counted.map(|count| count.tokens), Ok(10_001));
}

#[test]
fn a_token_count_ends_when_its_client_disconnects() {
    let stop = std::sync::atomic::AtomicBool::new(true);
    let budget = CountBudget { max_tokens: u64::MAX, stop: &stop };
    let chat = PromptConversation {
        messages: vec![PromptMessage::from_text(SpeakerRole::User, "Hello")],
        ..PromptConversation::default()
    };
    for counter in [TokenCounter::o200k_harmony(), family!("qwen").counter(), family!("gemma").counter()] {
        assert_eq!(counter.count_within(&chat, &budget), Err(CountError::Stopped));
        assert_eq!(counter.count_text_within("Hello", &budget), None);
    }
    assert_eq!(crate::max_conversation_tokens_within(&chat, None, &budget), None);
}

#[test]
fn quadratic_templates_are_not_run_on_many_messages() {
    let conversation = |role: SpeakerRole, count: usize, bytes: usize| PromptConversation {
        messages: vec![PromptMessage::from_text(role, "x".repeat(bytes)); count],
        ..PromptConversation::default()
    };
    let counter = family!("llama3").counter();
    assert_eq!(
        counter.count(&conversation(SpeakerRole::System, 20_000, 4)),
        Err(CountError::TooLarge),
        "1.6 GB of copies"
    );
    assert!(counter.count(&conversation(SpeakerRole::System, 10, 4)).is_ok());
    assert!(counter.count(&conversation(SpeakerRole::User, 1_000, 400)).is_ok());
    let loops = "{% for m in messages %}{% for n in messages %}{{ n.role }}{% endfor %}{% endfor %}";
    let counter = TokenCounter::from_files(family!("llama3").tokenizer, Some(loops), None).unwrap();
    assert_eq!(
        counter.count(&conversation(SpeakerRole::User, 4_000, 1)),
        Err(CountError::TooLarge),
        "64 million instructions"
    );
}
