//! Encoding of long pieces of text in windows, so that the work is linear in the length of the piece and the memory is
//! limited.
//!
//! Two consecutive windows overlap. If both encode the same bytes of the overlap as one token, their encodings are
//! joined there, and the result is the encoding of the complete piece. Reason: a sequence of tokens is the byte-pair
//! encoding of its bytes exactly if every two neighbours, encoded separately, stay unchanged. (The first merge across
//! the boundary of two neighbours would also happen if only these two were encoded.) All neighbours left of the
//! common token are neighbours in the first window, all right of it in the second.
//!
//! No text is known for which two windows share no token in a published vocabulary. For such a text, every byte of
//! the overlap would be counted as a token, in addition to the tokens of both windows. This never lowers the count,
//! and raises it by at most [`OVERLAP_BYTES`] plus the tokens of the overlap for each [`WINDOW_BYTES`] of text.

#[cfg(test)]
mod tests;

use crate::budget::{CountHalt, TokenMeter};
use crate::merge::MergeSymbol;
use std::cmp::Ordering;

/// Size of a window in bytes.
pub(crate) const WINDOW_BYTES: usize = 16 << 10;
/// Overlap of two windows in bytes.
pub(crate) const OVERLAP_BYTES: usize = 1 << 10;

/// Encoder in which every byte belongs to a token.
pub(crate) trait PieceEncoder {
    /// Encodes a piece of text; `symbols` receives its tokens in order.
    fn encode(&self, piece: &[u8], symbols: &mut Vec<MergeSymbol>);
}

/// Byte range of a token in a piece.
type TokenSpan = (usize, usize);

/// Adds the tokens of a piece of any length to a meter.
pub(crate) fn count_piece(
    encoder: &impl PieceEncoder,
    piece: &[u8],
    symbols: &mut Vec<MergeSymbol>,
    meter: &mut TokenMeter<'_>,
) -> Result<(), CountHalt> {
    let (mut from, mut overlap) = (0_usize, Vec::new());
    loop {
        let to = floor_char_boundary(piece, from.saturating_add(WINDOW_BYTES));
        encoder.encode(piece.get(from..to).unwrap_or_default(), symbols);
        let skipped = if from == 0 { 0 } else { join_overlap(&overlap, symbols, from, meter)? };
        if to >= piece.len() {
            return meter.add(symbols.len().saturating_sub(skipped) as u64);
        }
        let wanted = to.saturating_sub(OVERLAP_BYTES);
        // Start of the next window: it must be the start of a token and of a character.
        let begins = |symbol: &MergeSymbol| {
            let at = from + symbol.at as usize;
            at > from && floor_char_boundary(piece, at) == at
        };
        let is_in_overlap = |symbol: &MergeSymbol| from + symbol.at as usize >= wanted && begins(symbol);
        let cut = symbols.iter().position(is_in_overlap).or_else(|| symbols.iter().rposition(begins));
        let cut = cut.filter(|cut| *cut >= skipped).unwrap_or(symbols.len());
        meter.add(cut.saturating_sub(skipped) as u64)?;
        overlap.clear();
        overlap.extend(symbols.iter().skip(cut).map(|symbol| span(symbol, from)));
        from = overlap.first().map_or(to, |(at, _)| *at);
    }
}

fn span(symbol: &MergeSymbol, from: usize) -> TokenSpan {
    (from + symbol.at as usize, from + symbol.end as usize)
}

/// Joins the overlap of the previous window with this window: adds the tokens of the overlap up to the first common
/// token, and returns the number of tokens at the start of this window that are already included in this sum.
fn join_overlap(
    overlap: &[TokenSpan],
    symbols: &[MergeSymbol],
    from: usize,
    meter: &mut TokenMeter<'_>,
) -> Result<usize, CountHalt> {
    if overlap.is_empty() {
        return Ok(0);
    }
    let (mut left, mut right) = (0, 0);
    while let (Some(before), Some(symbol)) = (overlap.get(left), symbols.get(right)) {
        let here = span(symbol, from);
        match before.0.cmp(&here.0) {
            Ordering::Less => left += 1,
            Ordering::Greater => right += 1,
            Ordering::Equal if before.1 == here.1 => {
                meter.add(left as u64 + 1)?;
                return Ok(right + 1);
            }
            Ordering::Equal => {
                left += 1;
                right += 1;
            }
        }
    }
    let bytes = overlap.last().map_or(0, |(_, end)| end.saturating_sub(from));
    meter.add(bytes as u64)?;
    Ok(0)
}

/// Returns the start of the character that contains the byte at `offset`, at most the length of the piece.
pub(crate) fn floor_char_boundary(piece: &[u8], offset: usize) -> usize {
    let offset = offset.min(piece.len());
    let inside = |offset: &usize| piece.get(*offset).is_some_and(|byte| byte & 0xC0 == 0x80);
    // A character has at most four bytes. A longer run of continuation bytes is not text and may be cut at any byte.
    (offset.saturating_sub(3)..=offset).rev().find(|offset| !inside(offset)).unwrap_or(offset)
}
