//! Prompt of gpt-oss, as `openai-harmony` renders it.
//!
//! Guarantees: the tokens of a conversation are counted exactly; text that looks like a special token counts as plain
//! text. The parts of a request become messages of the format as follows:
//!
//! - the system message is the library's own (identity, cut-off, date, effort, channels);
//! - leading system messages become the instructions of the developer message, and tools its `functions` namespace;
//!   without instructions and tools there is no developer message. A later system message becomes a developer message
//!   of its own;
//! - reasoning goes to the channel `analysis`, text to `final` (to `commentary` if the message has calls), each call to
//!   the recipient `functions.<name>`, which is also the author of its result;
//! - if the last assistant message is in the channel `final`, reasoning before the first `final` message is dropped;
//! - the prompt ends with `<|start|>assistant`, or with the message that the model has to continue.

mod schema;

#[cfg(test)]
mod tests;

use crate::budget::{CountHalt, TokenMeter};
use crate::conversation::{PromptConversation, PromptEffort, PromptMessage, SpeakerRole};
use crate::o200k::O200kTokenizer;
use crate::strftime::strftime;
use schema::render_functions_section;
use std::borrow::Cow;
use std::collections::HashMap;

const IDENTITY: &str =
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06";
const CHANNELS: &str =
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.";
const TOOL_CHANNEL: &str = "\nCalls to these tools must go to the commentary channel: 'functions'.";

/// Message of the harmony format.
#[derive(Default)]
struct HarmonyMessage<'c> {
    /// Author: `system`, `developer`, `user`, `assistant`, or `functions.<name>` for the result of a call.
    author: Cow<'c, str>,
    recipient: Option<Cow<'c, str>>,
    channel: Option<&'static str>,
    content_type: Option<&'static str>,
    /// Texts, each tokenised separately.
    texts: Vec<Cow<'c, str>>,
}

/// Receiver of the parts of a rendered prompt.
trait PromptSink {
    /// Appends ordinary text.
    fn push_text(&mut self, text: &str) -> Result<(), CountHalt>;
    /// Appends a special token.
    fn push_special_token(&mut self, token: &'static str) -> Result<(), CountHalt>;
}

struct CountingSink<'v, 's> {
    vocabulary: &'v O200kTokenizer,
    meter: TokenMeter<'s>,
}

impl PromptSink for CountingSink<'_, '_> {
    fn push_text(&mut self, text: &str) -> Result<(), CountHalt> {
        self.vocabulary.count_into(text, &mut self.meter)
    }

    fn push_special_token(&mut self, _: &'static str) -> Result<(), CountHalt> {
        self.meter.add(1)
    }
}

/// Counts the tokens of a conversation. Returns their number plus the tokens that the meter already has.
pub(crate) fn count(
    vocabulary: &O200kTokenizer,
    conversation: &PromptConversation,
    meter: TokenMeter<'_>,
) -> Result<u64, CountHalt> {
    let mut sink = CountingSink { vocabulary, meter };
    render(conversation, &mut sink)?;
    Ok(sink.meter.tokens())
}

fn render(conversation: &PromptConversation, sink: &mut impl PromptSink) -> Result<(), CountHalt> {
    let messages = messages(conversation);
    let first_final = messages.iter().position(|message| message.channel == Some("final"));
    let last_is_final = messages
        .iter()
        .rev()
        .find(|message| message.author == "assistant")
        .is_some_and(|message| message.channel == Some("final"));
    let count = messages.len();
    for (at, message) in messages.into_iter().enumerate() {
        let past = last_is_final && first_final.is_some_and(|first| at < first);
        if past && message.channel == Some("analysis") {
            continue;
        }
        write(&message, conversation.continues && at + 1 == count, sink)?;
    }
    if !conversation.continues {
        sink.push_special_token("<|start|>")?;
        sink.push_text("assistant")?;
    }
    Ok(())
}

fn write(message: &HarmonyMessage<'_>, open: bool, sink: &mut impl PromptSink) -> Result<(), CountHalt> {
    sink.push_special_token("<|start|>")?;
    sink.push_text(&message.author)?;
    if let Some(recipient) = &message.recipient {
        sink.push_text(&format!(" to={recipient}"))?;
    }
    if let Some(channel) = message.channel {
        sink.push_special_token("<|channel|>")?;
        sink.push_text(channel)?;
    }
    if let Some(content_type) = message.content_type {
        sink.push_text(&format!(" {content_type}"))?;
    }
    sink.push_special_token("<|message|>")?;
    for text in &message.texts {
        sink.push_text(text)?;
    }
    if !open {
        let call = message.author == "assistant" && message.recipient.is_some();
        sink.push_special_token(if call { "<|call|>" } else { "<|end|>" })?;
    }
    Ok(())
}

/// Function name by call id.
type FunctionNames<'c> = HashMap<&'c str, &'c str>;

fn messages(conversation: &PromptConversation) -> Vec<HarmonyMessage<'_>> {
    let leading = conversation.messages.iter().take_while(|turn| turn.role == SpeakerRole::System).count();
    let (instructions, rest) = conversation.messages.split_at_checked(leading).unwrap_or_default();
    let mut messages = vec![system(conversation)];
    messages.extend(developer(conversation, instructions));
    let calls = rest.iter().flat_map(|turn| &turn.calls);
    let functions: FunctionNames = calls.map(|call| (call.id.as_str(), call.name.as_str())).collect();
    for turn in rest {
        match turn.role {
            SpeakerRole::System => messages.push(text_message("developer", turn)),
            SpeakerRole::User => messages.push(text_message("user", turn)),
            SpeakerRole::Assistant => assistant(turn, &mut messages),
            SpeakerRole::Tool => messages.push(result(&functions, turn)),
        }
    }
    messages
}

