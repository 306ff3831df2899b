//! Mutated inputs: parts of one or two seeds that are changed, removed, duplicated, moved or joined.

/// Dictionary of tokens that are significant to some target.
const WORDS: [&[u8]; 40] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e309",
    b"0.5",
    b"18446744073709551616",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\0",
    b"\\u0000",
    b"\\ud83d",
    b"\\ud83d\\ude00",
    b"\xe2\x80\xa8",
    b"data: ",
    b"event: ",
    b"event: ping\n",
    b"[DONE]",
    b"--XyZ",
    b"--XyZ--",
    b"\"type\":",
    b"\"index\":1",
    b"\"content\":",
    b"TAG",
    b"ID3",
    b"APETAGEX",
    b"=",
    b"%",
];
/// Longest input, as in `tests/fuzz/run`.
const MOST: usize = 16_384;

/// The 64-bit FNV-1a hash.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Generator of mutated inputs; deterministic for the same seeds.
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutator<'a> {
    pub fn new(name: &str, seeds: &'a [Vec<u8>]) -> Self {
        Self { seeds, state: hash(name.as_bytes()) }
    }

    /// Returns a random number below `most`, which must be positive.
    fn below(&mut self, most: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % most
    }

    /// Returns a random range of these bytes; short ranges are more likely.
    fn piece(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let most = 1 << self.below(11);
        start..(start + self.below(most)).min(bytes.len())
    }

    /// The next input.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.seeds[self.below(self.seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input);
        }
        input.truncate(MOST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let piece = self.piece(input);
        match self.below(9) {
            0 => input.truncate(piece.start),
            1 => drop(input.drain(piece)),
            2 => {
                let copy = input[piece.clone()].to_vec();
                input.splice(piece.start..piece.start, copy);
            }
            3 => {
                let moved: Vec<u8> = input.drain(piece).collect();
                let to = self.below(input.len() + 1);
                input.splice(to..to, moved);
            }
            4 => {
                let other = &self.seeds[self.below(self.seeds.len())];
                let from = self.piece(other);
                input.splice(piece, other[from].iter().copied());
            }
            5 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] ^= 1 << self.below(8);
            }
            6 if !input.is_empty() => {
                // Many targets select a variant by the first bytes.
                let most = input.len().min(2);
                let at = self.below(most);
                input[at] = self.below(256) as u8;
            }
            7 => {
                let word = WORDS[self.below(WORDS.len())];
                input.splice(piece, word.iter().copied());
            }
            _ => {
                let word = WORDS[self.below(WORDS.len())];
                input.splice(piece.start..piece.start, word.iter().copied());
            }
        }
    }
}
