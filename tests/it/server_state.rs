//! Parameters for server-side state are rejected by name, and providers get the whole history.

use crate::harness::{Bench, Provider};
use penstock_core::Dialect;
use penstock_core::task_parameters::{EMBEDDING_PARAMETERS, RERANK_PARAMETERS, TaskParameter};
use penstock_dialect::parameters::{ENGINE_PARAMETERS, ParameterEffect};
use penstock_media::speech::OFFER_DEPENDENT_PARAMETERS;
use penstock_request_validation::members::{
    COMMON_REFUSED_MEMBERS, KNOWN_MEMBERS, MemberTreatment, REFUSED_COMPLETION_MEMBERS,
    REFUSED_EMBEDDING_MEMBERS, REFUSED_IMAGE_MEMBERS, REFUSED_MESSAGES_MEMBERS, REFUSED_MODERATION_MEMBERS,
    REFUSED_RERANK_MEMBERS, REFUSED_SPEECH_MEMBERS, RefusedValues,
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Returns requests as current client libraries send them: with this `thread` member, or without it.
fn thread_request(thread: Option<Value>) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 100, "system": "Be brief.",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Rain."}]}]});
    if let Some(thread) = thread {
        body["thread"] = thread;
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_is_refused_and_the_whole_history_reaches_the_provider() {
    let provider = Provider::start().await;
    let running =
        Bench::new().model(r#"supported_parameters = ["tools"]"#).provider("a", &provider).start().await;
    for path in ["/v1/messages?beta=true", "/v1/messages/count_tokens"] {
        for thread in [json!({"type": "create"}), json!({"type": "continue", "previous_message_id": "msg_1"})]
        {
            let answer = running.client.post(path, &thread_request(Some(thread))).await;
            let error = answer.json()["error"].clone();
            assert_eq!(answer.status, 400, "{}", answer.text());
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["details"]["error_code"], "thread_unsupported_request");
            assert_eq!(error["details"]["unsupported"], json!(["thread"]));
            assert_eq!(error["details"]["code"], "INFERENCE_3202");
            assert_eq!(error["code"], "INFERENCE_3202");
        }
    }
    assert_eq!(provider.calls(), 0);
    for thread in [None, Some(Value::Null)] {
        let answer = running.client.post("/v1/messages", &thread_request(thread)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = provider.last().json();
        assert_eq!(sent.get("thread"), None);
        let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|turn| &turn["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(sent["tools"][0]["function"]["name"], "look");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_state_of_a_server_is_refused_by_name_and_reaches_no_provider() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    for (path, member, value) in [
        ("/v1/chat/completions", "previous_response_id", json!("resp_1")),
        ("/v1/chat/completions", "conversation", json!("conv_1")),
        ("/v1/chat/completions", "prompt", json!({"id": "pmpt_1"})),
        ("/v1/chat/completions", "background", json!(true)),
        ("/v1/chat/completions", "web_search_options", json!({})),
        ("/v1/messages", "container", json!("c")),
        ("/v1/messages", "compaction", json!({"type": "summarize"})),
        ("/v1/messages", "mcp_servers", json!([{"type": "url", "url": "https://a", "name": "a"}])),
        ("/v1/messages", "context_management", json!({"edits": [{"type": "compact_20260112"}]})),
    ] {
        let mut body =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
        body[member] = value;
        let answer = running.client.post(path, &body).await;
        let error = answer.json()["error"].clone();
        let param = error["param"].as_str().or(error["details"]["param"].as_str());
        assert_eq!((answer.status, error["code"].as_str()), (400, Some("INFERENCE_3202")), "{member}");
        assert!(param.is_some_and(|param| param.starts_with(member)), "{error}");
    }
    assert_eq!(provider.calls(), 0);
}

const FOREIGN_TEXT: &str = "Refused at the endpoints of chat, messages, responses and text completions, unless the table of the endpoint \
lists them. Ids for the traces of a client (`session_id`, `conversation_id`, `thread_id`, `chat_id`) are dropped: they stand \
beside the whole history, and change nothing.";

const TASK_PARAMETERS_TEXT: &str = "\n## Parameters of embeddings and rerank\n\nThese change the result: they are sent to an \
offer that lists them in `supported_parameters`, else the request is refused. On rerank `top_k` and `limit` are read as \
`top_n`, and `return_text` as `return_documents`. Transcriptions refuse `task` other than `transcribe`, `translate`, \
`to_language`, `target_language`, and fields for speakers, expected words, cuts, redaction and removal of silence.\n";

const PAGE: &str = "# Parameters\n\n\
What happens to each member of a request, and to the parameters of engines. This page is generated from the tables in \
`plugins/request-validation/src/members.rs` and `plugins/dialect/src/parameters.rs`; do not edit it. The test \
`the_page_of_parameters_is_current` fails when they differ, and writes it anew when `PENSTOCK_BLESS` is set.\n\n\
A member that stands in no table is dropped for chat, and for messages unless it belongs to the dialect, so that clients \
with a new beta go on working. For responses it is treated as a member of chat. What is refused is refused with 400, `INFERENCE_3202` and its name, and only where its \
value asks for something: `null`, `false` and empty values pass.\n";

/// Returns the description of a member's refused values, for the documentation.
fn refused_values(values: RefusedValues) -> &'static str {
    match values {
        RefusedValues::OutsideEu => "refused for a place outside of the European Union",
        RefusedValues::ContextEdits => "refused with edits other than `clear_thinking_…`",
        RefusedValues::ThirdPartyPayment => "refused unless `bill_to` is `self`",
        RefusedValues::ModeNotOff => "refused unless `mode` is `off`",
        RefusedValues::SeveralChoices => "refused unless it is 1",
        RefusedValues::ProviderConstraints => "refused if it excludes or orders providers",
        RefusedValues::GuidedMembers => "refused if it constrains the answer",
        RefusedValues::FormatNotText => "refused unless its `type` is `text`",
        RefusedValues::NestedFormat => "refused with a `format` other than text",
        RefusedValues::NotFloat => "refused unless it is `float`",
        RefusedValues::NotFloat32 => "refused unless it is `float32`",
        RefusedValues::BigEndian => "refused unless it is `native` or `little`",
        RefusedValues::NotTrue => "refused unless it is `true`",
        RefusedValues::NonTextModalities => "refused with a modality other than `text`",
        RefusedValues::RunnerOptions => "refused with `num_predict`, `stop` or `format`",
        RefusedValues::Prewarm => "refused with `prewarm`",
        RefusedValues::BackgroundWindow => "refused unless `completion_window` is `soonest`",
        RefusedValues::Present | RefusedValues::NonEmpty => "refused",
    }
}

/// Appends the table of engine parameters.
fn write_engine_parameters(page: &mut String) {
    page.push_str("\n## Parameters of engines\n");
    for (effect, text) in [
        (
            ParameterEffect::Constraint,
            "Constrain the answer: sent to an offer that lists them in `supported_parameters`, else refused",
        ),
        (ParameterEffect::Tuning, "Tune the answer: sent to an offer that lists them, else dropped"),
        (ParameterEffect::Private, "Private to a caller or an engine: dropped"),
    ] {
        let names =
            ENGINE_PARAMETERS.iter().filter(|row| row.effect == effect).map(|row| format!("`{}`", row.name));
        write!(page, "\n{text}:\n{}.\n", names.collect::<Vec<_>>().join(", ")).unwrap();
    }
    page.push_str(
        "\n`guided_json`, `structured_outputs` with `json`, and `response_format` of type `json_schema` are one ability: an \
         offer that lists one of the words is sent that one. So are `guided_regex`, `guided_choice`, `guided_grammar` and \
         the members of `structured_outputs`. `chat_template_kwargs.enable_thinking`, `enable_thinking`, `thinking`, \
         `think`, `reasoning` and `disable_reasoning` are read as `reasoning_effort` is, on messages behind the members of \
         the dialect, and so is a value of 0 of `thinking_budget`, `thinking_token_budget`, `reasoning_budget` or \
         `max_thinking_tokens`. An effort switches thinking on at an offer that has a switch and takes no effort. \
         `include_reasoning: false`, `reasoning.exclude: true` and `reasoning_format: \"hidden\"` leave the reasoning out of \
         the answers of chat.\n",
    );
}

/// Returns the page with the contents of the tables.
fn page() -> String {
    let mut page = PAGE.to_owned();
    for (dialect, title) in [
        (Dialect::Chat, "Chat completions"),
        (Dialect::Messages, "Messages"),
        (Dialect::Responses, "Responses"),
    ] {
        write!(page, "\n## {title}\n\n| Member | What happens | Why |\n|---|---|---|\n").unwrap();
        for member in KNOWN_MEMBERS.iter().filter(|member| member.dialect == dialect) {
            let happens = match member.treatment {
                MemberTreatment::Supported => "honoured",
                MemberTreatment::Harmless => "harmless: dropped, or passed to a provider that knows it",
                MemberTreatment::Engine => "see the parameters of engines",
                MemberTreatment::Refused(values) => refused_values(values),
            };
            writeln!(page, "| `{}` | {happens} | {} |", member.name, member.description).unwrap();
        }
    }
    for (rows, title, text) in [
        (REFUSED_MESSAGES_MEMBERS, "Members of other endpoints in messages", "Refused at `/v1/messages`."),
        (COMMON_REFUSED_MEMBERS, "Members of other services", FOREIGN_TEXT),
    ] {
        write!(page, "\n## {title}\n\n{text}\n\n| Member | What happens | Why |\n|---|---|---|\n").unwrap();
        for (name, values, about) in rows {
            writeln!(page, "| `{name}` | {} | {about} |", refused_values(*values)).unwrap();
        }
    }
    for (rows, title) in [
        (REFUSED_COMPLETION_MEMBERS, "Text completions"),
        (REFUSED_IMAGE_MEMBERS, "Image generations"),
        (REFUSED_SPEECH_MEMBERS, "Speech"),
        (REFUSED_EMBEDDING_MEMBERS, "Embeddings"),
        (REFUSED_RERANK_MEMBERS, "Rerank"),
        (REFUSED_MODERATION_MEMBERS, "Moderation"),
    ] {
        write!(page, "\n## {title}\n\n| Refused member | Why |\n|---|---|\n").unwrap();
        for (name, _, about) in rows {
            writeln!(page, "| `{name}` | {about} |").unwrap();
        }
    }
    let names: Vec<String> = OFFER_DEPENDENT_PARAMETERS.iter().map(|name| format!("`{name}`")).collect();
    page.push_str("\n## Parameters of speech\n\nSent to an offer that lists them in `supported_parameters`, else refused:\n");
    writeln!(page, "{}.", names.join(", ")).unwrap();
    page.push_str(TASK_PARAMETERS_TEXT);
    for (names, title) in [(EMBEDDING_PARAMETERS, "Embeddings"), (RERANK_PARAMETERS, "Rerank")] {
        let tuning =
            |parameter: &TaskParameter| if parameter.is_tuning { " (left out if unlisted)" } else { "" };
        let names: Vec<String> =
            names.iter().map(|parameter| format!("`{}`{}", parameter.name, tuning(parameter))).collect();
        write!(page, "\n{title}: {}.\n", names.join(", ")).unwrap();
    }
    write_engine_parameters(&mut page);
    page
}

#[test]
fn the_page_of_parameters_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parameters.md");
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page());
}
