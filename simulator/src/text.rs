//! Text of simulated answers: deterministic, and clearly not written by a model.

/// Sentences of an answer. Some have non-ASCII characters, which streams may split into their bytes.
const SENTENCES: &[&str] = &[
    "No language model took part in writing it.",
    "Its sentences come from a short table, picked by a seed.",
    "The same request gets the same simulated text again.",
    "Nothing in it answers what was asked.",
    "Simulated tokens leave at a steady pace, like drops from a tap.",
    "A simulated provider can also fail on demand, which real ones do without being asked.",
    "Grüße aus der Simulation – kein Modell hat mitgeschrieben.",
    "Ceci n'est pas une réponse : c'est une simulation.",
    "To jest symulacja, a nie żaden model językowy.",
    "Tämä on simulaatio, ei kielimalli 🌊.",
    "Esto es una simulación → no hay ningún modelo detrás.",
    "Αυτό είναι προσομοίωση, όχι μοντέλο.",
    "Count its tokens, time them, bill them; do not believe them.",
    "It was made to try a gateway, and it ends when its table says so.",
];

const THOUGHTS: &[&str] = &[
    "This is simulated reasoning.",
    "Nobody is thinking here.",
    "The table of sentences has a line for this.",
    "A simulated step follows another.",
    "That will do for a simulation.",
];

/// Deterministic random number generator (SplitMix64, Steele et al. 2014).
pub(super) struct SeededRng(u64);

impl SeededRng {
    /// Creates a generator from a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub(super) fn next_below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Iterates over the entries in an endless cycle, from a random start and with a random step.
    fn cycle(&mut self, from: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
        let at = usize::try_from(self.next_below(from.len() as u64)).unwrap_or(0);
        let step = usize::try_from(self.next_below(from.len() as u64 / 2)).unwrap_or(0);
        from.iter().copied().cycle().skip(at).step_by(step + 1)
    }
}

/// Updates a hash with bytes, eight at a time. The result is the same on every machine.
pub(super) fn fold_hash(mut hash: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x517c_c1b7_2722_0a95;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(eight)).wrapping_mul(MULTIPLIER);
    }
    for byte in words.remainder() {
        hash = (hash.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(MULTIPLIER);
    }
    (hash.rotate_left(23) ^ bytes.len() as u64).wrapping_mul(MULTIPLIER)
}

/// Returns the answer of the provider `name`: at least `tokens` tokens in complete sentences.
pub(super) fn answer(name: &str, draw: &mut SeededRng, tokens: usize) -> Vec<String> {
    let mut all = split_words(&format!("This is a simulated answer from {name}."));
    let mut sentences = draw.cycle(SENTENCES);
    while let (true, Some(sentence)) = (all.len() < tokens, sentences.next()) {
        all.extend(split_words(&format!(" {sentence}")));
    }
    all
}

/// Returns simulated reasoning of about `tokens` tokens.
pub(super) fn reasoning(draw: &mut SeededRng, tokens: usize) -> Vec<String> {
    let mut all = split_words("Simulated reasoning, by no model:");
    let mut thoughts = draw.cycle(THOUGHTS);
    while let (true, Some(thought)) = (all.len() < tokens, thoughts.next()) {
        all.extend(split_words(&format!(" {thought}")));
    }
    all
}

/// Splits a text into simulated tokens: words, each with the space before it.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut word = String::new();
    for letter in text.chars() {
        let starts = letter.is_whitespace() && !word.chars().all(char::is_whitespace);
        if starts {
            all.push(std::mem::take(&mut word));
        }
        word.push(letter);
    }
    if !word.is_empty() {
        all.push(word);
    }
    all
}

/// Splits JSON text into simulated tokens of four characters.
pub(super) fn split_chunks(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(4).map(|four| four.iter().collect()).collect()
}
