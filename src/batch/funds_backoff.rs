//! Backoff of a batch whose account has no available balance because other lines hold it. It limits how many lines
//! start to test whether the balance is sufficient again. A refusal takes no time, so without a limit all lines of the
//! file would be tried again and again.
//!
//! After a line was refused, each line that ends allows two lines to start: the balance that the ended line releases
//! covers one of them, and the other tests whether more balance is available. So about one line is refused for each
//! line that is answered, and the number of lines in flight doubles with each round while balance is available. If
//! other batches or requests hold the balance, one line is tried at each tick.

/// Number of allowed starts at which the limit is lifted.
const UNLIMITED_AT: usize = 256;

/// Number of lines that may start; `None` means no limit, as before the first refusal.
#[derive(Debug, Default)]
pub(super) struct LineStartLimiter(Option<usize>);

impl LineStartLimiter {
    /// Returns true if a line may start.
    pub(super) fn may_start(&self) -> bool {
        self.0 != Some(0)
    }

    /// Counts a line that starts.
    pub(super) fn on_line_start(&mut self) {
        self.0 = self.0.map(|left| left.saturating_sub(1));
    }

    /// Records a line that was refused for lack of balance. If there was no limit, no line starts until one ends or the
    /// next tick.
    pub(super) fn on_funds_refused(&mut self) {
        self.0 = Some(self.0.unwrap_or(0));
    }

    /// Counts lines that ended and released their reservations.
    pub(super) fn on_ended(&mut self, lines: usize) {
        self.0 = self.0.map(|left| left + 2 * lines).filter(|left| *left < UNLIMITED_AT);
    }

    /// Allows one line to start on a timer, since other reservations may have ended.
    pub(super) fn on_tick(&mut self) {
        self.0 = self.0.map(|left| left.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts as many of `lines` as allowed; returns their number.
    fn begin(backoff: &mut LineStartLimiter, lines: usize) -> usize {
        let begun = (0..lines).take_while(|_| backoff.may_start().then(|| backoff.on_line_start()).is_some());
        begun.count()
    }

    #[test]
    fn a_file_whose_money_is_held_is_not_burned() {
        let mut backoff = LineStartLimiter::default();
        assert_eq!(begin(&mut backoff, 300), 300, "as long as none came back");
        backoff.on_funds_refused();
        assert_eq!(begin(&mut backoff, 300), 0);
        backoff.on_tick();
        backoff.on_tick();
        assert_eq!(begin(&mut backoff, 300), 1, "one by one, however long it waits");
        backoff.on_ended(3);
        assert_eq!(begin(&mut backoff, 300), 6);
        backoff.on_funds_refused();
        assert_eq!(begin(&mut backoff, 300), 0);
    }

    #[test]
    fn money_that_is_there_again_is_used() {
        let mut backoff = LineStartLimiter::default();
        backoff.on_funds_refused();
        backoff.on_tick();
        let (mut most, mut rounds) = (begin(&mut backoff, 1_000), 0);
        while most < 1_000 {
            backoff.on_ended(most);
            most = begin(&mut backoff, 1_000);
            rounds += 1;
        }
        assert_eq!(rounds, 8);
    }
}
