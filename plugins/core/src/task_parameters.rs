//! Parameters of embedding and rerank requests that change the result. They are sent to an offer that lists them in
//! `supported_parameters`; if no offer does, the request is refused with an error that names the parameter.

use crate::inference_request::InferenceRequest;
use crate::inference_task::InferenceTask;
use crate::traits::AttemptTarget;
use bytes::Bytes;

/// Parameters of embedding requests that change the vectors, such as a prefix for queries or for documents; sorted by
/// name.
pub const EMBEDDING_PARAMETERS: &[&str] = &[
    "input_type",
    "instruction",
    "prompt",
    "prompt_name",
    "task",
    "task_type",
    "truncate",
    "truncate_prompt_tokens",
];

/// Parameters of rerank requests, sorted by name.
pub const RERANK_PARAMETERS: &[&str] =
    &["instruction", "max_chunks_per_doc", "truncate", "truncate_prompt_tokens"];

impl InferenceRequest {
    /// Returns the parameters of the request that change its result, with their values. `null`, `false`, -1 and empty
    /// values change nothing.
    pub fn task_parameters(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let names = match self.task {
            InferenceTask::Embed(_) => EMBEDDING_PARAMETERS,
            InferenceTask::Rerank(_) => RERANK_PARAMETERS,
            _ => &[],
        };
        let has_effect = |value: &&[u8]| !matches!(*value, b"false" | b"-1" | b"\"\"" | b"[]" | b"{}");
        names.iter().filter_map(move |name| Some((*name, self.member_value(name).filter(has_effect)?)))
    }

    /// Returns the first parameter that changes the result and that this offer does not list.
    #[must_use]
    pub fn unlisted_task_parameter(&self, accepts: impl Fn(&str) -> bool) -> Option<&'static str> {
        self.task_parameters().map(|(name, _)| name).find(|name| !accepts(name))
    }

    /// Appends the parameters that the offer lists to a request body, each after a comma.
    pub fn write_task_parameters(&self, target: &AttemptTarget<'_>, body: &mut Vec<Bytes>) {
        for (name, value) in self.task_parameters() {
            if target.capabilities.accepts_parameter(name) {
                body.push(Bytes::from(format!(",\"{name}\":")));
                body.push(Bytes::copy_from_slice(value));
            }
        }
    }
}
