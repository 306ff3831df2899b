//! Token ids as the input of an embeddings request. If the setting of the model says so, the gateway decodes them and
//! sends the text to the provider.

use super::candidates::find_model;
use super::request::{InferenceContext, RequestFilter};
use crate::config::settings::TokenIdPolicy;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use bytes::Bytes;
use penstock_core::{ApiError, EmbeddingInputs, EmbeddingTask, InferenceRequest, InferenceTask};
use penstock_tokens::PublishedEncoding;
use std::ops::ControlFlow;

/// Maximum size in bytes of a body that is decoded on the thread of its request.
const INLINE_DECODE_BYTES: usize = 256 * 1024;

/// Request filter that replaces the token ids in the input of an embeddings request by text, if the setting of the model
/// says so.
pub struct DetokenizeInput;

impl RequestFilter for DetokenizeInput {
    const NAME: &'static str = "detokenize_input";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        if let Some(ask) = request.ask.take() {
            request.ask = Some(replace_token_ids(request.exchange, ask).await?);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the request with texts instead of token ids, as the setting of its model says.
async fn replace_token_ids(
    x: &mut Exchange<'_>,
    ask: InferenceRequest,
) -> Result<InferenceRequest, ApiError> {
    let InferenceTask::Embed(EmbeddingTask {
        inputs: EmbeddingInputs::TokenIds(_) | EmbeddingInputs::Mixed(_),
        ..
    }) = &ask.task
    else {
        return Ok(ask);
    };
    let (name, _) = penstock_routing::split_flavor(&ask.model);
    match find_model(&x.config, name)?.model.token_ids {
        TokenIdPolicy::Native => Ok(ask),
        TokenIdPolicy::Refuse => {
            Err(ApiError::unsupported("input", "input: this model takes texts, not token ids."))
        }
        TokenIdPolicy::Text(encoding) if ask.body.len() <= INLINE_DECODE_BYTES => {
            decode_token_ids(ask, encoding)
        }
        TokenIdPolicy::Text(encoding) => {
            // The text of a token id can be longer than its digits, up to 128 bytes. Therefore only one request per
            // account is decoded at a time, and the decoded text counts as memory like a body.
            let ask =
                x.token_count_context().run_with_permit(move |_| decode_token_ids(ask, encoding)).await??;
            x.reserve_memory(ask.prompt_bytes)?;
            Ok(ask)
        }
    }
}

/// Replaces each array of ids by its text. Texts stay unchanged.
fn decode_token_ids(
    mut ask: InferenceRequest,
    encoding: PublishedEncoding,
) -> Result<InferenceRequest, ApiError> {
    let InferenceTask::Embed(embed) = &mut ask.task else { return Ok(ask) };
    let arrays = embed.inputs.values();
    // A single array may be the input itself, or the only element of a list.
    let nested = ask
        .members
        .get("input")
        .is_some_and(|input| arrays.iter().all(|ids| ids.len() < input.value_range.len()));
    let mut texts = Vec::with_capacity(arrays.len());
    let mut prompt_bytes = 0;
    for (index, array) in arrays.iter().enumerate() {
        if array.first() == Some(&b'"') {
            prompt_bytes += array.len().saturating_sub(2);
            texts.push(array.clone());
            continue;
        }
        let at = if nested { format!("input[{index}]") } else { "input".to_owned() };
        let ids: Vec<u32> = serde_json::from_slice(array)
            .map_err(|_| ApiError::invalid(at.as_str(), format!("{at}: expected token ids.")))?;
        let text =
            encoding.decode_token_ids(&ids).map_err(|position| unknown_token(&at, position, encoding))?;
        prompt_bytes += text.len();
        let mut json = Vec::with_capacity(text.len() + 2);
        penstock_json_scan::json::write_str(&mut json, &text);
        texts.push(Bytes::from(json));
    }
    embed.inputs = EmbeddingInputs::Texts(texts);
    embed.is_verbatim = false;
    ask.prompt_bytes = prompt_bytes;
    Ok(ask)
}

fn unknown_token(list_path: &str, position: usize, encoding: PublishedEncoding) -> ApiError {
    let token_path = format!("{list_path}[{position}]");
    let sentence = format!(
        "{token_path}: expected a token id of {}. Send texts to be independent of vocabularies \
         (LangChain: check_embedding_ctx_length=False).",
        encoding.name()
    );
    ApiError::invalid(token_path, sentence)
}
