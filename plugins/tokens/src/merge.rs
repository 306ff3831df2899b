//! Byte-pair encoding of one piece of text.
//!
//! Guarantees: the pair with the lowest rank is joined first, among equals the leftmost, until no pair can be joined. A
//! piece of n symbols takes at most n log n steps, whatever its content.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merge rules of a tokenizer.
pub(crate) trait MergeRules {
    /// Returns the rank and the token of two neighbours that can be joined; `None` if they cannot. `left` and `right`
    /// are their tokens, `at..end` is the byte range of both in the piece.
    fn find_merge(&self, left: u32, right: u32, piece: &[u8], start: u32, end: u32) -> Option<(u32, u32)>;
}

/// Part of a piece of text, and the token that its merges have produced so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeSymbol {
    /// Token number.
    pub(crate) token: u32,
    /// Offset of the first byte in the piece.
    pub(crate) at: u32,
    /// Offset after the last byte.
    pub(crate) end: u32,
    /// Rank of the merge with the next symbol, and the token that results; `None` if they cannot be merged.
    next: Option<(u32, u32)>,
}

impl MergeSymbol {
    /// Creates a symbol for the bytes `at..end` of a piece.
    pub(crate) const fn new(token: u32, start: u32, end: u32) -> Self {
        Self { token, at: start, end, next: None }
    }
}

/// Number of symbols above which a heap is faster than a linear search.
const MAX_SCANNED_SYMBOLS: usize = 64;

/// Merges neighbours of `symbols` by rank until no pair can be merged; `symbols` then holds the tokens.
pub(crate) fn merge_pairs(joins: &impl MergeRules, piece: &[u8], symbols: &mut Vec<MergeSymbol>) {
    if symbols.len() <= MAX_SCANNED_SYMBOLS {
        merge_by_scan(joins, piece, symbols)
    } else {
        merge_by_heap(joins, piece, symbols)
    }
}

fn rank(joins: &impl MergeRules, piece: &[u8], left: MergeSymbol, right: MergeSymbol) -> Option<(u32, u32)> {
    joins.find_merge(left.token, right.token, piece, left.at, right.end)
}

fn merge_by_scan(joins: &impl MergeRules, piece: &[u8], symbols: &mut Vec<MergeSymbol>) {
    for at in 0..symbols.len() {
        refresh(joins, piece, symbols, at);
    }
    loop {
        let best = symbols
            .iter()
            .enumerate()
            .filter_map(|(at, symbol)| symbol.next.map(|(rank, token)| (rank, at, token)))
            .min_by_key(|(rank, at, _)| (*rank, *at));
        let Some((_, at, token)) = best else { return };
        let end = symbols.get(at + 1).map_or(0, |right| right.end);
        if let Some(left) = symbols.get_mut(at) {
            left.token = token;
            left.end = end;
        }
        symbols.remove(at + 1);
        refresh(joins, piece, symbols, at);
        if let Some(before) = at.checked_sub(1) {
            refresh(joins, piece, symbols, before);
        }
    }
}

fn refresh(joins: &impl MergeRules, piece: &[u8], symbols: &mut [MergeSymbol], index: usize) {
    let next = match (symbols.get(index), symbols.get(index + 1)) {
        (Some(&left), Some(&right)) => rank(joins, piece, left, right),
        _ => None,
    };
    if let Some(symbol) = symbols.get_mut(index) {
        symbol.next = next;
    }
}

/// Index that marks both ends of the linked list.
const NO_LINK: usize = usize::MAX;

struct SymbolLinks {
    before: Vec<usize>,
    after: Vec<usize>,
    alive: Vec<bool>,
}

fn merge_by_heap(joins: &impl MergeRules, piece: &[u8], symbols: &mut Vec<MergeSymbol>) {
    let count = symbols.len();
    let mut links = SymbolLinks {
        before: (0..count).map(|at| at.checked_sub(1).unwrap_or(NO_LINK)).collect(),
        after: (0..count).map(|at| if at + 1 < count { at + 1 } else { NO_LINK }).collect(),
        alive: vec![true; count],
    };
    let mut heap = BinaryHeap::with_capacity(count);
    for at in 0..count {
        push(joins, piece, symbols, &links, &mut heap, at);
    }
    while let Some(Reverse((_, at, token, right))) = heap.pop() {
        // An entry of the heap is outdated if one of its two symbols has changed since it was pushed.
        let current = links.alive.get(at) == Some(&true)
            && links.after.get(at) == Some(&right)
            && symbols.get(at).is_some_and(|s| s.next.is_some_and(|(_, joined)| joined == token));
        if !current {
            continue;
        }
        let end = symbols.get(right).map_or(0, |s| s.end);
        if let Some(left) = symbols.get_mut(at) {
            left.token = token;
            left.end = end;
        }
        unlink(&mut links, at, right);
        push(joins, piece, symbols, &links, &mut heap, at);
        if let Some(&before) = links.before.get(at).filter(|before| **before != NO_LINK) {
            push(joins, piece, symbols, &links, &mut heap, before);
        }
    }
    let mut alive = links.alive.into_iter();
    symbols.retain(|_| alive.next().unwrap_or(false));
}

type MergeHeap = BinaryHeap<Reverse<(u32, usize, u32, usize)>>;

fn push(
    joins: &impl MergeRules,
    piece: &[u8],
    symbols: &mut [MergeSymbol],
    links: &SymbolLinks,
    heap: &mut MergeHeap,
    index: usize,
) {
    let after = links.after.get(index).copied().unwrap_or(NO_LINK);
    let next = match (symbols.get(index), symbols.get(after)) {
        (Some(&left), Some(&right)) => rank(joins, piece, left, right),
        _ => None,
    };
    if let Some(symbol) = symbols.get_mut(index) {
        symbol.next = next;
    }
    if let Some((rank, token)) = next {
        heap.push(Reverse((rank, index, token, after)));
    }
}

fn unlink(links: &mut SymbolLinks, index: usize, gone: usize) {
    let after = links.after.get(gone).copied().unwrap_or(NO_LINK);
    if let Some(alive) = links.alive.get_mut(gone) {
        *alive = false;
    }
    if let Some(link) = links.after.get_mut(index) {
        *link = after;
    }
    if let Some(link) = links.before.get_mut(after) {
        *link = index;
    }
}
