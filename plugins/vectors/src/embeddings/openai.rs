//! Request `POST /embeddings` in the form of most engines and hosts: vLLM, SGLang, llama.cpp, Infinity, TEI and the
//! hosted ones.

use super::vectors::{Reader, Vectors};
use super::{parts, task, wanted};
use crate::cursor::Cursor;
use crate::said::Said;
use crate::text::{list, quoted};
use bytes::Bytes;
use penstock_contract::{
    Answer, Ask, Call, Embed, Extra, Fault, FaultKind, Kind, Refusal, Shape, Target, Whole,
};

/// Shape of the OpenAI API.
#[derive(Clone, Copy, Debug)]
pub struct OpenAi;

impl Shape for OpenAi {
    fn kind(&self) -> Kind {
        Kind::Embedding
    }

    fn name(&self) -> &'static str {
        "openai"
    }

    fn path(&self) -> &'static str {
        "/embeddings"
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let embed = task(ask).ok_or_else(|| Refusal::invalid("input", "input: expected texts."))?;
        let all = embed.inputs.len();
        let call = |inputs: &[Bytes]| {
            let mut body = vec![Bytes::from([br#"{"model":"#, quoted(target.model).as_slice()].concat())];
            body.push(Bytes::from_static(br#","input":"#));
            match ask.fields.get("input") {
                // The client's own bytes are sent.
                Some(field) if embed.verbatim && inputs.len() == all => {
                    body.push(ask.body.slice(field.value.clone()));
                }
                _ => list(inputs, &mut body),
            }
            body.push(Bytes::from(rest(embed, target)));
            Call::json(body)
        };
        Ok(parts(embed, target).map(call).collect())
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let embed = task(ask).ok_or_else(|| Fault::new(FaultKind::Malformed))?;
        let asked = parts(embed, target).zip(answers);
        let parts = asked.map(|(inputs, answer)| read(embed, inputs.len(), answer.body));
        super::whole(ask, target, parts.collect::<Result<_, _>>()?)
    }
}

/// Returns the members after the input.
fn rest(embed: &Embed, target: &Target<'_>) -> String {
    let mut rest = String::new();
    if target.abilities.accepts("encoding_format") && target.says(Extra::EncodingFormat) {
        let form = if embed.base64 { "base64" } else { "float" };
        rest.push_str(&format!(r#","encoding_format":"{form}""#));
    }
    if let Some(dimensions) = embed.dimensions {
        rest.push_str(&format!(r#","dimensions":{dimensions}"#));
    }
    rest.push('}');
    rest
}

/// Reads one part of the answer.
fn read(embed: &Embed, count: usize, body: Bytes) -> Result<(Vectors, Said), Fault> {
    let mut reader = Reader::new(wanted(embed), count);
    let mut said = Said::default();
    let (mut array, mut error) = (None, false);
    let mut cursor = Cursor::new(&body);
    let read = cursor.object(|key, cursor| {
        match key {
            "data" if array.is_none() => {
                let start = cursor.at();
                cursor.array(|cursor| reader.item(cursor))?;
                array = Some(start..cursor.at());
            }
            "error" => error |= cursor.bytes()? != b"null",
            _ => said.read(key, cursor.bytes()?),
        }
        Some(())
    });
    if error {
        return Err(Fault::new(FaultKind::InBand));
    }
    let vectors =
        read.filter(|()| cursor.is_done()).and(array).and_then(|array| reader.finish(body.clone(), array));
    vectors.map(|vectors| (vectors, said)).ok_or_else(|| Fault::new(FaultKind::Malformed))
}
