//! Request `POST /embed` of text-embeddings-inference: bare arrays of numbers, and the tokens in a header. (Its
//! `/v1/embeddings` has the OpenAI shape.)

use super::vectors::Reader;
use super::{parts, task, wanted};
use crate::cursor::Cursor;
use crate::said::Said;
use crate::text::list;
use bytes::Bytes;
use penstock_contract::{Answer, Ask, Call, Fault, FaultKind, Inputs, Kind, Refusal, Shape, Target, Whole};

/// Shape of text-embeddings-inference.
#[derive(Clone, Copy, Debug)]
pub struct Tei;

impl Shape for Tei {
    fn kind(&self) -> Kind {
        Kind::Embedding
    }

    fn name(&self) -> &'static str {
        "tei"
    }

    fn path(&self) -> &'static str {
        "/embed"
    }

    fn heeds(&self) -> &'static [&'static str] {
        &["x-compute-tokens"]
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let texts = task(ask).filter(|embed| matches!(embed.inputs, Inputs::Texts(_)));
        let embed = texts
            .ok_or_else(|| Refusal::unsupported("input", "input: this model takes texts, not token ids."))?;
        let call = |inputs: &[Bytes]| {
            let mut body = vec![Bytes::from_static(br#"{"inputs":"#)];
            list(inputs, &mut body);
            if let Some(dimensions) = embed.dimensions {
                body.push(Bytes::from(format!(r#","dimensions":{dimensions}"#)));
            }
            body.push(Bytes::from_static(b"}"));
            Call::json(body)
        };
        Ok(parts(embed, target).map(call).collect())
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let malformed = || Fault::new(FaultKind::Malformed);
        let embed = task(ask).ok_or_else(malformed)?;
        let read = |inputs: &[Bytes], answer: Answer| {
            let mut reader = Reader::new(wanted(embed), inputs.len());
            let mut cursor = Cursor::new(&answer.body);
            cursor.array(|cursor| reader.vector(cursor)).filter(|()| cursor.is_done())?;
            let said = Said { tokens: answer.number(0), measured: None };
            Some((reader.finish(answer.body.clone(), 0..0)?, said))
        };
        let asked = parts(embed, target).zip(answers);
        let parts = asked.map(|(inputs, answer)| read(inputs, answer).ok_or_else(malformed));
        super::whole(ask, target, parts.collect::<Result<_, _>>()?)
    }
}
