//! Token estimates without the model's tokenizer: never too low.
//!
//! Guarantees: [`max_prompt_tokens`] needs no scan of the text, and shows which requests need a count at all;
//! [`max_conversation_tokens`] scans the text once, and is not below the counts of the vocabularies of served models:
//! about 1.2 times the tokens of English prose.
//!
//! A text is split into pieces by the pattern of `o200k`. Each piece is encoded by `o200k`, and each token has a
//! weight: the maximum number of tokens that any of four vocabularies (of 50 000 to 200 000 tokens, see
//! `assets/README.md`) needs for its bytes. Other tokenizers may merge a piece of `n > 1` tokens differently, which can
//! split the tokens on both sides of each boundary. So such a piece counts `2n - 1` more, and in ASCII at least one
//! token for two bytes. A word directly after a letter counts two more, or one if it has several tokens, and the end of
//! a line counts one more; digits count their bytes, because many tokenizers split them differently. Beyond ASCII,
//! where tokenizers define words differently, every sign and mark counts one more, and so does a piece without a space
//! before it. The estimate never exceeds the number of bytes, because a byte-level tokenizer has at most one token for
//! each byte.

#[cfg(test)]
mod tests;

use crate::budget::{CountBudget, CountHalt, TokenMeter, cap_at_budget};
use crate::conversation::{FunctionTool, PromptConversation, PromptMessage, PromptPart};
use crate::counter::{CountMethod, TokenCount};
use crate::image::{ImageRule, ImageTokenSettings, PromptImage};
use crate::merge::MergeSymbol;
use crate::o200k::O200kTokenizer;
use serde::Serialize;
use serde_json::json;
use serde_json::ser::{PrettyFormatter, Serializer};

/// Weights of the tokens, with four bits per token: a byte has the weight of an even token in its low bits, and that
/// of the next token in its high bits. The value 15 means that the weight is the number of bytes of the token. See
/// `assets/README.md`.
static WEIGHTS: &[u8] = include_bytes!("../assets/o200k.weights");

/// Tokens that templates add around a conversation: begin of text, default system text, dates, start of the next
/// message.
const FRAME_TOKENS: u64 = 128;
/// Tokens that templates add around a message.
const MESSAGE_TOKENS: u64 = 12;
/// Tokens that templates add around a call.
const CALL_TOKENS: u64 = 24;
/// Tokens of the instructions that templates write about tool calls.
const TOOLS_TOKENS: u64 = 640;
/// Tokens that templates add around a tool.
const TOOL_TOKENS: u64 = 16;
/// Tokens of an image or another part of unknown size: the maximum over all served models.
const UNKNOWN_TOKENS: u64 = 16_384;

/// Returns an upper bound of the tokens of any prompt of this size. `bytes` is the size of the JSON of messages,
/// system text and tools, without inline media. `image` is the maximum number of tokens of one image
/// ([`ImageRule::max_tokens`]).
#[must_use]
pub fn max_prompt_tokens(bytes: usize, images: u32, image: u64) -> u64 {
    let frame = FRAME_TOKENS + TOOLS_TOKENS;
    (bytes as u64).saturating_add(frame).saturating_add(u64::from(images).saturating_mul(image))
}

/// Returns an estimate that is never below the tokens of a conversation. `images` is the image rule of the model, if
/// it is known.
#[must_use]
pub fn max_conversation_tokens(
    conversation: &PromptConversation,
    images: Option<&ImageTokenSettings>,
) -> TokenCount {
    let none = TokenCount { tokens: u64::MAX, method: CountMethod::Estimate };
    max_conversation_tokens_within(conversation, images, &CountBudget::unlimited()).unwrap_or(none)
}

/// Estimates like [`max_conversation_tokens`], but the result is at most the maximum of the budget plus one;
/// `None` if the stop signal ended the estimate.
#[must_use]
pub fn max_conversation_tokens_within(
    conversation: &PromptConversation,
    images: Option<&ImageTokenSettings>,
    budget: &CountBudget<'_>,
) -> Option<TokenCount> {
    let mut meter = TokenMeter::new(FRAME_TOKENS, *budget);
    let done = conversation_tokens(conversation, images, &mut meter).map(|()| meter.tokens());
    cap_at_budget(done, budget).map(|tokens| TokenCount { tokens, method: CountMethod::Estimate })
}

fn conversation_tokens(
    conversation: &PromptConversation,
    images: Option<&ImageTokenSettings>,
    meter: &mut TokenMeter<'_>,
) -> Result<(), CountHalt> {
    for turn in &conversation.messages {
        message_tokens(turn, images, meter)?;
    }
    if !conversation.tools.is_empty() {
        meter.add(TOOLS_TOKENS)?;
    }
    for tool in &conversation.tools {
        meter.add(TOOL_TOKENS)?;
        add_text(&tool_json(tool), meter)?;
    }
    Ok(())
}

