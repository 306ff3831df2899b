//! Vocabulary: tokens indexed by their bytes.
//!
//! Guarantees: the number of a token never changes; a lookup computes one hash and usually compares once. The bytes of
//! all tokens are in one buffer, so 200 000 tokens take about 4 MB.

use ahash::RandomState;

/// Value of an empty slot of the hash table.
const EMPTY: u32 = u32::MAX;

/// Set of byte strings, numbered in the order in which they were added.
#[derive(Clone)]
pub(crate) struct Vocabulary {
    arena: Vec<u8>,
    /// End offset of each token in the arena; a token begins at the end of the previous one.
    ends: Vec<u32>,
    /// Hash table with open addressing. Its size is a power of two, and at most half of the slots are in use.
    slots: Vec<u32>,
    hasher: RandomState,
    /// Length of the longest token, in bytes.
    longest: usize,
}

impl Vocabulary {
    /// Creates an empty vocabulary with capacity for `tokens`.
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        let slots = tokens.max(16).saturating_mul(2).next_power_of_two();
        Self {
            arena: Vec::with_capacity(tokens.saturating_mul(7)),
            ends: Vec::with_capacity(tokens),
            slots: vec![EMPTY; slots],
            // The seeds are fixed: clients cannot choose the keys of the table, which come from a file of the operator.
            hasher: RandomState::with_seeds(1, 2, 3, 4),
            longest: 0,
        }
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the length of the longest token, in bytes.
    pub(crate) const fn max_text_bytes_per_token(&self) -> usize {
        self.longest
    }

    /// Returns the bytes of a token; empty for an unknown number.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let from = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let to = self.ends.get(at).copied().unwrap_or(from);
        self.arena.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Returns the number of the token with these bytes.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<u32> {
        // Bytes longer than the longest token are no token, so they need not be hashed.
        if bytes.len() > self.longest {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(bytes) as usize & mask;
        loop {
            match self.slots.get(slot) {
                None | Some(&EMPTY) => return None,
                Some(&token) if self.bytes(token) == bytes => return Some(token),
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }

    /// Adds a token and returns its number, or the number of the existing equal token.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> u32 {
        if let Some(token) = self.find(bytes) {
            return token;
        }
        let token = self.ends.len() as u32;
        self.arena.extend_from_slice(bytes);
        self.longest = self.longest.max(bytes.len());
        self.ends.push(self.arena.len() as u32);
        if self.ends.len() * 2 > self.slots.len() {
            self.grow();
        } else {
            self.insert_slot(token);
        }
        token
    }

    fn grow(&mut self) {
        self.slots = vec![EMPTY; self.slots.len() * 2];
        for token in 0..self.ends.len() as u32 {
            self.insert_slot(token);
        }
    }

    fn insert_slot(&mut self, token: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(self.bytes(token)) as usize & mask;
        while let Some(held) = self.slots.get_mut(slot) {
            if *held == EMPTY {
                *held = token;
                return;
            }
            slot = (slot + 1) & mask;
        }
    }
}
