//! A batch's life as a value: five states, what leads from one to the next, and counts that add up in each of
//! them. A state that has been ended is never left.

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its input is being looked at.
    Validating,
    /// Its lines are being processed, or wait for their hour.
    InProgress,
    /// Every line has its result.
    Completed,
    /// It did not complete; its errors say why.
    Failed,
    /// Its owner called it off.
    Cancelled,
}

impl State {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Validating, Self::InProgress, Self::Completed, Self::Failed, Self::Cancelled];

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Why a batch ends before its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its owner called it off.
    Cancelled,
    /// Its input is not what a batch can work on.
    Invalid,
    /// Its input was deleted while it ran.
    InputDeleted,
    /// Its window is over.
    Expired,
    /// Its key was revoked or has expired.
    KeyRevoked,
    /// The results it had are no longer as they were written.
    OutputDamaged,
}

impl Why {
    /// The code of the batch's error; `None` where there is no error to tell of.
    #[must_use]
    pub const fn code(self) -> Option<&'static str> {
        match self {
            Self::Cancelled => None,
            Self::Invalid => Some("invalid_input_file"),
            Self::InputDeleted => Some("input_file_deleted"),
            Self::Expired => Some("batch_expired"),
            Self::KeyRevoked => Some("key_revoked"),
            Self::OutputDamaged => Some("output_file_damaged"),
        }
    }

    /// What is said of it.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Cancelled => "The batch was cancelled.",
            Self::Invalid => "The input file cannot be processed.",
            Self::InputDeleted => "The input file was deleted while the batch ran; finished lines are kept.",
            Self::Expired => "The completion window ended before the last line; finished lines are kept.",
            Self::KeyRevoked => "The API key of the batch is no longer valid; finished lines are kept.",
            Self::OutputDamaged => "The output file was damaged on the disk.",
        }
    }
}

/// How many lines are how far. What is none of the named is still to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines of the input.
    pub total: u32,
    /// Answered well.
    pub completed: u32,
    /// Answered with an error.
    pub failed: u32,
    /// Without a result, because the batch was ended before them.
    pub cancelled: u32,
    /// Without a result, because the window was over before them.
    pub expired: u32,
}

impl Counts {
    /// Lines that have a result.
    #[must_use]
    pub const fn done(&self) -> u32 {
        self.completed.saturating_add(self.failed)
    }

    /// Lines that are still to be done.
    #[must_use]
    pub const fn left(&self) -> u32 {
        let ended = self.done().saturating_add(self.cancelled).saturating_add(self.expired);
        self.total.saturating_sub(ended)
    }
}

/// When what happened, Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// Its lines were begun, or given their hour.
    pub in_progress: Option<u64>,
    /// It ended well.
    pub completed: Option<u64>,
    /// It ended otherwise.
    pub failed: Option<u64>,
    /// Its owner ended it.
    pub cancelled: Option<u64>,
}

/// A batch's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Where it is.
    pub state: State,
    /// How far its lines are.
    pub counts: Counts,
    /// When what happened.
    pub at: Moments,
}

impl Default for Life {
    fn default() -> Self {
        Self { state: State::Validating, counts: Counts::default(), at: Moments::default() }
    }
}

impl Life {
    /// Its input is good and has this many lines. False if it is past that.
    pub fn begin(&mut self, lines: u32, now: u64) -> bool {
        if self.state != State::Validating {
            return false;
        }
        self.state = State::InProgress;
        self.counts.total = lines;
        self.at.in_progress = Some(now);
        true
    }

    /// A line has its result; the last one completes the batch. False if no line was to be done.
    pub fn finish(&mut self, good: bool, now: u64) -> bool {
        if self.state != State::InProgress || self.counts.left() == 0 {
            return false;
        }
        if good {
            self.counts.completed += 1;
        } else {
            self.counts.failed += 1;
        }
        if self.counts.left() == 0 {
            self.state = State::Completed;
            self.at.completed = Some(now);
        }
        true
    }

    /// It ends before its last line; what has a result keeps it. False if it had ended already.
    pub fn end(&mut self, why: Why, now: u64) -> bool {
        if self.state.is_end() {
            return false;
        }
        let left = self.counts.left();
        match why {
            Why::Expired => self.counts.expired = left,
            _ => self.counts.cancelled = left,
        }
        if why == Why::Cancelled {
            self.state = State::Cancelled;
            self.at.cancelled = Some(now);
        } else {
            self.state = State::Failed;
            self.at.failed = Some(now);
        }
        true
    }
}