fn message_tokens(
    turn: &PromptMessage,
    images: Option<&ImageTokenSettings>,
    meter: &mut TokenMeter<'_>,
) -> Result<(), CountHalt> {
    meter.add(MESSAGE_TOKENS)?;
    if let Some(thoughts) = &turn.reasoning {
        meter.add(MESSAGE_TOKENS)?;
        add_text(thoughts, meter)?;
    }
    for part in &turn.parts {
        match part {
            PromptPart::Text(text) => {
                meter.add(1)?;
                add_text(text, meter)?;
            }
            PromptPart::Image(image) => {
                let tokens = images.map_or_else(|| max_image_tokens(*image), |images| images.tokens(*image));
                meter.add(tokens.saturating_add(4))?;
            }
            // One token for 16 bytes is more than enough for audio: engines use about 25 tokens per second, and a
            // second has at least 1000 bytes.
            PromptPart::Opaque { kind, bytes } if kind == "input_audio" => {
                meter.add(*bytes as u64 / 16 + 64)?
            }
            PromptPart::Opaque { bytes, .. } => meter.add(UNKNOWN_TOKENS.max(*bytes as u64))?,
        }
    }
    for call in &turn.calls {
        meter.add(CALL_TOKENS)?;
        for text in [&call.id, &call.name, &call.arguments] {
            add_text(text, meter)?;
        }
    }
    let names = [&turn.call_id, &turn.name];
    names.into_iter().flatten().try_for_each(|name| add_text(name, meter))
}

/// Returns the maximum of the numbers of tokens that the rules of the served models give for an image.
fn max_image_tokens(image: PromptImage) -> u64 {
    let rules = [
        ImageRule::Patches { px: 28, min: 4, max: UNKNOWN_TOKENS },
        ImageRule::Rows { px: 16, longest: 1024 },
        ImageRule::Tiles { px: 448, tokens: 256, max: 12 },
    ];
    rules.iter().map(|rule| rule.tokens(image)).max().unwrap_or(UNKNOWN_TOKENS)
}

/// Writes a tool in the longest form that templates use: JSON with an indentation of four.
fn tool_json(tool: &FunctionTool) -> String {
    let function = json!({
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict,
        },
    });
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    // Writing JSON into memory does not fail.
    let _ = function.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns an estimate that is never below the tokens of a text.
#[must_use]
pub fn max_text_tokens(text: &str) -> u64 {
    let mut meter = TokenMeter::new(0, CountBudget::unlimited());
    add_text(text, &mut meter).map_or(u64::MAX, |()| meter.tokens())
}

fn add_text(text: &str, meter: &mut TokenMeter<'_>) -> Result<(), CountHalt> {
    // Last character of the previous piece, and a flag that is true if the piece was ASCII.
    let mut before: Option<(char, bool)> = None;
    O200kTokenizer::shared().for_each_piece(text, |piece, symbols| {
        let guess = max_piece_tokens(piece, symbols, before);
        before = piece.chars().next_back().map(|last| (last, piece.is_ascii()));
        meter.add(guess.min(piece.len() as u64))
    })
}

/// Returns an upper estimate of the tokens of a piece in other vocabularies. `before` has the last character of the
/// previous piece, and true if that piece is ASCII.
fn max_piece_tokens(piece: &str, symbols: &[MergeSymbol], before: Option<(char, bool)>) -> u64 {
    if piece.bytes().any(|byte| byte.is_ascii_digit()) {
        return piece.len() as u64;
    }
    let weight: u64 = symbols.iter().map(weight).sum();
    let several = symbols.len() as u64;
    let ends = u64::from(piece.ends_with(['\n', '\r']));
    if piece.is_ascii() && before.is_none_or(|(_, ascii)| ascii) {
        // Other tokenizers do not split a word at a change from small letters to capitals, so two pieces of letters may
        // be one word.
        let letters = |last: char| last.is_alphabetic() && piece.starts_with(char::is_alphabetic);
        let glued = before.is_some_and(|(last, _)| letters(last));
        return match several {
            0 | 1 => weight + 2 * u64::from(glued) + ends,
            _ => (weight + 2 * several - 1 + u64::from(glued)).max(piece.len().div_ceil(2) as u64),
        };
    }
    // Other tokenizers split at other positions between scripts, marks and signs.
    let first = piece.chars().next().unwrap_or(' ');
    let glued = before.is_some_and(|(last, _)| !last.is_whitespace() && !first.is_whitespace());
    let signs = piece.chars().filter(|letter| !letter.is_ascii() && !letter.is_alphabetic()).count() as u64;
    weight + 2 * several.saturating_sub(1) + u64::from(several > 1) + u64::from(glued) + signs + ends
}

/// Returns the weight of a token of `o200k`.
fn weight(symbol: &MergeSymbol) -> u64 {
    let byte = WEIGHTS.get(symbol.token as usize / 2).copied().unwrap_or(u8::MAX);
    let weight = if symbol.token.is_multiple_of(2) { byte & 15 } else { byte >> 4 };
    let bytes = u64::from(symbol.end - symbol.at);
    if weight == 15 { bytes } else { u64::from(weight) }
}