fn system(conversation: &PromptConversation) -> HarmonyMessage<'static> {
    let date = strftime("%Y-%m-%d", conversation.unix_seconds);
    let effort = conversation.effort.unwrap_or(PromptEffort::Medium).name();
    let tools = if conversation.tools.is_empty() { "" } else { TOOL_CHANNEL };
    let text = format!("{IDENTITY}\nCurrent date: {date}\n\nReasoning: {effort}\n\n{CHANNELS}{tools}");
    HarmonyMessage { author: "system".into(), texts: vec![text.into()], ..HarmonyMessage::default() }
}

fn developer(
    conversation: &PromptConversation,
    instructions: &[PromptMessage],
) -> Option<HarmonyMessage<'static>> {
    let mut sections = Vec::new();
    let texts: Vec<_> =
        instructions.iter().map(|turn| turn.join_texts("")).filter(|text| !text.is_empty()).collect();
    if !texts.is_empty() {
        sections.push("# Instructions".to_owned());
        sections.push(texts.join("\n\n"));
    }
    if !conversation.tools.is_empty() {
        sections.push("# Tools".to_owned());
        sections.push(render_functions_section(&conversation.tools));
    }
    let texts = vec![sections.join("\n\n").into()];
    (!sections.is_empty()).then(|| HarmonyMessage {
        author: "developer".into(),
        texts,
        ..HarmonyMessage::default()
    })
}

fn text_message<'c>(author: &'static str, turn: &'c PromptMessage) -> HarmonyMessage<'c> {
    HarmonyMessage {
        author: author.into(),
        texts: turn.texts().map(Cow::Borrowed).collect(),
        ..HarmonyMessage::default()
    }
}

fn assistant<'c>(turn: &'c PromptMessage, messages: &mut Vec<HarmonyMessage<'c>>) {
    if let Some(thoughts) = &turn.reasoning {
        let texts = vec![thoughts.into()];
        messages.push(HarmonyMessage { channel: Some("analysis"), texts, ..text_message("assistant", turn) });
    }
    let text = turn.join_texts("");
    if !text.is_empty() {
        let channel = Some(if turn.calls.is_empty() { "final" } else { "commentary" });
        messages.push(HarmonyMessage {
            channel,
            texts: vec![text.into()],
            ..text_message("assistant", turn)
        });
    }
    for call in &turn.calls {
        messages.push(HarmonyMessage {
            author: "assistant".into(),
            recipient: Some(format!("functions.{}", call.name).into()),
            channel: Some("commentary"),
            content_type: Some("json"),
            texts: vec![call.arguments.as_str().into()],
        });
    }
}

fn result<'c>(functions: &FunctionNames<'_>, turn: &'c PromptMessage) -> HarmonyMessage<'c> {
    let called = turn.call_id.as_deref().and_then(|id| functions.get(id)).copied();
    let name = called.or(turn.name.as_deref()).unwrap_or_default();
    HarmonyMessage {
        author: format!("functions.{name}").into(),
        recipient: Some("assistant".into()),
        channel: Some("commentary"),
        content_type: None,
        texts: vec![turn.join_texts("").into()],
    }
}
