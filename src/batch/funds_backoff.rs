//! Backoff of a batch whose account has no available balance because other lines hold it: limits how many lines start
//! to test whether the balance is sufficient again. A refusal takes no time, so without a limit a complete file would
//! be tried again and again.
//!
//! After a line was refused, each line that ends allows two to start: its released balance covers one, and the other
//! tests whether more fit. So about one line is refused for each that is answered, and the number in flight doubles
//! per round while there is balance. If other batches or requests hold the balance, one line is tried now and then.

/// Number of allowed starts at which the limit is lifted.
const PLENTY: usize = 256;

/// Number of lines that may start; `None` means no limit, until a line is refused.
#[derive(Debug, Default)]
pub(super) struct Short(Option<usize>);

impl Short {
    /// Returns true if a line may start.
    pub(super) fn may_begin(&self) -> bool {
        self.0 != Some(0)
    }

    /// Counts a line that starts.
    pub(super) fn begun(&mut self) {
        self.0 = self.0.map(|left| left.saturating_sub(1));
    }

    /// Records a line that was refused for lack of balance.
    pub(super) fn came_back(&mut self) {
        self.0 = Some(self.0.unwrap_or(0));
    }

    /// Counts lines that ended and released their reservations.
    pub(super) fn freed(&mut self, lines: usize) {
        self.0 = self.0.map(|left| left + 2 * lines).filter(|left| *left < PLENTY);
    }

    /// Allows one line to start on a timer, since other reservations may have ended.
    pub(super) fn look(&mut self) {
        self.0 = self.0.map(|left| left.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts as many of `lines` as allowed; returns their number.
    fn begin(short: &mut Short, lines: usize) -> usize {
        let begun = (0..lines).take_while(|_| short.may_begin().then(|| short.begun()).is_some());
        begun.count()
    }

    #[test]
    fn a_file_whose_money_is_held_is_not_burned() {
        let mut short = Short::default();
        assert_eq!(begin(&mut short, 300), 300, "as long as none came back");
        short.came_back();
        assert_eq!(begin(&mut short, 300), 0);
        short.look();
        short.look();
        assert_eq!(begin(&mut short, 300), 1, "one by one, however long it waits");
        short.freed(3);
        assert_eq!(begin(&mut short, 300), 6);
        short.came_back();
        assert_eq!(begin(&mut short, 300), 0);
    }

    #[test]
    fn money_that_is_there_again_is_used() {
        let mut short = Short::default();
        short.came_back();
        short.look();
        let (mut most, mut rounds) = (begin(&mut short, 1_000), 0);
        while most < 1_000 {
            short.freed(most);
            most = begin(&mut short, 1_000);
            rounds += 1;
        }
        assert_eq!(rounds, 8);
    }
}
