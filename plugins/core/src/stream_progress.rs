//! Progress of a streamed answer, and the method of resuming a broken one.

/// Progress of a streamed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamProgress {
    /// No content token yet: nothing is sent to the client, and a failover is invisible.
    Pending,
    /// At least one content token received (text, reasoning or tool call).
    Committed,
    /// Finish reason received for every choice. Usage may follow, and from some engines more output.
    Finished,
    /// The last event was received, so the connection can be closed.
    Ended,
}

/// Method of resuming a broken stream at another provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RescueMode {
    /// Starts the answer again. Output is dropped as long as it repeats the text that the client already has.
    StartOver,
    /// Continues the text returned by [`crate::StreamTranslation::delivered_text`].
    Continue,
}
