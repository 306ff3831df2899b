//! Embeddings: the parts that every shape shares.
//!
//! Vectors that already have the form that the client requests are never copied: the answer is written around slices of
//! the provider's bytes.

pub(crate) mod openai;
pub(crate) mod tei;
mod vectors;

use crate::said::Said;
use crate::text::quoted;
use bytes::Bytes;
use penstock_contract::{Ask, Done, Embed, Fault, FaultKind, Finish, Noticed, Target, Task, Whole};
use vectors::{Vectors, Wanted};

/// Returns the task of an embeddings request. The kind was checked before.
fn task(ask: &Ask) -> Option<&Embed> {
    match &ask.task {
        Task::Embed(embed) => Some(embed),
        _ => None,
    }
}

/// Splits the inputs into batches that the provider accepts. No engine reads texts and token ids in one list, so a call
/// has only one kind.
fn parts<'a>(embed: &'a Embed, target: &Target<'_>) -> impl Iterator<Item = &'a [Bytes]> {
    let all = embed.inputs.values();
    let most = target.abilities.max_inputs.unwrap_or(all.len()).max(1);
    let runs = all.chunk_by(|one, next| is_ids(one) == is_ids(next));
    runs.flat_map(move |run| run.chunks(most))
}

/// Returns true if an input is an array of token ids.
fn is_ids(input: &Bytes) -> bool {
    input.first() == Some(&b'[')
}

/// Joins the parts of an answer and writes it for the client.
///
/// # Errors
/// Returns `Malformed` unless there is one vector for each input, all of one length.
fn whole(ask: &Ask, target: &Target<'_>, parts: Vec<(Vectors, Said)>) -> Result<Whole, Fault> {
    let malformed = || Fault::new(FaultKind::Malformed);
    let embed = task(ask).ok_or_else(malformed)?;
    let (vectors, said): (Vec<Vectors>, Vec<Said>) = parts.into_iter().unzip();
    let count: usize = vectors.iter().map(Vectors::len).sum();
    let lengths = vectors.iter().map(Vectors::dimensions);
    let length = lengths.reduce(|one, other| one.filter(|length| Some(*length) == other)).flatten();
    let asked = embed.dimensions.and_then(|length| usize::try_from(length).ok());
    if count != embed.inputs.len() || length.is_none() || (asked.is_some() && asked != length) {
        return Err(malformed());
    }
    let said = Said::sum(said);
    let usage = said.usage(ask, target);
    let mut body = vec![Bytes::from(
        [br#"{"object":"list","model":"#, quoted(target.answer_model).as_slice(), br#","data":"#].concat(),
    )];
    vectors::write(vectors, &mut body);
    let tokens = usage.input;
    body.push(Bytes::from(format!(r#","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#)));
    Ok(Whole {
        body,
        done: Some(Done::Tokens(usage)),
        measured: said.measured,
        finish: Finish::Stop,
        output_bytes: 0,
        pictures: Vec::new(),
        noticed: Noticed::default(),
    })
}

/// Returns the vector form that the client requests.
fn wanted(embed: &Embed) -> Wanted {
    if embed.base64 { Wanted::Base64 } else { Wanted::Floats }
}
