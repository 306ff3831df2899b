//! Prompts, compared with `transformers` (`testdata/families/`), and conversations that templates refuse.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;

/// 22 November 2026.
const NOW_SECONDS: i64 = 1_795_305_600;

fn cases() -> Json {
    serde_json::from_str(include_str!("../../testdata/cases.json")).unwrap()
}

fn template(source: &str) -> ChatTemplate {
    let tokens = json!({"bos_token": "<s>", "eos_token": "</s>"});
    ChatTemplate::new(source, tokens.as_object().unwrap().clone()).unwrap()
}

fn conversation(body: &Json) -> PromptConversation {
    PromptConversation::from_chat(body.to_string().as_bytes()).unwrap().with_time(NOW_SECONDS)
}

fn equal(source: &str, config: &str, expected: &str) {
    let tokens: Map<String, Json> = serde_json::from_str(config).unwrap();
    let tokens = tokens.into_iter().map(|(name, token)| {
        let text = token.get("content").cloned().unwrap_or(token);
        (name, text)
    });
    let template = ChatTemplate::new(source, tokens.collect()).unwrap();
    let expected: Json = serde_json::from_str(expected).unwrap();
    let cases = cases();
    for (name, reference) in expected["chats"].as_object().unwrap() {
        let conversation = conversation(&cases[name]);
        let turns = apply_fallback(&conversation.messages, SystemMessageFallback::None).unwrap();
        let paper = PromptBuffer::new(usize::MAX, TokenMeter::new(0, CountBudget::unlimited()));
        let rendered = template.render_messages(&turns, &conversation, None, paper);
        match (rendered, reference.get("prompt")) {
            (Ok(prompt), Some(theirs)) => assert_eq!(prompt, theirs.as_str().unwrap(), "{name}"),
            (Err(RenderError::Refused(why)), None) => {
                assert_eq!(why, reference["error"].as_str().unwrap(), "{name}")
            }
            (ours, _) => panic!("{name}: {ours:?} and {reference}"),
        }
    }
}

macro_rules! family {
    ($name:literal) => {
        equal(
            include_str!(concat!("../../testdata/families/", $name, "/chat_template.jinja")),
            include_str!(concat!("../../testdata/families/", $name, "/tokenizer_config.json")),
            include_str!(concat!("../../testdata/families/", $name, "/expected.json")),
        )
    };
}

#[test]
fn a_template_with_dates_and_indented_tools_renders_as_the_reference() {
    family!("llama3");
}

#[test]
fn a_template_with_macros_thoughts_and_images_renders_as_the_reference() {
    family!("qwen");
}

#[test]
fn a_template_with_strict_roles_renders_as_the_reference_or_raises_its_sentence() {
    family!("mistral");
}

#[test]
fn a_template_without_tools_renders_as_the_reference_or_raises_its_sentence() {
    family!("gemma");
}

const STRICT: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
    {{ raise_exception('no system here') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";

#[test]
fn a_later_system_message_becomes_a_user_message_where_the_template_rejects_it() {
    let body = &cases()["middle"];
    let prompt = template(STRICT).render(&conversation(body), None).unwrap();
    assert_eq!(
        prompt,
        "[system]Be kind.[user]What is the weather in Zürich today?[assistant]Sunny.[user]The user is in a hurry.\n\nAnd tomorrow?"
    );
}

#[test]
fn a_later_system_message_survives_a_template_that_skips_it() {
    let skipping = "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.content }}|{% endif %}{% endfor %}";
    let prompt = template(skipping).render(&conversation(&cases()["middle"]), None).unwrap();
    assert!(prompt.contains("The user is in a hurry."), "{prompt}");
}

#[test]
fn a_template_without_system_role_gets_the_text_from_the_user() {
    let none = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let prompt = template(none).render(&conversation(&cases()["system"]), None).unwrap();
    assert_eq!(prompt, "[user]You are terse.\nVery.\n\nWhat is the weather in Zürich today?");
}

#[test]
fn merged_messages_keep_every_reasoning_and_call() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}\
        [{{ m.role }}]{{ m.reasoning_content }}|{{ m.content }}|{% for c in m.tool_calls %}{{ c.id }}{% endfor %}{% endfor %}";
    let call =
        |id: &str| json!([{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let assistant = |reasoning: Json, content: Json, calls: Json| json!({"role": "assistant", "reasoning_content": reasoning, "content": content, "tool_calls": calls});
    for (first, second, expected) in [
        ((json!("T"), json!("a"), json!([])), (json!("U"), json!("b"), json!([])), "T\nU|a\n\nb|"),
        ((json!(null), json!("a"), json!([])), (json!("U"), json!("b"), json!([])), "U|a\n\nb|"),
        ((json!("T"), json!("a"), json!([])), (json!(null), json!("b"), json!([])), "T|a\n\nb|"),
        ((json!("T"), json!(null), call("1")), (json!("U"), json!(null), call("2")), "T\nU||12"),
    ] {
        let messages = json!([
            {"role": "system", "content": "S"},
            assistant(first.0, first.1, first.2),
            assistant(second.0, second.1, second.2),
        ]);
        let prompt = template(source).render(&conversation(&json!({"messages": messages})), None).unwrap();
        assert_eq!(prompt, format!("[user]|S|[assistant]{expected}"));
    }
}

#[test]
fn a_template_error_that_no_message_shape_avoids_retains_its_text() {
    let never = "{{ raise_exception('Only on Sundays!') }}";
    assert_eq!(
        template(never).render(&conversation(&cases()["system"]), None),
        Err("Only on Sundays!".to_owned())
    );
}

#[test]
fn an_error_in_a_template_shows_no_content() {
    let why = template("{{ messages[0].content | nofilter }}").render(&conversation(&cases()["hello"]), None);
    assert_eq!(why, Err("unknown filter in line 1".to_owned()));
}

#[test]
fn a_message_to_be_continued_ends_the_prompt() {
    let body = br#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well "}]}"#;
    let chat = PromptConversation::from_messages(body).unwrap();
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    assert_eq!(template(source).render(&chat, None).unwrap(), "<user>Hi<end><assistant>Well");
}

#[test]
fn templates_that_take_only_text_get_marks_for_images() {
    let prompt =
        template("{{ messages[0].content }}").render(&conversation(&cases()["images"]), Some("<image>"));
    assert_eq!(prompt.unwrap(), "<image>\n<image>\nCompare.");
}

#[test]
fn python_words_and_generation_tags_render_as_in_python() {
    let source = "{{ true }} {{ none }} {{ 1 }} {%- generation -%} x {%- endgeneration %}{{ bos_token }}";
    assert_eq!(template(source).render(&PromptConversation::default(), None).unwrap(), "True None 1x<s>");
}
