//! `POST /v1/embeddings`: embeddings of texts. Token IDs are decoded to text first.

use super::Endpoint;
use crate::config::settings::TokenIdPolicy;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover::{self, model_named};
use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_contract::{Ask, Embed, Inputs, Refusal, Task};
use penstock_tokens::Encoding;

/// Size in bytes up to which bodies are decoded on the current thread.
const QUICK: usize = 256 * 1024;

/// Endpoint of embeddings.
pub struct Embeddings;

#[async_trait]
impl Endpoint for Embeddings {
    fn name(&self) -> &'static str {
        "embeddings"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/embeddings"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Embeddings
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let ask = penstock_admission::embeddings(body, &x.live.admission)?;
        let ask = in_texts(x, ask).await?;
        failover::run(x, &ask).await
    }
}

/// Replaces token IDs with their texts, if the model's configuration says so.
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
            // An ID of a few digits may decode to 128 bytes: an account decodes one such text at a time, and the text
            // counts as body memory.
            let ask = x.counting().in_turn(move |_| decoded(ask, encoding)).await??;
            x.hold(ask.prompt_bytes)?;
            Ok(ask)
        }
    }
}

/// Decodes each array of token IDs. Inputs that are texts already do not change.
fn decoded(mut ask: Ask, encoding: Encoding) -> Result<Ask, Refusal> {
    let Task::Embed(embed) = &mut ask.task else { return Ok(ask) };
    let arrays = embed.inputs.values();
    // A single array may be the input itself, or the only array of a list.
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
