//! Lines of a batch whose money is held by others at work: how many are begun to see whether it is enough by now.
//! Refusing takes no time, so without a bound a whole file would be tried and tried again.
//!
//! Once a line came back, each line that ends lets two begin: what it held covers one, and the other finds out
//! whether more fit. So for each that is answered about one is refused, and twice as many are at work with each round
//! for as long as there is money. Where others than this batch hold it, one is tried now and then.

/// Lines that may begin at which there is no want any more.
const PLENTY: usize = 256;

/// How many may begin; without limit until one came back.
#[derive(Debug, Default)]
pub(super) struct Short(Option<usize>);

impl Short {
    /// Whether one may begin.
    pub(super) fn may_begin(&self) -> bool {
        self.0 != Some(0)
    }

    /// One begins.
    pub(super) fn begun(&mut self) {
        self.0 = self.0.map(|left| left.saturating_sub(1));
    }

    /// One came back: there was no money for it.
    pub(super) fn came_back(&mut self) {
        self.0 = Some(self.0.unwrap_or(0));
    }

    /// So many ended, and what they held is free.
    pub(super) fn freed(&mut self, lines: usize) {
        self.0 = self.0.map(|left| left + 2 * lines).filter(|left| *left < PLENTY);
    }

    /// Time passed: others may have ended.
    pub(super) fn look(&mut self) {
        self.0 = self.0.map(|left| left.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins what may be of `lines`; how many.
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
