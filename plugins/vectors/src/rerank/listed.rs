//! Request `{model, query, documents}`: the shape that vLLM, Jina, Cohere, Infinity, SGLang and llama.cpp share, except
//! for a member or two. Each is a constant here.
//!
//! None is asked for `top_n` or for documents: all scores are needed to sort them, and the documents are in the
//! request.

use super::{parts, read, task};
use crate::text::{list, quoted};
use bytes::Bytes;
use penstock_contract::{Answer, Ask, Call, Extra, Fault, FaultKind, Kind, Refusal, Shape, Target, Whole};

/// Provider of this family.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    name: &'static str,
    /// Additional members after model, query and documents, with a comma before them.
    extra: &'static str,
}

/// vLLM, SGLang, llama.cpp: no additional members; their answers vary.
pub const VLLM: Listed = Listed { name: "vllm", extra: "" };
/// Jina's API.
pub const JINA: Listed = Listed { name: "jina", extra: r#","return_documents":false"# };
/// Cohere, version 1 of its API.
pub const COHERE_V1: Listed = Listed { name: "cohere_v1", extra: r#","return_documents":false"# };
/// Cohere, version 2 of its API: it never returns documents and refuses the member.
pub const COHERE_V2: Listed = Listed { name: "cohere_v2", extra: "" };
/// Infinity's API.
pub const INFINITY: Listed = Listed { name: "infinity", extra: r#","return_documents":false"# };

impl Shape for Listed {
    fn kind(&self) -> Kind {
        Kind::Rerank
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let rerank = task(ask).ok_or_else(|| Refusal::invalid("documents", "documents: expected texts."))?;
        let call = |documents: &[Bytes]| {
            let head = [br#"{"model":"#, quoted(target.model).as_slice(), br#","query":"#].concat();
            let mut body = vec![Bytes::from(head), rerank.query.clone()];
            body.push(Bytes::from_static(br#","documents":"#));
            list(documents, &mut body);
            let extra = if target.says(Extra::ReturnDocuments) { self.extra } else { "" };
            body.push(Bytes::from_static(extra.as_bytes()));
            body.push(Bytes::from_static(b"}"));
            Call::json(body)
        };
        Ok(parts(rerank, target).map(call).collect())
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let rerank = task(ask).ok_or_else(|| Fault::new(FaultKind::Malformed))?;
        let asked = parts(rerank, target).zip(answers);
        let scores = asked.map(|(documents, answer)| read(&answer.body, documents.len()));
        super::whole(ask, target, scores.collect::<Result<_, _>>()?)
    }
}
