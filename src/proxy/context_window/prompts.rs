//! Check of text completions: each prompt shares its context window with its own answers.

use super::{
    TokenCountContext, context_exceeded, is_count_quick, longest_text, longest_token_count,
    requested_output_tokens,
};
use crate::upstream::config_snapshot::ModelState;
use penstock_core::{ApiError, InferenceRequest};
use penstock_tokens::{CountMethod, TokenCount, max_prompt_tokens};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Checks the longest prompt of a text completion. Returns its token count if it might not fit into all windows with
/// the full length of the answer. Arrays of token ids are counted even without a tokenizer. For texts without a
/// tokenizer, the provider decides.
///
/// # Errors
/// Returns a refusal if a prompt fits no window, if too many other counts are waiting, or on an internal error.
pub(super) async fn check_longest_prompt(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> Result<Option<TokenCount>, ApiError> {
    let offers = || model.offers.iter().filter_map(|index| counting.config.offers.get(*index));
    let window = model.model.card.context_length;
    let narrow = offers().map(|offer| offer.offer.context_length).min().unwrap_or(window);
    let wide = offers().map(|offer| offer.offer.context_length).max().unwrap_or(window);
    let wanted = offers().filter_map(|offer| requested_output_tokens(ask, offer)).max().unwrap_or(1);
    let fits = narrow.saturating_sub(wanted);
    if max_prompt_tokens(longest_text(&ask.task), 0, 0) <= fits {
        return Ok(None);
    }
    let Some(quick) = is_count_quick(model, ask) else { return Ok(None) };
    let (state, task) = (model.clone(), ask.task.clone());
    let work = move |stop: &AtomicBool| {
        let counter = state.model.tokenizer.as_ref().map(|tokenizer| &*tokenizer.0);
        longest_token_count(counter, &task, fits, wide, stop)
    };
    let tokens = if quick { work(&AtomicBool::new(false)) } else { counting.run_with_permit(work).await? };
    // With `max_tokens: 0` a prompt may fill the window, because nothing is generated.
    if tokens.saturating_add(wanted.min(1)) > wide {
        return Err(context_exceeded(wide, tokens));
    }
    Ok((tokens > fits).then_some(TokenCount { tokens, method: CountMethod::Exact }))
}

/// Returns the number of token ids of a prompt or an input; `None` for a text. Validation ensures that the array is
/// flat.
pub(super) fn token_id_count(value: &[u8]) -> Option<u64> {
    let ids = value.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let separators = ids.iter().filter(|byte| **byte == b',').count();
    let is_empty = ids.iter().all(u8::is_ascii_whitespace);
    Some(if is_empty { 0 } else { u64::try_from(separators).unwrap_or(u64::MAX).saturating_add(1) })
}

#[cfg(test)]
mod tests {
    use super::token_id_count;

    #[test]
    fn token_ids_are_counted_and_texts_are_not() {
        for (value, count) in [
            ("[1]", Some(1)),
            ("[ 1 , 2,3\n]", Some(3)),
            ("[]", Some(0)),
            ("[ ]", Some(0)),
            (r#""[1,2]""#, None),
            ("", None),
        ] {
            assert_eq!(token_id_count(value.as_bytes()), count, "{value}");
        }
    }
}
