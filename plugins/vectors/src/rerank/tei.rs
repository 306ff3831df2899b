//! Request `POST /rerank` of text-embeddings-inference: `texts` instead of documents, a bare list of scores, and the
//! tokens in a header.

use super::{parts, read, task};
use crate::text::list;
use bytes::Bytes;
use penstock_contract::{
    Answer, Ask, Call, Extra, Fault, FaultKind, Kind, Refusal, Score, Shape, Target, Whole,
};

/// Shape of text-embeddings-inference.
#[derive(Clone, Copy, Debug)]
pub struct Tei;

impl Shape for Tei {
    fn kind(&self) -> Kind {
        Kind::Rerank
    }

    fn name(&self) -> &'static str {
        "tei"
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn heeds(&self) -> &'static [&'static str] {
        &["x-compute-tokens"]
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let rerank = task(ask).ok_or_else(|| Refusal::invalid("documents", "documents: expected texts."))?;
        // It can return either; the sigmoid is applied once, here or there.
        let raw = target.abilities.score == Score::Sigmoid;
        let call = |documents: &[Bytes]| {
            let mut body = vec![Bytes::from_static(br#"{"query":"#), rerank.query.clone()];
            body.push(Bytes::from_static(br#","texts":"#));
            list(documents, &mut body);
            let scores =
                if target.says(Extra::RawScores) { format!(r#","raw_scores":{raw}}}"#) } else { "}".into() };
            body.push(Bytes::from(scores));
            Call::json(body)
        };
        Ok(parts(rerank, target).map(call).collect())
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let rerank = task(ask).ok_or_else(|| Fault::new(FaultKind::Malformed))?;
        let scores = parts(rerank, target).zip(answers).map(|(documents, answer)| {
            let mut scores = read(&answer.body, documents.len())?;
            scores.said.tokens = answer.number(0);
            Ok(scores)
        });
        super::whole(ask, target, scores.collect::<Result<_, Fault>>()?)
    }
}
