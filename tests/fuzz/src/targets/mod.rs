//! Fuzz targets, one per file. The first line of a file states the tested guarantees.
#![allow(missing_docs, reason = "each file has one function, and says above it what that checks")]

pub mod answer;
pub mod answer_head;
pub mod batch;
pub mod chat_request;
pub mod chat_stream;
pub mod configuration;
pub mod form;
pub mod head;
pub mod json;
pub mod jsonl;
pub mod key;
pub mod ledger;
pub mod messages_request;
pub mod messages_stream;
pub mod plain_answer;
pub mod plain_request;
pub mod provider_error;
pub mod query;
pub mod range;
pub mod rescue;
pub mod responses_request;
pub mod responses_stream;
pub mod sound;
pub mod splice;
pub mod sse;
pub mod store;
pub mod table;
pub mod tokens;
pub mod translate;
pub mod upload;

/// Returns the target of this name, a function that panics if a guarantee is broken.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: [Target; 30] = [
    ("answer", answer::check),
    ("answer_head", answer_head::check),
    ("batch", batch::check),
    ("chat_request", chat_request::check),
    ("chat_stream", chat_stream::check),
    ("configuration", configuration::check),
    ("form", form::check),
    ("head", head::check),
    ("json", json::check),
    ("jsonl", jsonl::check),
    ("key", key::check),
    ("ledger", ledger::check),
    ("messages_request", messages_request::check),
    ("messages_stream", messages_stream::check),
    ("plain_answer", plain_answer::check),
    ("plain_request", plain_request::check),
    ("provider_error", provider_error::check),
    ("query", query::check),
    ("range", range::check),
    ("rescue", rescue::check),
    ("responses_request", responses_request::check),
    ("responses_stream", responses_stream::check),
    ("sound", sound::check),
    ("splice", splice::check),
    ("sse", sse::check),
    ("store", store::check),
    ("table", table::check),
    ("tokens", tokens::check),
    ("translate", translate::check),
    ("upload", upload::check),
];
