//! Token counts of requests: checks whether a request fits into the context windows of a model's offers, and computes
//! the number of tokens that are left for the answer. A request that has too few bytes to exceed the window is never
//! tokenised.

mod fit;
mod prompts;

pub use fit::{
    OutputTokenBudget, WindowFit, limited_output_budget, lowered_output_tokens, minimum_tokens,
    requested_output_tokens, window_fit,
};

pub use crate::limits::tokenizer_permits::TokenizerPermits;
use crate::upstream::count_queue::MAX_INLINE_COUNT_BYTES;
pub use crate::upstream::count_queue::TokenCountContext;

use crate::upstream::config_snapshot::ModelState;
use crate::upstream::tokenize;
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, InferenceTask, RequestBodyFormat, UsageBounds};
use penstock_tokens::{
    CountBudget, CountMethod, PromptConversation, PromptParseError, TokenCount, TokenCounter,
    max_conversation_tokens_within, max_prompt_tokens,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Number of tokens up to which a count is always exact, so that the refusal of a small window states the exact number.
/// Such a count takes tens of milliseconds at most. A count stops at the larger of this number and the window.
const MIN_EXACT_TOKENS: u64 = 32_768;

/// Number of tokens up to which the token count of a prompt is estimated from its text, so that the estimate takes at
/// most about a second. Beyond it, and beyond what fits any window, the number of bytes is the estimate.
const MAX_ESTIMATED_TOKENS: u64 = 1 << 20;

/// Checks a request against the windows of a model's offers. Returns the token count of the prompt if the request might
/// not fit into all windows with the full length of the answer.
///
/// An estimate never refuses a request, because the estimate may be too high; the provider decides.
///
/// # Errors
/// Returns a refusal if the input alone fits no window, if too many other counts are waiting, or on an internal error.
pub async fn check_prompt_length(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> Result<Option<TokenCount>, ApiError> {
    match &ask.task {
        InferenceTask::Chat => check_conversation(counting, model, ask).await,
        InferenceTask::Embed(_) | InferenceTask::Rerank(_) => {
            Box::pin(check_texts(counting, model, ask)).await.map(|()| None)
        }
        InferenceTask::Complete(_) => Box::pin(prompts::check_longest_prompt(counting, model, ask)).await,
        // An image prompt that is too long is truncated by the engine; audio has no window.
        InferenceTask::GenerateImages(_) | InferenceTask::Transcribe(_) | InferenceTask::Passthrough(_) => {
            Ok(None)
        }
    }
}

/// Checks the longest text against the window of the model. Without a tokenizer, only arrays of token ids are
/// checked, and the provider decides on texts.
async fn check_texts(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> Result<(), ApiError> {
    let window = model.model.card.context_length;
    let long = longest_text(&ask.task);
    if max_prompt_tokens(long, 0, 0) <= window {
        return Ok(());
    }
    let Some(quick) = is_count_quick(model, ask) else { return Ok(()) };
    let (model, task) = (model.clone(), ask.task.clone());
    let work = move |stop: &AtomicBool| {
        let counter = model.model.tokenizer.as_ref().map(|tokenizer| &*tokenizer.0);
        longest_token_count(counter, &task, window, window, stop)
    };
    let tokens = if quick { work(&AtomicBool::new(false)) } else { counting.run_with_permit(work).await? };
    if tokens > window { Err(context_exceeded(window, tokens)) } else { Ok(()) }
}

/// Returns true if the count of the texts is so quick that it needs no permit. Returns `None` if nothing can be
/// counted: without a tokenizer, only token ids can be.
fn is_count_quick(model: &ModelState, ask: &InferenceRequest) -> Option<bool> {
    if model.model.tokenizer.is_some() {
        return Some(ask.body.len() <= MAX_INLINE_COUNT_BYTES);
    }
    let has_ids = |values: &[Bytes]| values.iter().any(|value| value.starts_with(b"["));
    match &ask.task {
        InferenceTask::Complete(task) => has_ids(&task.prompts),
        InferenceTask::Embed(embed) => has_ids(embed.inputs.values()),
        _ => false,
    }
    .then_some(true)
}

/// Returns the size in bytes of the longest text that has to fit into the window.
fn longest_text(task: &InferenceTask) -> usize {
    let most = |texts: &[Bytes]| texts.iter().map(Bytes::len).max().unwrap_or(0);
    match task {
        InferenceTask::Chat
        | InferenceTask::GenerateImages(_)
        | InferenceTask::Transcribe(_)
        | InferenceTask::Passthrough(_) => 0,
        InferenceTask::Complete(task) => most(&task.prompts),
        InferenceTask::Embed(embed) => most(embed.inputs.values()),
        InferenceTask::Rerank(rerank) => rerank.query.len().saturating_add(most(&rerank.documents)),
    }
}

/// Returns the number of tokens up to which a count is exact, if `window` is the largest window of the model.
const fn exact_limit(window: u64) -> u64 {
    if window > MIN_EXACT_TOKENS { window } else { MIN_EXACT_TOKENS }
}

/// Returns the refusal of an input that fits no window.
fn context_exceeded(window: u64, tokens: u64) -> ApiError {
    let refusal = ApiError::context_length_exceeded(window, tokens);
    if tokens > exact_limit(window) {
        refusal.with_details_member("input_tokens_at_least", true)
    } else {
        refusal
    }
}

/// Returns the number of tokens of the longest of the texts that may have more than `fits` tokens, or 0. The count
/// stops at the first text with more than `window` tokens. Without a `counter`, only token ids are counted.
fn longest_token_count(
    counter: Option<&TokenCounter>,
    task: &InferenceTask,
    fits: u64,
    window: u64,
    stop: &AtomicBool,
) -> u64 {
    let budget = CountBudget { max_tokens: exact_limit(window), stop };
    let count = |json: &Bytes| {
        let counted = || {
            let counter = counter?;
            let text = serde_json::from_slice::<String>(json).ok()?;
            counter.count_text_within(&text, &budget)
        };
        prompts::token_id_count(json).or_else(counted).unwrap_or(0)
    };
    let might = |json: &Bytes, beside: usize| max_prompt_tokens(json.len() + beside, 0, 0) > fits;
    let longest = |texts: &[Bytes], beside: usize, more: u64| {
        let mut most = 0;
        for json in texts.iter().filter(|json| might(json, beside)) {
            most = most.max(count(json).saturating_add(more));
            if most > window {
                break;
            }
        }
        most
    };
    match task {
        InferenceTask::Chat
        | InferenceTask::GenerateImages(_)
        | InferenceTask::Transcribe(_)
        | InferenceTask::Passthrough(_) => 0,
        InferenceTask::Complete(task) => longest(&task.prompts, 0, 0),
        InferenceTask::Embed(embed) => longest(embed.inputs.values(), 0, 0),
        InferenceTask::Rerank(rerank) => {
            let query = count(&rerank.query);
            if query > window { query } else { longest(&rerank.documents, rerank.query.len(), query) }
        }
    }
}

/// Checks a conversation; its prompt and its answer share the window.
async fn check_conversation(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> Result<Option<TokenCount>, ApiError> {
    let offers = || model.offers.iter().filter_map(|index| counting.config.offers.get(*index));
    let window = model.model.card.context_length;
    let narrow = offers().map(|offer| offer.offer.context_length).min().unwrap_or(window);
    let wide = offers().map(|offer| offer.offer.context_length).max().unwrap_or(window);
    let wanted = offers().filter_map(|offer| requested_output_tokens(ask, offer)).max();
    let bound = max_prompt_tokens(ask.prompt_bytes, ask.image_count, image_token_bound(model));
    if bound.saturating_add(wanted.unwrap_or(1)) <= narrow {
        return Ok(None);
    }
    // The future is boxed, because few requests need the count and its state would enlarge the future of every request.
    match Box::pin(count_exactly(counting, model, ask, wide)).await? {
        Some(count) if count.tokens >= wide => Err(context_exceeded(wide, count.tokens)),
        Some(count) => Ok(Some(count)),
        // All offers have windows of the same size, so the provider itself limits the answer to the remaining tokens.
        None if wanted.is_none() && narrow == wide => Ok(None),
        None => Box::pin(estimate_tokens(counting, model, ask, estimate_limit(wide))).await.map(Some),
    }
}

/// Returns the maximum number of tokens of one image.
fn image_token_bound(model: &ModelState) -> u64 {
    let rule = model.model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.0.max_image_tokens());
    rule.unwrap_or(UsageBounds::MAX_IMAGE_TOKENS)
}

/// Counts the tokens of a request's prompt: with the tokenizer of the model, else with an engine that serves the model,
/// else with an estimate that is not too low. An estimate above the window is returned as well, because it may be too
/// high.
///
/// # Errors
/// Returns a refusal if the body is not a conversation, if the prompt is so far beyond the window that an exact count
/// was stopped, if too many other counts are waiting, or on an internal error.
pub async fn count_prompt_tokens(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> Result<TokenCount, ApiError> {
    let offers = model.offers.iter().filter_map(|index| counting.config.offers.get(*index));
    let wide = offers.map(|offer| offer.offer.context_length).max();
    let wide = wide.unwrap_or(model.model.card.context_length);
    match count_exactly(counting, model, ask, wide).await? {
        Some(count) if count.method == CountMethod::Exact && count.tokens > exact_limit(wide) => {
            Err(context_exceeded(wide, count.tokens))
        }
        Some(count) => Ok(count),
        None => {
            let max_tokens = estimate_limit(wide).max(MAX_ESTIMATED_TOKENS);
            let count = estimate_tokens(counting, model, ask, max_tokens).await?;
            let is_complete = count.tokens <= max_tokens;
            Ok(if is_complete { count } else { byte_bound(model, ask) })
        }
    }
}

/// Returns the token count of a prompt that a provider refused without counting it whole. If the prompt cannot be
/// counted, the number of its bytes is the estimate.
pub async fn count_refused_prompt(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
) -> TokenCount {
    if !matches!(ask.task, InferenceTask::Chat) {
        let tokens = max_prompt_tokens(longest_text(&ask.task), 0, 0);
        return TokenCount { tokens, method: CountMethod::Estimate };
    }
    match count_prompt_tokens(counting, model, ask).await {
        Ok(count) => count,
        // The count was stopped because the prompt exceeds every window of the model.
        Err(refusal) if refusal.code == ErrorCode::ContextLength => {
            TokenCount { tokens: u64::MAX, method: CountMethod::Estimate }
        }
        Err(_) => byte_bound(model, ask),
    }
}

/// Counts the tokens by the tokenizer, or else by an engine; `None` if neither can.
async fn count_exactly(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
    wide: u64,
) -> Result<Option<TokenCount>, ApiError> {
    if model.model.tokenizer.is_some()
        && let Some(count) = count_locally(counting, model, ask, wide).await?
    {
        return Ok(Some(count));
    }
    let tokens = Box::pin(tokenize::count_tokens_at_provider(counting, model, ask)).await;
    Ok(tokens.map(|tokens| TokenCount { tokens, method: CountMethod::Engine }))
}

/// Returns the number at which the estimate of a request for a provider stops. Beyond it, the request counts as too
/// long for every window of the model, so the exact number makes no difference.
const fn estimate_limit(wide: u64) -> u64 {
    (exact_limit(wide) / 5).saturating_add(1).saturating_mul(8)
}

/// Estimates the number of tokens. Up to `max_tokens`, at which the estimate stops, the result is not lower than the
/// real number. The work is linear in the size of the body.
async fn estimate_tokens(
    counting: &TokenCountContext,
    model: &ModelState,
    ask: &InferenceRequest,
    max_tokens: u64,
) -> Result<TokenCount, ApiError> {
    let count = move |conversation: PromptConversation, stop: &AtomicBool| {
        max_conversation_tokens_within(&conversation, None, &CountBudget { max_tokens, stop })
    };
    let counted = count_conversation(counting, ask, count).await;
    counted.map(|count| count.unwrap_or_else(|| byte_bound(model, ask)))
}

/// Returns the estimate from the number of bytes alone.
fn byte_bound(model: &ModelState, ask: &InferenceRequest) -> TokenCount {
    let tokens = max_prompt_tokens(ask.prompt_bytes, ask.image_count, image_token_bound(model));
    TokenCount { tokens, method: CountMethod::Estimate }
}

/// Counts the tokens by the tokenizer of the model; `None` if the conversation cannot be counted exactly, or not within
/// the memory for parsing.
async fn count_locally(
    counting: &TokenCountContext,
    model: &Arc<ModelState>,
    ask: &InferenceRequest,
    wide: u64,
) -> Result<Option<TokenCount>, ApiError> {
    let model = model.clone();
    let count = move |conversation: PromptConversation, stop: &AtomicBool| {
        let budget = CountBudget { max_tokens: exact_limit(wide), stop };
        model.model.tokenizer.as_ref()?.0.count_within(&conversation, &budget).ok()
    };
    count_conversation(counting, ask, count).await
}

/// Reads the conversation and counts its tokens, on a blocking thread if it is long. Returns `None` if `count` does, or
/// if the conversation cannot be read within memory of a few times its size.
async fn count_conversation(
    counting: &TokenCountContext,
    ask: &InferenceRequest,
    count: impl FnOnce(PromptConversation, &AtomicBool) -> Option<TokenCount> + Send + 'static,
) -> Result<Option<TokenCount>, ApiError> {
    let (body, form) = (ask.body.clone(), ask.dialect.request_body_format());
    let quick = body.len() <= MAX_INLINE_COUNT_BYTES;
    let work = move |stop: &AtomicBool| {
        if !PromptConversation::fits_parse_memory_limit(&body) {
            return Ok(None);
        }
        match form {
            RequestBodyFormat::Chat => PromptConversation::from_chat(&body),
            RequestBodyFormat::Messages => PromptConversation::from_messages(&body),
        }
        .map(|conversation| count(conversation, stop))
    };
    let counted: Result<Option<TokenCount>, PromptParseError> =
        if quick { work(&AtomicBool::new(false)) } else { counting.run_with_permit(work).await? };
    counted.map_err(|_| ApiError::invalid("messages", "The messages cannot be read for counting."))
}
