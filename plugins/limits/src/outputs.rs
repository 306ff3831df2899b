//! Statistics of a key's answer lengths: the 90th percentile of its last answers.

/// Number of recorded answers.
const KEPT: usize = 64;
/// Minimum number of answers for a meaningful percentile.
const FEW: usize = 8;
/// Assumed percentile until then, in tokens.
const UNKNOWN: u64 = 1_024;

/// Lengths of the last 64 answers, in tokens.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Ring buffer in order of arrival.
    last: [u32; KEPT],
    /// Same lengths in ascending order, updated by moving a few elements instead of sorting.
    sorted: [u32; KEPT],
    count: u8,
    next: u8,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { last: [0; KEPT], sorted: [0; KEPT], count: 0, next: 0 }
    }
}

impl Outputs {
    /// Records the length of an answer.
    pub fn observe(&mut self, tokens: u64) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let (place, count) = (usize::from(self.next), usize::from(self.count));
        let Some(oldest) = self.last.get_mut(place) else { return };
        let oldest = std::mem::replace(oldest, tokens);
        // Index of the oldest length, which is removed; the new one is inserted at `into`.
        let out = if count < KEPT { count } else { self.sorted.partition_point(|known| *known < oldest) };
        let known = self.sorted.get(..count).unwrap_or_default();
        let into = known.partition_point(|known| *known < tokens);
        let into = if into > out {
            // The lengths between the two indices move down by one.
            self.sorted.copy_within(out + 1..into, out);
            into - 1
        } else {
            self.sorted.copy_within(into..out, into + 1);
            into
        };
        if let Some(slot) = self.sorted.get_mut(into) {
            *slot = tokens;
        }
        self.next = (self.next + 1) % KEPT as u8;
        self.count = self.count.saturating_add(1).min(KEPT as u8);
    }

    /// 90th percentile by nearest rank: the smallest length that at least 90 % do not exceed; 1,024 until eight answers
    /// are recorded.
    #[must_use]
    pub fn p90(&self) -> u64 {
        let count = usize::from(self.count);
        if count < FEW {
            return UNKNOWN;
        }
        let rank = (count * 9).div_ceil(10) - 1;
        self.sorted.get(rank).map_or(UNKNOWN, |tokens| u64::from(*tokens))
    }
}
