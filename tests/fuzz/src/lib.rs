//! Fuzz targets, and their shared helpers: input cut into pieces, a provider to translate for, pieces parsed as JSON.
//!
//! A target panics when a guarantee is broken. The cuts are derived from the input itself. Therefore one file
//! reproduces a finding, and the files of `testdata` folders serve as seeds without changes.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "to panic is how a target tells"
)]

pub mod spoken;
pub mod stream;
pub mod targets;

use bytes::Bytes;
use penstock_core::{AttemptTarget, ContinuationMethod, Dialect, OfferCapabilities, PrefillMethod};
use serde_json::Value;
use std::fmt::Debug;

/// Longest input that is also read byte by byte, in bytes.
const MAX_SINGLE_BYTES: usize = 2_048;

/// Returns the input in pieces of one to some dozen bytes; the same input always has the same cuts.
#[must_use]
pub fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let most = 1 + (state >> 60) as usize * 5;
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (piece, rest) = bytes.split_at((1 + (state >> 33) as usize % most).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Returns the result of `read`, and asserts that it does not depend on how the input is cut.
pub fn however_cut<T: PartialEq + Debug>(bytes: &[u8], read: impl Fn(&[&[u8]]) -> T) -> T {
    let whole = read(&[bytes]);
    assert_eq!(read(&pieces(bytes)), whole, "cut in pieces");
    if bytes.len() <= MAX_SINGLE_BYTES {
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole, "byte by byte");
    }
    whole
}

/// Splits the input into a number that chooses between variants, from its first two bytes, and the rest.
#[must_use]
pub fn choice(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_le_bytes(*first), rest))
}

/// Returns true if this bit of `choice` is set.
#[must_use]
pub const fn bit(choice: u16, bit: u16) -> bool {
    choice >> bit & 1 == 1
}

/// Returns the capabilities of a provider, as selected by the bits of `choice`.
#[must_use]
pub fn abilities(choice: u16) -> OfferCapabilities {
    let parameters = ["temperature", "tools", "response_format", "reasoning_effort", "logprobs", "top_k"];
    OfferCapabilities {
        parameters: if bit(choice, 0) { parameters.map(Into::into).to_vec() } else { Vec::new() },
        continuation: match choice >> 1 & 3 {
            1 => Some(ContinuationMethod::ContinueFinalMessage),
            2 => Some(ContinuationMethod::Prefill),
            _ => None,
        },
        prefill: match choice >> 3 & 3 {
            0 => PrefillMethod::None,
            1 => PrefillMethod::ContinueFinalMessage,
            2 => PrefillMethod::Prefix,
            _ => PrefillMethod::Automatic,
        },
        replay_reasoning: bit(choice, 5),
        thinking_switch: bit(choice, 6),
        completions: bit(choice, 13),
        short_tool_ids: bit(choice, 7),
        tool_images: bit(choice, 8),
        system_anywhere: bit(choice, 9),
        max_stop: bit(choice, 10).then_some(1),
        max_images: bit(choice, 10).then_some(2),
        max_image_tokens: bit(choice, 11).then_some(272),
        max_inputs: bit(choice, 11).then_some(2),
        score_transform: Default::default(),
        reasoning_name: None,
        max_n: bit(choice, 12).then_some(2),
        context_length: None,
        max_output: None,
    }
}

/// Returns a provider of this dialect.
#[must_use]
pub fn target(dialect: Dialect, abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    }
}

/// Parses the pieces together as one JSON document, and panics if they are not valid JSON.
#[must_use]
pub fn json(pieces: &[Bytes]) -> Value {
    let bytes = pieces.concat();
    match parse(&bytes) {
        Ok(value) => value,
        Err(error) => panic!("not JSON ({error}): {}", String::from_utf8_lossy(&bytes)),
    }
}

/// Parses JSON as leniently as clients do: they read half of a surrogate pair as a character, and accept a number that
/// is too large to represent. `serde_json` refuses both.
///
/// # Errors
/// Returns an error if clients cannot parse the bytes either.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|_| serde_json::from_slice(&tamed(bytes)))
}

/// Replaces halves of surrogate pairs by the replacement character, and the digits of exponents by zeros.
fn tamed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (mut at, mut inside) = (0, false);
    while at < bytes.len() {
        let unit = |at: usize| {
            let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            _ if bytes[at] == b'\\' => 2,
            _ => 1,
        };
        inside ^= bytes.get(at) == Some(&b'"');
        if !inside && matches!(bytes.get(at), Some(b'e' | b'E')) {
            let digits = bytes[at + 1..].iter_mut().skip_while(|byte| matches!(byte, b'+' | b'-'));
            digits.take_while(|byte| byte.is_ascii_digit()).for_each(|digit| *digit = b'0');
        }
    }
    bytes
}
