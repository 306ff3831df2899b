//! Statistics of a key's answer lengths: the 90th percentile of its last answers.

/// Number of last answers whose lengths count.
const WINDOW_SIZE: usize = 64;
/// Minimum number of answers for a meaningful percentile.
const MIN_SAMPLES: usize = 8;
/// Percentile that is assumed until there are enough answers, in tokens.
const DEFAULT_P90: u64 = 1_024;

/// Lengths of the last 64 answers, in tokens.
#[derive(Clone, Debug)]
pub struct OutputLengthStats {
    /// Ring buffer of the lengths in the order in which the answers ended.
    recent: [u32; WINDOW_SIZE],
    /// The lengths of `recent` in ascending order, updated by moving a few elements instead of sorting.
    sorted: [u32; WINDOW_SIZE],
    count: u8,
    next: u8,
}

impl Default for OutputLengthStats {
    fn default() -> Self {
        Self { recent: [0; WINDOW_SIZE], sorted: [0; WINDOW_SIZE], count: 0, next: 0 }
    }
}

impl OutputLengthStats {
    /// Records the length of an answer.
    pub fn record(&mut self, tokens: u64) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let (index, count) = (usize::from(self.next), usize::from(self.count));
        let Some(oldest) = self.recent.get_mut(index) else { return };
        let oldest = std::mem::replace(oldest, tokens);
        // Index in `sorted` of the oldest length, which is removed. The new length is inserted at index `into`.
        let out =
            if count < WINDOW_SIZE { count } else { self.sorted.partition_point(|known| *known < oldest) };
        let known = self.sorted.get(..count).unwrap_or_default();
        let into = known.partition_point(|known| *known < tokens);
        let into = if into > out {
            // Lengths between the removed index and the inserted index move down by one.
            self.sorted.copy_within(out + 1..into, out);
            into - 1
        } else {
            self.sorted.copy_within(into..out, into + 1);
            into
        };
        if let Some(slot) = self.sorted.get_mut(into) {
            *slot = tokens;
        }
        self.next = (self.next + 1) % WINDOW_SIZE as u8;
        self.count = self.count.saturating_add(1).min(WINDOW_SIZE as u8);
    }

    /// Returns the 90th percentile by nearest rank: the smallest recorded length such that at least 90 % of the
    /// recorded lengths are at most this long. Returns 1,024 until eight answers are recorded.
    #[must_use]
    pub fn p90_tokens(&self) -> u64 {
        let count = usize::from(self.count);
        if count < MIN_SAMPLES {
            return DEFAULT_P90;
        }
        let rank = (count * 9).div_ceil(10) - 1;
        self.sorted.get(rank).map_or(DEFAULT_P90, |tokens| u64::from(*tokens))
    }
}
