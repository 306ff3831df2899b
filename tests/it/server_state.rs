//! Parameters for server-side state are rejected by name, and providers get the complete history.

use crate::harness::{Bench, Provider};
use penstock_core::Dialect;
use penstock_core::task_parameters::{EMBEDDING_PARAMETERS, RERANK_PARAMETERS, TaskParameter};
use penstock_dialect::parameters::{ENGINE_PARAMETERS, ParameterEffect};
use penstock_media::speech::OFFER_DEPENDENT_PARAMETERS;
use penstock_request_validation::members::{
    COMMON_REFUSED_MEMBERS, KNOWN_MEMBERS, KnownMember, MemberTreatment, NESTED_MESSAGES_MEMBERS,
    NestedMember, NestedTreatment, REFUSED_COMPLETION_MEMBERS, REFUSED_EMBEDDING_MEMBERS,
    REFUSED_IMAGE_MEMBERS, REFUSED_MESSAGES_MEMBERS, REFUSED_MODERATION_MEMBERS, REFUSED_RERANK_MEMBERS,
    REFUSED_SPEECH_MEMBERS, RefusedMember, RefusedValues,
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

const PAGE: &str = "# Parameters

This page lists the treatment of each top-level parameter of a request. It is generated from the tables in
`plugins/request-validation/src/members` and `plugins/dialect/src/parameters.rs`, and from the texts in
`tests/it/server_state.rs`; do not edit it. The test `the_page_of_parameters_is_current` compares the page with these
sources. If `PENSTOCK_BLESS` is set, the test rewrites the page.

An *offer* is one model at one provider. Its `supported_parameters` are those of the configuration.

| Treatment | Meaning |
|---|---|
| supported | sent to the provider, translated to the provider's dialect, or enforced by the gateway |
| accepted, no effect on the output | does not change the output of the model. The gateway does not forward the parameter, except where the description states otherwise |
| refused | refused with status 400, code `INFERENCE_3202` and the name of the parameter, for every value except `null` |
| refused unless empty | refused in the same way for every value except `null`, `false`, `\"\"`, `[]` and `{}` |
| refused if …, refused unless … | refused in the same way for the values that the condition describes; `null` is always accepted |

The tables of chat completions, messages and responses contain all parameters of current client libraries. The tables
of the other endpoints contain only refused parameters; the supported parameters are listed in
[completions.md](completions.md), [media.md](media.md) and [vectors.md](vectors.md). A parameter that is in none of
these documents is ignored and not forwarded, so that clients with new features continue to work. On responses, a
parameter that is not in the table of responses is treated as on chat completions.

The gateway itself defines these parameters:

- `filters` select the providers ([routing.md](routing.md#filters)). Only transcriptions refuse them.
- `mode` and `custom_weights` are refused at all endpoints.
- `preset` on chat completions (`reasoning` or `non_reasoning`) applies the sampling parameters that the operator
  configured for the model.
";

const FOREIGN_TEXT: &str = "\
Refused on chat completions, messages, responses and text completions, unless the table of the endpoint lists the
parameter.

The following ids are accepted and not forwarded. `session_id` identifies the session for routing on chat completions,
messages and responses ([routing.md](routing.md#affinity-of-conversations)). `conversation_id`, `thread_id` and
`chat_id` have no effect, because each request contains the complete history.";

const COMPLETIONS_TEXT: &str =
    "The parameters in [Parameters of other services](#parameters-of-other-services) are also refused.";

const TRANSCRIPTIONS_TEXT: &str = "
## Transcriptions

Fields of the form. Empty fields are accepted. Fields that are not in this table and not in
[media.md](media.md#transcription) are ignored.

| Field | Treatment | Description |
|---|---|---|
| `filters`, `mode`, `custom_weights` | refused | providers cannot be selected at this endpoint |
| `provider` | refused unless off | providers cannot be selected at this endpoint |
| `include` | refused | log probabilities are not available |
| `response_format` | refused if the value is `diarized_json` | speakers are not distinguished |
| `stream` | refused if the value is `true` or `1` | transcripts are not streamed |
| `task` | refused unless the value is `transcribe` | translation is not supported |
| `translate`, `to_language`, `target_language` | refused unless off | translation is not supported |
| `diarize`, `diarization`, `diarization_config`, `enable_diarization`, `known_speaker_names`, `known_speaker_references`, `max_speakers`, `min_speakers`, `num_speakers`, `speaker_labels`, `speakers_expected` | refused unless off | speakers are not distinguished |
| `custom_vocabulary`, `hotwords`, `keyterms`, `keywords`, `word_boost` | refused unless off | write the expected words in `prompt` |
| `word_timestamps` | refused unless off | use `timestamp_granularities[]` with the value `word` instead |
| `clip_timestamps`, `audio_end_at`, `audio_start_from` | refused unless off | the complete audio is transcribed; cut the audio before the request |
| `filter_profanity`, `profanity_filter`, `redact`, `redact_pii` | refused unless off | the transcript is not filtered |
| `vad_filter` | refused unless off | silence is not removed |

*Off* is one of `false`, `0`, `no`, `none`, `off`, `[]` and `{}`. The keys of nested values and lists do not
count as part of a name: `filters[countries][]` is treated as `filters`.
";

const TASK_PARAMETERS_TEXT: &str = "
## Parameters of embeddings and rerank

These parameters change the result. The gateway sends them only to offers that list them in `supported_parameters`. If
no offer of the model lists a parameter, the request is refused, unless the value has no effect. On rerank, `top_k` and
`limit` are other names of `top_n`, and `return_text` is another name of `return_documents`.
";

/// Rows of parameters that the endpoint refuses although no table lists them: name, treatment and description.
type OtherRows = &'static [[&'static str; 3]];

const OTHER_IMAGE_ROWS: OtherRows = &[
    [
        "background",
        "refused unless the value is `auto` or `opaque`, with code `INFERENCE_3201`",
        "images are opaque",
    ],
    [
        "output_format",
        "refused unless the value is `png`, with code `INFERENCE_3201`",
        "images are PNG files",
    ],
    ["stream", "refused if the value is `true`", "images are not streamed"],
];

const OTHER_RERANK_ROWS: OtherRows =
    &[["rank_fields", "refused unless all items are `text`", "documents are ranked by `text` only"]];

/// Returns the description of a member's refused values, for the documentation.
fn refused_values(values: RefusedValues) -> &'static str {
    match values {
        RefusedValues::Present => "refused",
        RefusedValues::NonEmpty => "refused unless empty",
        RefusedValues::OutsideEu => {
            "refused unless the value names the European Union as a whole (`eu`, `europe`) or no region (`global`, `auto`)"
        }
        RefusedValues::ContextEdits => "refused if `edits` contains an edit other than `clear_thinking_*`",
        RefusedValues::ThirdPartyPayment => "refused if `bill_to` is set to a value other than `self`",
        RefusedValues::ModeNotOff => "refused unless empty or `mode` is `off`",
        RefusedValues::ForcedTool => "refused unless empty, `auto` or `none`",
        RefusedValues::SeveralChoices => "refused unless the value is 1",
        RefusedValues::ProviderConstraints => {
            "refused if it has `only`, `order`, `ignore`, `quantizations`, `max_price` or `zdr`"
        }
        RefusedValues::GuidedMembers => {
            "refused if it has `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`, `ignore_eos` or \
             `max_thinking_tokens`"
        }
        RefusedValues::FormatNotText => "refused unless empty or `type` is `text`",
        RefusedValues::NestedFormat => "refused if it has a `format` whose `type` is not `text`",
        RefusedValues::NotFloat => "refused unless empty or `float`",
        RefusedValues::NotFloat32 => "refused unless empty, `float32` or `float`",
        RefusedValues::BigEndian => "refused unless empty, `native` or `little`",
        RefusedValues::NotTrue => "refused unless the value is `true`",
        RefusedValues::NonTextModalities => "refused if it contains a modality other than `text`",
        RefusedValues::RunnerOptions => {
            "refused if it has `stop`, `format`, or a `num_predict` of at least 0"
        }
        RefusedValues::Prewarm => "refused if `prewarm` is `true`",
        RefusedValues::BackgroundWindow => {
            "refused if it has a member other than `\"completion_window\": \"soonest\"`"
        }
    }
}

/// Appends the table of engine parameters.
fn write_engine_parameters(page: &mut String) {
    page.push_str(
        "\n## Engine parameters\n\n\
         Parameters of inference engines such as vLLM, SGLang and llama.cpp, on chat completions, messages, responses \
         and text\ncompletions. On text completions, `best_of` and `echo` do not need to be listed by an offer.\n",
    );
    for (effect, text) in [
        (
            ParameterEffect::Constraint,
            "**Constraints.** They restrict or change the output. The gateway sends them to offers that list them in\n\
             `supported_parameters`. If no offer lists a parameter, the request is refused, unless the value has no \
             effect, such as\n`false` or an empty list",
        ),
        (
            ParameterEffect::Tuning,
            "**Tuning.** They adjust sampling or reasoning. The gateway sends them to offers that list them in\n\
             `supported_parameters`, and drops them for other offers",
        ),
        (
            ParameterEffect::Private,
            "**Internal parameters** of clients and engines, for example of the engine's cache or scheduler. The \
             gateway never sends\nthem to providers",
        ),
    ] {
        let names =
            ENGINE_PARAMETERS.iter().filter(|row| row.effect == effect).map(|row| format!("`{}`", row.name));
        write!(page, "\n{text}:\n\n{}.\n", names.collect::<Vec<_>>().join(", ")).unwrap();
    }
    page.push_str(STRUCTURED_OUTPUT_AND_REASONING);
}

const STRUCTURED_OUTPUT_AND_REASONING: &str = "
### Structured output

On chat completions and responses, `guided_json`, the member `json` of `structured_outputs`, and `response_format` of
the type `json_schema` have the same effect. The gateway sends the schema with the name that the offer lists. The same
applies to `guided_regex`, `guided_choice` and `guided_grammar`, and to the members `regex`, `choice` and `grammar` of
`structured_outputs`. On messages and text completions, an offer must list the name that the client used.

A request states one constraint on its output, under one or several names. The names are those above,
`output_config.format`, `output_format`, `text.format`, `json_schema`, `guided_json_object`, `regex`, `grammar`, `ebnf`,
`structural_tag` and `guided_decoding_params`. Equal constraints are sent once, under a name that the offer lists.
Different constraints are refused, and the message of the error contains both names.

### Continuation of a message

On chat completions and responses, `continue_final_message: true` makes the model continue the last message, which must
be of the role `assistant`. If its role is another one, or the value is no boolean, the request is refused with code
`INFERENCE_3201`. On chat completions, `prefix: true` or `partial: true` in the last message has the same effect. On
messages, a last message of the role `assistant` is continued without a parameter. On text completions, the parameter
is ignored.

The parameter itself is not forwarded. An offer of the chat-completions dialect gets the mark that its `prefill` names:
`continue_final_message: true` with `add_generation_prompt: false`, or `prefix: true` in the message, or no mark. An
offer of the messages dialect needs no mark. Offers without `prefill`, and offers of the responses dialect, cannot
continue a message. If no other offer is left, the request is refused with code `INFERENCE_3202` and the parameter
`messages`, on responses `input`.

The response contains only the continuation: if the provider got `prefix: true` and begins its answer with the text of
the message again, the gateway removes the repeated text.

### Reasoning

These parameters set the reasoning effort, in this order of precedence: `reasoning_effort`, `reasoning`, `thinking` (with
the level of `output_config.effort`), `output_config.effort` alone, `enable_thinking`, `chat_template_kwargs` (its members
`enable_thinking`, `thinking`, `reasoning_effort` and `thinking_budget`), `think` and `disable_reasoning`. A value of 0 in
`thinking_budget`, `thinking_token_budget`, `reasoning_budget` or `max_thinking_tokens` disables reasoning. On messages,
these parameters are used only if `thinking` and `output_config.effort` do not set the reasoning effort. The types
`adaptive` and `auto` of `thinking` enable it.

If an offer can enable and disable thinking but does not support effort levels, every effort except `none` enables
thinking.

On chat completions, `include_reasoning: false`, `reasoning.exclude: true` and `reasoning_format: \"hidden\"` remove the
reasoning from the response.
";

/// Appends a table with these rows, sorted by name.
fn write_table(page: &mut String, mut rows: Vec<[&str; 3]>) {
    rows.sort_unstable();
    page.push_str("\n| Parameter | Treatment | Description |\n|---|---|---|\n");
    for [name, treatment, description] in rows {
        writeln!(page, "| `{name}` | {treatment} | {description} |").unwrap();
    }
}

const NESTED_TEXT: &str = "
### Members inside a messages request

An object is named by its path in the request, or by the type of its content block. *Messages only* means: forwarded to
providers of the messages dialect, and dropped for others, because the meaning of the request stays the same. A member
that is not in this table is treated in the same way. Tools and content blocks of other types are refused, except
blocks that another service wrote into the history, such as `server_tool_use` and `fallback`: they are left out for
providers of other dialects.
";

/// Appends the table of the members of objects in messages requests.
fn write_nested_members(page: &mut String) {
    page.push_str(NESTED_TEXT);
    page.push_str("\n| Object | Member | Treatment | Description |\n|---|---|---|---|\n");
    for NestedMember { object, name, treatment, description } in NESTED_MESSAGES_MEMBERS {
        let treatment = match treatment {
            NestedTreatment::Supported => "supported",
            NestedTreatment::Harmless => "messages only",
            NestedTreatment::Refused(condition) => condition,
        };
        writeln!(page, "| `{object}` | `{name}` | {treatment} | {description} |").unwrap();
    }
}

/// Returns the rows of a table of refused parameters.
fn refused_rows(rows: &'static [RefusedMember]) -> Vec<[&'static str; 3]> {
    rows.iter().map(|(name, values, about)| [*name, refused_values(*values), *about]).collect()
}

/// Returns the page with the contents of the tables.
fn page() -> String {
    let mut page = PAGE.to_owned();
    for (dialect, title) in [
        (Dialect::Chat, "Chat completions"),
        (Dialect::Messages, "Messages"),
        (Dialect::Responses, "Responses"),
    ] {
        write!(page, "\n## {title}\n").unwrap();
        let members = KNOWN_MEMBERS.iter().filter(|member| member.dialect == dialect);
        let row = |member: &KnownMember| {
            let treatment = match member.treatment {
                MemberTreatment::Supported => "supported",
                MemberTreatment::Harmless => "accepted, no effect on the output",
                MemberTreatment::Engine => "see [Engine parameters](#engine-parameters)",
                MemberTreatment::Refused(values) => refused_values(values),
            };
            [member.name, treatment, member.description]
        };
        write_table(&mut page, members.map(row).collect());
        if dialect == Dialect::Messages {
            write_nested_members(&mut page);
        }
    }
    for (rows, title, text) in [
        (REFUSED_MESSAGES_MEMBERS, "Parameters of other endpoints on messages", "Refused on messages."),
        (COMMON_REFUSED_MEMBERS, "Parameters of other services", FOREIGN_TEXT),
        (REFUSED_COMPLETION_MEMBERS, "Text completions", COMPLETIONS_TEXT),
    ] {
        write!(page, "\n## {title}\n\n{text}\n").unwrap();
        write_table(&mut page, refused_rows(rows));
    }
    for (rows, others, title) in [
        (REFUSED_IMAGE_MEMBERS, OTHER_IMAGE_ROWS, "Image generations"),
        (REFUSED_SPEECH_MEMBERS, &[], "Speech"),
        (REFUSED_EMBEDDING_MEMBERS, &[], "Embeddings"),
        (REFUSED_RERANK_MEMBERS, OTHER_RERANK_ROWS, "Rerank"),
        (REFUSED_MODERATION_MEMBERS, &[], "Moderation"),
    ] {
        write!(page, "\n## {title}\n").unwrap();
        let mut rows = refused_rows(rows);
        rows.extend_from_slice(others);
        write_table(&mut page, rows);
    }
    page.push_str(TRANSCRIPTIONS_TEXT);
    let names: Vec<String> = OFFER_DEPENDENT_PARAMETERS.iter().map(|name| format!("`{name}`")).collect();
    page.push_str(
        "\n## Parameters of speech\n\nThe gateway sends these parameters to offers that list them in \
         `supported_parameters`. If no offer of the model lists\na parameter, the request is refused:\n\n",
    );
    writeln!(page, "{}.", names.join(", ")).unwrap();
    page.push_str(TASK_PARAMETERS_TEXT);
    for (names, title) in [(EMBEDDING_PARAMETERS, "Embeddings"), (RERANK_PARAMETERS, "Rerank")] {
        let tuning = |parameter: &TaskParameter| {
            if parameter.is_tuning { " (never refused; dropped for offers that do not list it)" } else { "" }
        };
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
