//! Exploration by a request: the offers with missing or uncertain figures to which it may be sent.

use penstock_core::{InferenceRequest, InferenceTask};
use penstock_routing::{ExplorationScope, Flavor, MAX_EXPLORATION_PROMPT_TOKENS};

/// Maximum size in bytes of an audio file that counts as small.
const MAX_SMALL_AUDIO_BYTES: u64 = 1 << 20;

/// Returns true for a request that is small enough to be sent to an offer with too few measurements.
pub(super) fn is_small(ask: &InferenceRequest, prompt: u64) -> bool {
    match &ask.task {
        InferenceTask::Transcribe(task) => task.audio.bytes <= MAX_SMALL_AUDIO_BYTES,
        InferenceTask::Chat
        | InferenceTask::Complete(_)
        | InferenceTask::Embed(_)
        | InferenceTask::Rerank(_)
        | InferenceTask::GenerateImages(_)
        | InferenceTask::Passthrough(_) => prompt <= MAX_EXPLORATION_PROMPT_TOKENS,
    }
}

/// Returns the offers that a request may explore; `None` if it may explore none. `small` is true for a small request.
/// `is_held` is true if an offer has answered its session: the session stays there, because exploration would lose the
/// cached prefix. The first turn of a session may be repeated by other conversations, so it may explore nevertheless.
pub(super) fn exploration_scope(
    flavor: &dyn Flavor,
    small: bool,
    is_first_turn: bool,
    is_held: bool,
) -> Option<ExplorationScope> {
    if small && flavor.allows_exploration() && (is_first_turn || !is_held) {
        return Some(ExplorationScope::AllOffers);
    }
    (!is_held).then_some(ExplorationScope::EqualOffers)
}
