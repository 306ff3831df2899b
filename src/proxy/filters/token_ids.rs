//! Token ids in a request for embeddings: their text is what providers are sent, where the model's setting says so.

use super::candidates::model_named;
use super::request::{InferenceRequest, RequestFilter};
use crate::config::settings::TokenIdPolicy;
use crate::proxy::exchange::{Ended, Exchange};
use bytes::Bytes;
use penstock_contract::{Ask, Embed, Inputs, Refusal, Task};
use penstock_tokens::Encoding;
use std::ops::ControlFlow;

/// Largest body that is decoded on the thread of its request, bytes.
const QUICK: usize = 256 * 1024;

/// Filter that decodes token ids to text.
pub struct DecodeTokenIds;

impl RequestFilter for DecodeTokenIds {
    const NAME: &'static str = "decode_token_ids";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        if let Some(ask) = request.ask.take() {
            request.ask = Some(in_texts(request.x, ask).await?);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the request with texts instead of token ids, as the setting of its model says.
async fn in_texts(x: &mut Exchange<'_>, ask: Ask) -> Result<Ask, Refusal> {
    let Task::Embed(Embed { inputs: Inputs::Ids(_) | Inputs::Mixed(_), .. }) = &ask.task else {
        return Ok(ask);
    };
    let (name, _) = penstock_routing::split(&ask.model);
    match model_named(&x.live, name)?.model.token_ids {
        TokenIdPolicy::Native => Ok(ask),
        TokenIdPolicy::Refuse => {
            Err(Refusal::unsupported("input", "input: this model takes texts, not token ids."))
        }
        TokenIdPolicy::Text(encoding) if ask.body.len() <= QUICK => decoded(ask, encoding),
        TokenIdPolicy::Text(encoding) => {
            // An id of a few digits may stand for 128 bytes: one account writes one such text at a time, and the text
            // counts as a body does.
            let ask = x.counting().in_turn(move |_| decoded(ask, encoding)).await??;
            x.hold(ask.prompt_bytes)?;
            Ok(ask)
        }
    }
}

/// Writes the text of each array of ids. What is a text already stays as it is.
fn decoded(mut ask: Ask, encoding: Encoding) -> Result<Ask, Refusal> {
    let Task::Embed(embed) = &mut ask.task else { return Ok(ask) };
    let arrays = embed.inputs.values();
    // One array may be the input itself, or the only one in a list.
    let nested =
        ask.fields.get("input").is_some_and(|input| arrays.iter().all(|ids| ids.len() < input.value.len()));
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
            .map_err(|_| Refusal::invalid(at.as_str(), format!("{at}: expected token ids.")))?;
        let text = encoding.decode(&ids).map_err(|place| unknown(&at, place, encoding))?;
        prompt_bytes += text.len();
        let mut json = Vec::with_capacity(text.len() + 2);
        penstock_wire::json::write_str(&mut json, &text);
        texts.push(Bytes::from(json));
    }
    embed.inputs = Inputs::Texts(texts);
    embed.verbatim = false;
    ask.prompt_bytes = prompt_bytes;
    Ok(ask)
}

fn unknown(at: &str, place: usize, encoding: Encoding) -> Refusal {
    let at = format!("{at}[{place}]");
    let sentence = format!(
        "{at}: expected a token id of {}. Send texts to be independent of vocabularies \
         (LangChain: check_embedding_ctx_length=False).",
        encoding.name()
    );
    Refusal::invalid(at, sentence)
}
