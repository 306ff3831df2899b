//! Validation of rerank requests.

use super::{few, text};
use crate::body::{Top, prove};
use crate::filters::filters;
use crate::json::{Tape, Value};
use crate::limits::Limits;
use crate::path::{Path, Style};
use crate::{plain, read};
use bytes::Bytes;
use penstock_contract::{Ask, Kind, Refusal, Rerank, Task};
use std::ops::Range;

/// Validates a request of `/v1/rerank`.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the field's path in `param`.
pub fn rerank(body: Bytes, limits: &Limits) -> Result<Ask, Refusal> {
    let (json, nodes) = prove(&body, limits, Style::Brackets)?;
    let tape = Tape { text: json, nodes: &nodes };
    let top = Top::new(&tape, limits, Style::Brackets)?;
    let model = plain::model(&top)?;
    let filters = filters(&top, Kind::Rerank)?;
    let path = top.path("query");
    let query = text(read::required(top.get("query"), &path, "a string")?, &path)?;
    let path = top.path("documents");
    let expected = "an array of strings, or of objects with a `text`";
    let documents = read::required(top.get("documents"), &path, expected)?;
    if !documents.is_array() {
        return Err(path.expected(expected, documents.kind()));
    }
    let documents = texts(few(documents, &path, limits.max_documents, "document")?, &path)?;
    let top_n = most(&top, "top_n")?;
    // Older name of `top_n`.
    let top_k = most(&top, "top_k")?;
    only_text(&top)?;
    let return_documents = plain::switch(&top, "return_documents")?;
    let fields = top.fields();
    // A cross-encoder reads the query again with each document.
    let again = query.len().saturating_mul(documents.len());
    let prompt_bytes = documents.iter().map(Range::len).sum::<usize>().saturating_add(again);
    let task = Task::Rerank(Rerank {
        query: body.slice(query),
        documents: documents.into_iter().map(|range| body.slice(range)).collect(),
        top_n: top_n.or(top_k),
        return_documents,
    });
    Ok(Ask { prompt_bytes, filters, ..Ask::plain(Kind::Rerank, body.clone(), fields, model, task) })
}

/// Reads the maximum number of results.
fn most(top: &Top<'_>, name: &str) -> Result<Option<usize>, Refusal> {
    let most = top.get(name).map(|value| read::integer(value, &top.path(name), 1, i64::MAX));
    Ok(most.transpose()?.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}

/// Text range of each document, which is a string or an object with a `text`; a list may mix both.
fn texts(documents: Value<'_>, at: &Path<'_>) -> Result<Vec<Range<usize>>, Refusal> {
    let mut texts = Vec::new();
    for (index, document) in documents.items().enumerate() {
        let path = at.index(index);
        if document.is_string() {
            texts.push(text(document, &path)?);
            continue;
        }
        if !document.is_object() {
            return Err(path.expected("a string, or an object with a `text`", document.kind()));
        }
        let [own] = read::object(document, &path, ["text"])?;
        let path = path.key("text");
        texts.push(text(read::required(own, &path, "a string")?, &path)?);
    }
    Ok(texts)
}

/// Refuses `rank_fields` other than `text`, because other fields are not read.
fn only_text(top: &Top<'_>) -> Result<(), Refusal> {
    let path = top.path("rank_fields");
    let Some(fields) = top.get("rank_fields") else { return Ok(()) };
    for (index, field) in read::array(fields, &path)?.items().enumerate() {
        let path = path.index(index);
        if !read::string(field, &path)?.is("text") {
            return Err(path.unsupported("documents are ranked by `text` only"));
        }
    }
    Ok(())
}
