//! A queue in which accounts take turns, however many of its own each has
//! waiting, and from which the greediest is the first to be sent away.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Who waits.
#[derive(Debug)]
pub struct Fair<W> {
    /// Accounts that wait, the next first.
    ring: VecDeque<Arc<str>>,
    lines: HashMap<Arc<str>, VecDeque<(u64, W)>>,
    waiting: usize,
    number: u64,
}

impl<W> Default for Fair<W> {
    fn default() -> Self {
        Self { ring: VecDeque::new(), lines: HashMap::new(), waiting: 0, number: 0 }
    }
}

/// What a newcomer is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<W> {
    /// It waits, under this number. Whoever had to go for it is told so.
    Waits(u64, Option<W>),
    /// There is no room, and nobody has more waiting than it would have.
    Full,
}

impl<W> Fair<W> {
    /// How many wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.waiting
    }

    /// Nobody waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Waits behind those of its own account. Where `most` wait already, the youngest of the account that
    /// has the most waiting goes, if that leaves both alike or nearer to it.
    pub fn join(&mut self, whose: &Arc<str>, waiter: W, most: usize) -> Joined<W> {
        let mut gone = None;
        if self.waiting >= most {
            gone = self.send_away(whose);
            if gone.is_none() {
                return Joined::Full;
            }
        }
        self.number += 1;
        self.waiting += 1;
        let line = self.lines.entry(whose.clone()).or_default();
        if line.is_empty() {
            self.ring.push_back(whose.clone());
        }
        line.push_back((self.number, waiter));
        Joined::Waits(self.number, gone)
    }

    /// The next that may go: accounts in turn, within an account first come first served. Of an account
    /// whose first may not go, nobody does.
    pub fn take(&mut self, mut may: impl FnMut(&Arc<str>, &W) -> bool) -> Option<W> {
        let lines = &self.lines;
        let at = self.ring.iter().position(|whose| {
            lines.get(whose).and_then(VecDeque::front).is_some_and(|(_, waiter)| may(whose, waiter))
        })?;
        let whose = self.ring.remove(at)?;
        let line = self.lines.get_mut(&whose)?;
        let (_, waiter) = line.pop_front()?;
        self.waiting -= 1;
        if line.is_empty() {
            self.lines.remove(&whose);
        } else {
            self.ring.push_back(whose);
        }
        Some(waiter)
    }

    /// Waits no longer; `None` if it does not wait any more.
    pub fn leave(&mut self, whose: &Arc<str>, number: u64) -> Option<W> {
        let line = self.lines.get_mut(whose)?;
        let at = line.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        let (_, waiter) = line.remove(at)?;
        self.left(whose);
        Some(waiter)
    }

    fn send_away(&mut self, whose: &Arc<str>) -> Option<W> {
        let own = self.lines.get(whose).map_or(0, VecDeque::len);
        let (longest, _) =
            self.lines.iter().filter(|(_, line)| line.len() > own + 1).max_by_key(|(_, line)| line.len())?;
        let longest = longest.clone();
        let (_, waiter) = self.lines.get_mut(&longest)?.pop_back()?;
        self.left(&longest);
        Some(waiter)
    }

    /// Somebody of an account is no longer in its line.
    fn left(&mut self, whose: &Arc<str>) {
        self.waiting -= 1;
        if self.lines.get(whose).is_some_and(VecDeque::is_empty) {
            self.lines.remove(whose);
            self.ring.retain(|other| other != whose);
        }
    }
}
