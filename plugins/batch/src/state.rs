//! Lifecycle of a batch as a value: five states, their transitions, and line counts that always add up. A final state
//! is never left.

/// State of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifecycleState {
    /// Batch whose input file is being validated.
    Validating,
    /// Batch whose lines are processed, or wait for the planned start.
    InProgress,
    /// Batch whose lines all have their result.
    Completed,
    /// Batch that ended early with an error.
    Failed,
    /// Batch that was cancelled by its owner.
    Cancelled,
}

impl LifecycleState {
    /// Returns the name used in the API.
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

    /// Returns the state with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// All lifecycle states of a batch.
    pub const ALL: [Self; 5] =
        [Self::Validating, Self::InProgress, Self::Completed, Self::Failed, Self::Cancelled];

    /// Returns true if the state is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Reason for the end of a batch before its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEndReason {
    /// Cancellation by the owner.
    Cancelled,
    /// Input file that cannot be processed.
    InvalidInput,
    /// Input file that was deleted while the batch ran.
    InputDeleted,
    /// Completion window over before the last line was processed.
    Expired,
    /// API key that was revoked or has expired.
    KeyRevoked,
    /// Output file whose bytes differ from those written.
    OutputDamaged,
}

impl EarlyEndReason {
    /// Returns the error code of the batch; `None` for a cancelled batch, which has no error.
    #[must_use]
    pub const fn code(self) -> Option<&'static str> {
        match self {
            Self::Cancelled => None,
            Self::InvalidInput => Some("invalid_input_file"),
            Self::InputDeleted => Some("input_file_deleted"),
            Self::Expired => Some("batch_expired"),
            Self::KeyRevoked => Some("key_revoked"),
            Self::OutputDamaged => Some("output_file_damaged"),
        }
    }

    /// Returns the reason as a sentence for users.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Cancelled => "The batch was cancelled.",
            Self::InvalidInput => "The input file cannot be processed.",
            Self::InputDeleted => "The input file was deleted while the batch ran; finished lines are kept.",
            Self::Expired => "The completion window ended before the last line; finished lines are kept.",
            Self::KeyRevoked => "The API key of the batch is no longer valid; finished lines are kept.",
            Self::OutputDamaged => "The output file was damaged on the disk.",
        }
    }
}

/// Number of lines by outcome. All other lines are pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Number of lines in the input.
    pub total: u32,
    /// Number of lines answered successfully.
    pub completed: u32,
    /// Number of lines answered with an error.
    pub failed: u32,
    /// Number of lines without a result because the batch was ended before they were answered.
    pub cancelled: u32,
    /// Number of lines without a result because the completion window ended before they were answered.
    pub expired: u32,
}

impl LineCounts {
    /// Returns the number of lines that have a result.
    #[must_use]
    pub const fn finished_count(&self) -> u32 {
        self.completed.saturating_add(self.failed)
    }

    /// Returns the number of pending lines.
    #[must_use]
    pub const fn pending_count(&self) -> u32 {
        let ended = self.finished_count().saturating_add(self.cancelled).saturating_add(self.expired);
        self.total.saturating_sub(ended)
    }
}

/// Times of the transitions of a batch, Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransitionTimes {
    /// Start of processing or of the wait for the planned start; `None` before it.
    pub in_progress: Option<u64>,
    /// Time of completion, in Unix seconds; `None` if the batch was not completed.
    pub completed: Option<u64>,
    /// Time of failure, in Unix seconds; `None` if the batch did not fail.
    pub failed: Option<u64>,
    /// Time of cancellation, in Unix seconds; `None` if the batch was not cancelled.
    pub cancelled: Option<u64>,
}

/// State of a batch, with its line counts and the times of its transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLifecycle {
    /// Current state.
    pub state: LifecycleState,
    /// Number of lines by outcome.
    pub counts: LineCounts,
    /// Times of the transitions.
    pub times: TransitionTimes,
}

impl Default for BatchLifecycle {
    fn default() -> Self {
        Self {
            state: LifecycleState::Validating,
            counts: LineCounts::default(),
            times: TransitionTimes::default(),
        }
    }
}

impl BatchLifecycle {
    /// Starts a validated batch with this many lines. Returns false if the batch was started before or has ended.
    pub fn start(&mut self, lines: u32, now: u64) -> bool {
        if self.state != LifecycleState::Validating {
            return false;
        }
        self.state = LifecycleState::InProgress;
        self.counts.total = lines;
        self.times.in_progress = Some(now);
        true
    }

    /// Counts the result of a line; the last one completes the batch. Returns false if the batch is not in progress.
    pub fn finish_line(&mut self, good: bool, now: u64) -> bool {
        if self.state != LifecycleState::InProgress || self.counts.pending_count() == 0 {
            return false;
        }
        if good {
            self.counts.completed += 1;
        } else {
            self.counts.failed += 1;
        }
        if self.counts.pending_count() == 0 {
            self.state = LifecycleState::Completed;
            self.times.completed = Some(now);
        }
        true
    }

    /// Ends the batch before its last line; existing results remain. Returns false if it had already ended.
    pub fn end_early(&mut self, why: EarlyEndReason, now: u64) -> bool {
        if self.state.is_final() {
            return false;
        }
        let left = self.counts.pending_count();
        match why {
            EarlyEndReason::Expired => self.counts.expired = left,
            _ => self.counts.cancelled = left,
        }
        if why == EarlyEndReason::Cancelled {
            self.state = LifecycleState::Cancelled;
            self.times.cancelled = Some(now);
        } else {
            self.state = LifecycleState::Failed;
            self.times.failed = Some(now);
        }
        true
    }
}
