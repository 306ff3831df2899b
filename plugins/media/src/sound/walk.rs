//! Going through a file that arrives in pieces: a walker looks at the bytes ahead
//! and says how far to go.

use super::MOST_AHEAD;
use std::fmt::Debug;

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Look again when there are at least so many bytes ahead.
    Need(usize),
    /// Go on so many bytes further; they need not be there yet.
    Pass(u64),
    /// Nothing that follows is of interest.
    Stop,
}

/// How long it sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// So many ticks, of which so many are a second; the rate is more than zero.
    Ticks { ticks: u64, rate: u64 },
    /// The file does not say.
    Untold,
    /// There is no sound in it.
    Nothing,
}

impl Span {
    /// These ticks; nothing told if there are none, or no rate.
    pub(super) fn of(ticks: u64, rate: u64) -> Self {
        if ticks == 0 || rate == 0 { Self::Untold } else { Self::Ticks { ticks, rate } }
    }
}

/// Lower bound of a length, from what was read and not from what a head claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// Bytes of sound; `None` for all bytes of the file.
    pub bytes: Option<u64>,
    /// Bytes of a second at most.
    pub rate: u64,
    /// Milliseconds that the number of frames takes at least.
    pub millis: u64,
}

impl Floor {
    /// Uncompressed: 32 bits, eight channels at 192 kHz.
    pub(super) const PLAIN: u64 = 6_144_000;
    /// Compressed with loss: 640 kbit/s.
    pub(super) const LOSSY: u64 = 80_000;

    /// By all bytes of the file.
    pub(super) const fn of(rate: u64) -> Self {
        Self { bytes: None, rate, millis: 0 }
    }
}

/// Knows a format.
pub(super) trait Walk: Debug + Send {
    /// The least that it sounds, once there are no more bytes.
    fn floor(&self) -> Floor {
        Floor::of(Floor::PLAIN)
    }

    /// Looks at the bytes ahead; there is at least one.
    fn step(&mut self, ahead: &[u8]) -> Step;

    /// There are no more bytes than these ahead, and so many of those that were
    /// to be passed over never came.
    fn end(&mut self, ahead: &[u8], missing: u64) -> Span;
}

/// A walker on its way.
#[derive(Debug)]
pub(super) struct Track {
    walk: Box<dyn Walk>,
    held: Vec<u8>,
    /// Bytes ahead that are passed over.
    pass: u64,
    /// Bytes that have to be there before it looks again.
    need: usize,
    stopped: bool,
}

impl Track {
    pub(super) fn new(walk: Box<dyn Walk>) -> Self {
        Self { walk, held: Vec::new(), pass: 0, need: 1, stopped: false }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.stopped && !bytes.is_empty() {
            if self.held.is_empty() {
                bytes = self.go(bytes);
                if !self.stopped {
                    self.held.extend_from_slice(bytes);
                }
                return;
            }
            // Only what completes the element goes to what is held, so that little is copied.
            let lacks = self.need.saturating_sub(self.held.len()).max(1).min(bytes.len());
            let (completes, rest) = bytes.split_at(lacks);
            self.held.extend_from_slice(completes);
            bytes = rest;
            let held = std::mem::take(&mut self.held);
            let left = self.go(&held).len();
            self.held = held;
            self.held.drain(..self.held.len() - left);
        }
    }

    /// Walks as far as these bytes reach; gives back those still ahead.
    fn go<'b>(&mut self, mut ahead: &'b [u8]) -> &'b [u8] {
        loop {
            let passed = usize::try_from(self.pass).unwrap_or(usize::MAX).min(ahead.len());
            self.pass -= passed as u64;
            ahead = ahead.get(passed..).unwrap_or_default();
            if ahead.is_empty() || ahead.len() < self.need {
                return ahead;
            }
            match self.walk.step(ahead) {
                Step::Need(need) if need > ahead.len() && need <= MOST_AHEAD => {
                    self.need = need;
                    return ahead;
                }
                Step::Pass(pass) if pass > 0 => (self.pass, self.need) = (pass, 1),
                Step::Need(_) | Step::Pass(_) | Step::Stop => {
                    self.stopped = true;
                    return &[];
                }
            }
        }
    }

    /// How long it sounds, and how long at least.
    pub(super) fn end(mut self) -> (Span, Floor) {
        let span = self.walk.end(&self.held, self.pass);
        (span, self.walk.floor())
    }
}
