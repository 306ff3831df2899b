//! Validation of messages requests.

mod block;
mod settings;
mod source;
mod tools;
mod turn;

use crate::body::{Top, prove};
use crate::filters::filters;
use crate::json::Tape;
use crate::limits::Limits;
use crate::members;
use crate::path::Style;
use crate::plain::{self, Integers, Numbers};
use crate::read;
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Kind, Needs, Refusal, Said, Task};

const NUMBERS: Numbers = &[("temperature", 0.0, 1.0), ("top_p", 0.0, 1.0)];
const INTEGERS: Integers = &[("top_k", 0, i64::MAX)];
const BOOLEANS: &[&str] = &["stream"];

/// Purpose of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `/v1/messages`: `max_tokens` is required.
    Generate,
    /// `/v1/messages/count_tokens`: `max_tokens` is optional, and the conversation may end with unanswered tool calls.
    Count,
}

/// Validates a request of `/v1/messages` or `/v1/messages/count_tokens`.
///
/// The body is not edited. Consecutive messages of one role count as one turn; `system` messages may have any position.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the field's path in `param`.
pub fn messages(body: Bytes, limits: &Limits, purpose: Purpose) -> Result<Ask, Refusal> {
    let mut ask = admit(&body, limits, purpose, None)?;
    ask.body = body;
    Ok(ask)
}

/// Validates a request of `/v1/messages/count_tokens`, with a default model.
///
/// # Errors
/// Same as [`messages`].
pub fn count(body: Bytes, limits: &Limits, default: Option<&str>) -> Result<Ask, Refusal> {
    let mut ask = admit(&body, limits, Purpose::Count, default)?;
    ask.body = body;
    Ok(ask)
}

/// Results collected during validation.
#[derive(Default)]
struct Findings {
    needs: Needs,
    images: u32,
    /// Bytes of inline media.
    media: usize,
    said: Said,
}

fn admit(body: &[u8], limits: &Limits, purpose: Purpose, default: Option<&str>) -> Result<Ask, Refusal> {
    let (text, nodes) = prove(body, limits, Style::Dots)?;
    let tape = Tape { text, nodes: &nodes };
    let top = Top::new(&tape, limits, Style::Dots)?;
    let mut found = Findings::default();
    // Checked first, because other errors may result from a missing history.
    members::refuse(&top, Dialect::Messages)?;
    let model = plain::model_or(&top, default)?;
    let list = read::required(top.get("messages"), &top.path("messages"), "an array of messages")?;
    let max_tokens = plain::tokens(&top, "max_tokens", 0)?;
    if max_tokens.is_none() && purpose == Purpose::Generate {
        return Err(top.path("max_tokens").missing("an integer of at least 0"));
    }
    plain::prove(&top, NUMBERS, INTEGERS, BOOLEANS)?;
    let filters = filters(&top, Kind::Chat)?;
    let thinking = settings::thinking(&top)?;
    settings::output_config(&top, &mut found)?;
    if let Some(system) = top.get("system") {
        block::texts(system, &top.path("system"), &mut found)?;
    }
    let parallel_tools = tools::tools(&top, limits, &mut found)?;
    turn::messages(list, &top, purpose, &mut found)?;
    let text_bytes = top.bytes(&["messages", "system", "tools", "output_config"]);
    Ok(Ask {
        dialect: Dialect::Messages,
        kind: Kind::Chat,
        task: Task::Talk,
        body: Bytes::new(),
        fields: top.fields(),
        edits: Vec::new(),
        model,
        stream: plain::switch(&top, "stream")?,
        include_usage: false,
        max_tokens,
        n: 1,
        parallel_tools,
        stop: plain::stop(&top, "stop_sequences", false, limits)?,
        preset: None,
        needs: found.needs,
        filters,
        thinking,
        prompt_bytes: text_bytes.saturating_sub(found.media),
        images: found.images,
        said: found.said,
    })
}
