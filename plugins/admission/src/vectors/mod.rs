//! Validation of requests of `/v1/embeddings` and `/v1/rerank`.

mod embeddings;
mod rerank;

pub use embeddings::embeddings;
pub use rerank::rerank;

use crate::json::Value;
use crate::path::Path;
use crate::read;
use penstock_contract::Refusal;
use std::ops::Range;

/// Range of a text that is not empty.
fn text(value: Value<'_>, at: &Path<'_>) -> Result<Range<usize>, Refusal> {
    read::filled(value, at).map(|value| value.range())
}

/// Checks that an array has 1 to `most` items.
fn few<'d>(value: Value<'d>, at: &Path<'_>, most: usize, what: &str) -> Result<Value<'d>, Refusal> {
    let count = value.items().take(most + 1).count();
    if count == 0 {
        return Err(at.wrong(format_args!("expected at least one {what}, got an empty array")));
    }
    if count > most {
        return Err(at.wrong(format_args!("expected at most {most} {what}s")));
    }
    Ok(value)
}
