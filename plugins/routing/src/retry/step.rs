//! Step that the planner asks the caller to take.

use std::time::Duration;

/// Step that the caller of the retry planner has to take next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAction {
    /// Send the request to this offer.
    Attempt(usize),
    /// Sleep, then call [`RetryPlanner::on_sleep_elapsed`](super::RetryPlanner::on_sleep_elapsed), which returns the
    /// same offer again unless the deadline has passed.
    RetrySame {
        /// Index of the offer that is tried again.
        offer: usize,
        /// Duration of the sleep before the next attempt.
        after: Duration,
    },
    /// Sleep until this time, then call [`RetryPlanner::on_sleep_elapsed`](super::RetryPlanner::on_sleep_elapsed).
    WaitUntil(Duration),
    /// The providers of all usable offers are at their concurrency limit: wait for a permit at one of
    /// [`RetryPlanner::full_offers`](super::RetryPlanner::full_offers).
    WaitForPermit,
    /// Failure caused by the client's request or by the model's output: return its error to the client.
    ReturnError,
    /// End of the attempts: another one is not permitted or not useful, so the client gets a 503.
    GiveUp {
        /// Value of `Retry-After`, 1 to 5 seconds.
        retry_after: u32,
    },
}
