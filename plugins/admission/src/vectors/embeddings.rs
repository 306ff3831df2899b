//! Validation of embedding requests.

use super::{few, text};
use crate::body::{Top, prove};
use crate::filters::filters;
use crate::json::{Kind as Type, Tape, Value};
use crate::limits::Limits;
use crate::path::{Path, Style};
use crate::{plain, read};
use bytes::Bytes;
use penstock_contract::{Ask, Embed, Inputs, Kind, Refusal, Task};
use std::ops::Range;

/// Maximum vector length that may be requested.
const MAX_DIMENSIONS: i64 = 65_536;
/// Assumed bytes of text per token id, while its text is unknown.
const BYTES_PER_ID: usize = 4;

/// Inputs as ranges of the body.
enum Found {
    Texts(Vec<Range<usize>>),
    Ids {
        arrays: Vec<Range<usize>>,
        count: usize,
    },
    /// Texts, with their total bytes, and arrays, with their total number of token ids.
    Mixed {
        values: Vec<Range<usize>>,
        bytes: usize,
        count: usize,
    },
}

/// Validates a request of `/v1/embeddings`.
///
/// Besides strings, `input` may have token ids: one array of them, or an array of such arrays and strings.
///
/// # Errors
/// Returns `InvalidRequest` or `TooLarge`, with the field's path in `param`.
pub fn embeddings(body: Bytes, limits: &Limits) -> Result<Ask, Refusal> {
    let (text, nodes) = prove(&body, limits, Style::Brackets)?;
    let tape = Tape { text, nodes: &nodes };
    let top = Top::new(&tape, limits, Style::Brackets)?;
    let model = plain::model(&top)?;
    let filters = filters(&top, Kind::Embedding)?;
    let path = top.path("input");
    let input = read::required(top.get("input"), &path, EXPECTED)?;
    let found = inputs(input, &path, limits)?;
    let base64 = plain::word(&top, "encoding_format", &["float", "base64"])? == Some("base64");
    let dimensions = top.get("dimensions").map(|value| {
        let dimensions = read::integer(value, &top.path("dimensions"), 1, MAX_DIMENSIONS)?;
        Ok(u32::try_from(dimensions).unwrap_or(u32::MAX))
    });
    let dimensions = dimensions.transpose()?;
    let fields = top.fields();
    let slices = |ranges: Vec<Range<usize>>| ranges.into_iter().map(|range| body.slice(range)).collect();
    let (inputs, prompt_bytes) = match found {
        Found::Texts(texts) => {
            let bytes = texts.iter().map(|text| text.len().saturating_sub(2)).sum();
            (Inputs::Texts(slices(texts)), bytes)
        }
        Found::Ids { arrays, count } => (Inputs::Ids(slices(arrays)), count * BYTES_PER_ID),
        Found::Mixed { values, bytes, count } => {
            (Inputs::Mixed(slices(values)), bytes + count * BYTES_PER_ID)
        }
    };
    let task = Task::Embed(Embed { inputs, verbatim: true, base64, dimensions });
    Ok(Ask { prompt_bytes, filters, ..Ask::plain(Kind::Embedding, body.clone(), fields, model, task) })
}

const EXPECTED: &str = "a string, an array of strings, or token ids";

fn inputs(input: Value<'_>, at: &Path<'_>, limits: &Limits) -> Result<Found, Refusal> {
    if input.is_string() {
        return Ok(Found::Texts(vec![text(input, at)?]));
    }
    if !input.is_array() {
        return Err(at.expected(EXPECTED, input.kind()));
    }
    match input.items().next().map(|first| first.kind()) {
        None => Err(at.wrong("expected at least one text, got an empty array")),
        Some(Type::Number) => {
            let count = ids(input, at)?;
            Ok(Found::Ids { arrays: vec![input.range()], count })
        }
        Some(Type::String | Type::Escaped | Type::Array) => list(input, at, limits),
        Some(other) => Err(at.index(0).expected("a string or token ids", other)),
    }
}

/// Reads a list of texts and arrays of token ids.
fn list(input: Value<'_>, at: &Path<'_>, limits: &Limits) -> Result<Found, Refusal> {
    let mut values = Vec::new();
    let (mut texts, mut bytes, mut count) = (0, 0, 0);
    for (index, item) in few(input, at, limits.max_inputs, "text")?.items().enumerate() {
        let path = at.index(index);
        if item.is_array() {
            count += ids(item, &path)?;
        } else if item.is_string() {
            texts += 1;
            bytes += text(item, &path)?.len().saturating_sub(2);
        } else {
            return Err(path.expected("a string or an array of token ids", item.kind()));
        }
        values.push(item.range());
    }
    Ok(if texts == values.len() {
        Found::Texts(values)
    } else if texts == 0 {
        Found::Ids { arrays: values, count }
    } else {
        Found::Mixed { values, bytes, count }
    })
}

/// Validates an array of at least one token id; returns their number.
fn ids(array: Value<'_>, at: &Path<'_>) -> Result<usize, Refusal> {
    let mut count = 0;
    for (index, id) in array.items().enumerate() {
        read::integer(id, &at.index(index), 0, i64::from(u32::MAX))?;
        count += 1;
    }
    if count == 0 { Err(at.wrong("expected at least one token id, got an empty array")) } else { Ok(count) }
}
