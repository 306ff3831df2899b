//! Validation of chat-completions requests.

mod calls;
mod format;
mod message;
mod part;
mod tools;

use crate::body::{Top, prove};
use crate::edits::Edits;
use crate::filters::filters;
use crate::json::{Tape, Value};
use crate::limits::Limits;
use crate::members;
use crate::path::Style;
use crate::plain::{self, Integers, Numbers};
use crate::read;
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Kind, Needs, Refusal, Said, Task, Thinking};

const NUMBERS: Numbers = &[
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 10.0),
];
const INTEGERS: Integers =
    &[("top_k", -1, i64::MAX), ("seed", i64::MIN, i64::MAX), ("n", 1, 10), ("top_logprobs", 0, 20)];
const BOOLEANS: &[&str] = &["stream", "logprobs", "parallel_tool_calls", "continue_final_message"];
const THINKING: &[&str] = &["enabled", "disabled", "adaptive", "auto"];
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Validates a request of `/v1/chat/completions`.
///
/// `max_completion_tokens` takes precedence over `max_tokens`; -1 means no cap in either. Reasoning efforts are left to
/// the translators. `functions` and `function_call` become `tools` and `tool_choice`, in `fields` and by edits.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the field's path in `param`.
pub fn chat(body: Bytes, limits: &Limits) -> Result<Ask, Refusal> {
    let mut ask = admit(&body, limits)?;
    ask.body = body;
    Ok(ask)
}

/// Results collected during validation.
#[derive(Default)]
struct Findings {
    edits: Edits,
    needs: Needs,
    said: Said,
    images: u32,
    /// Bytes of inline media.
    media: usize,
}

fn admit(body: &[u8], limits: &Limits) -> Result<Ask, Refusal> {
    let (text, nodes) = prove(body, limits, Style::Brackets)?;
    let tape = Tape { text, nodes: &nodes };
    let top = Top::new(&tape, limits, Style::Brackets)?;
    let mut found = Findings::default();
    members::refuse(&top, Dialect::Chat)?;
    let model = plain::model(&top)?;
    let messages = read::required(top.get("messages"), &top.path("messages"), "an array of messages")?;
    plain::prove(&top, NUMBERS, INTEGERS, BOOLEANS)?;
    modalities(&top)?;
    let filters = filters(&top, Kind::Chat)?;
    let max_tokens = plain::cap(&top, "max_tokens")?;
    let max_completion_tokens = plain::cap(&top, "max_completion_tokens")?;
    let max_output_tokens = plain::cap(&top, "max_output_tokens")?;
    let n = candidates(&top);
    effort(&top)?;
    logprobs(&top, &mut found)?;
    format::response_format(&top, &mut found)?;
    let fields = tools::tools(&top, limits, &mut found)?;
    message::messages(messages, &top, &mut found)?;
    found.needs.many = n > 1;
    let text_bytes = top.bytes(&["messages", "tools", "functions", "response_format"]);
    Ok(Ask {
        dialect: Dialect::Chat,
        kind: Kind::Chat,
        task: Task::Talk,
        body: Bytes::new(),
        fields,
        edits: found.edits.finish(),
        model,
        stream: plain::switch(&top, "stream")?,
        include_usage: include_usage(&top)?,
        max_tokens: max_completion_tokens.or(max_tokens).or(max_output_tokens),
        n,
        parallel_tools: read::flag(top.get("parallel_tool_calls"), &top.path("parallel_tool_calls"))?
            .unwrap_or(true),
        stop: plain::stop(&top, "stop", true, limits)?,
        preset: plain::word(&top, "preset", &["reasoning", "non_reasoning"])?.map(Into::into),
        needs: found.needs,
        filters,
        thinking: Thinking::Off,
        prompt_bytes: text_bytes.saturating_sub(found.media),
        images: found.images,
        said: found.said,
    })
}

/// Value of `n`, already validated to be 1 to 10.
fn candidates(top: &Top<'_>) -> u32 {
    top.get("n").and_then(|n| n.raw().parse().ok()).unwrap_or(1)
}

fn include_usage(top: &Top<'_>) -> Result<bool, Refusal> {
    let path = top.path("stream_options");
    let Some(options) = top.get("stream_options") else { return Ok(false) };
    let [include_usage] = read::object(options, &path, ["include_usage"])?;
    Ok(read::flag(include_usage, &path.key("include_usage"))?.unwrap_or(false))
}

/// Refuses answer modalities other than text.
fn modalities(top: &Top<'_>) -> Result<(), Refusal> {
    let path = top.path("modalities");
    let Some(modalities) = top.get("modalities") else { return Ok(()) };
    for (index, item) in read::array(modalities, &path)?.items().enumerate() {
        let path = path.index(index);
        if !read::string(item, &path)?.is("text") {
            return Err(path.unsupported("only answers in text are supported"));
        }
    }
    Ok(())
}

/// Validates the reasoning effort, in the members of several vendors; translators read it.
fn effort(top: &Top<'_>) -> Result<(), Refusal> {
    plain::word(top, "reasoning_effort", EFFORTS)?;
    if let Some(reasoning) = top.get("reasoning") {
        let path = top.path("reasoning");
        let [effort, enabled] = read::object(reasoning, &path, ["effort", "enabled"])?;
        effort.map(|effort| read::one_of(effort, &path.key("effort"), EFFORTS)).transpose()?;
        read::flag(enabled, &path.key("enabled"))?;
    }
    if let Some(thinking) = top.get("thinking").filter(Value::is_object) {
        let path = top.path("thinking");
        let [kind] = read::object(thinking, &path, ["type"])?;
        kind.map(|kind| read::one_of(kind, &path.key("type"), THINKING)).transpose()?;
    } else {
        read::flag(top.get("thinking"), &top.path("thinking"))?;
    }
    read::flag(top.get("enable_thinking"), &top.path("enable_thinking"))?;
    let path = top.path("chat_template_kwargs");
    top.get("chat_template_kwargs").map(|kwargs| read::any_object(kwargs, &path)).transpose()?;
    Ok(())
}

fn logprobs(top: &Top<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let mut wanted = plain::switch(top, "logprobs")?;
    wanted |= top.get("top_logprobs").is_some_and(|count| count.raw() != "0");
    if let Some(bias) = top.get("logit_bias") {
        let path = top.path("logit_bias");
        read::any_object(bias, &path)?;
        for (token, value) in bias.members() {
            read::number(value, &path.key(&token.text()), -100.0, 100.0)
                .map_err(|_| path.wrong("expected an object of token ids and numbers from -100 to 100"))?;
        }
        found.needs.logit_bias = !bias.is_hollow();
    }
    found.needs.logprobs = wanted;
    Ok(())
}
