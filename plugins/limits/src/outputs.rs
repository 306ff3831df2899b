//! How long a key's answers are: the ninetieth percentile of its last ones.

/// Answers that are remembered.
const KEPT: usize = 64;
/// Answers below which there is no percentile worth the name.
const FEW: usize = 8;
/// What is assumed until then, in tokens.
const UNKNOWN: u64 = 1_024;

/// The lengths of the last 64 answers, in tokens.
#[derive(Clone, Debug)]
pub struct Outputs {
    last: [u32; KEPT],
    /// Answers ever seen.
    seen: usize,
    /// The percentile, worked out when an answer comes and not when one is asked for.
    p90: u64,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { last: [0; KEPT], seen: 0, p90: UNKNOWN }
    }
}

impl Outputs {
    /// Remembers an answer's length.
    pub fn observe(&mut self, tokens: u64) {
        if let Some(place) = self.last.get_mut(self.seen % KEPT) {
            *place = u32::try_from(tokens).unwrap_or(u32::MAX);
        }
        self.seen = self.seen.wrapping_add(1).max(1);
        let count = self.seen.min(KEPT);
        if count < FEW {
            return;
        }
        let mut sorted = self.last;
        if let Some(known) = sorted.get_mut(..count) {
            // Nearest rank: the smallest that at least 90 % do not exceed.
            let rank = (count * 9).div_ceil(10) - 1;
            let (_, p90, _) = known.select_nth_unstable(rank);
            self.p90 = u64::from(*p90);
        }
    }

    /// The ninetieth percentile by nearest rank; 1,024 until eight answers are known.
    #[must_use]
    pub const fn p90(&self) -> u64 {
        self.p90
    }
}
