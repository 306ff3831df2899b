//! Optional parameters of embedding and rerank requests. They are sent to an offer that lists them in
//! `supported_parameters`. If no offer lists a parameter, the request is refused with the name of the parameter. A
//! parameter without which an answer is equally valid ([`TaskParameter::is_tuning`]) never causes a refusal: it is left
//! out for an offer that does not list it.

use crate::inference_request::InferenceRequest;
use crate::inference_task::InferenceTask;
use crate::traits::AttemptTarget;
use bytes::Bytes;

/// Parameter of embedding or rerank requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskParameter {
    /// Name in the body.
    pub name: &'static str,
    /// JSON values that have the same effect as an absent parameter, in addition to `null`.
    pub neutral: &'static [&'static str],
    /// True if an answer without the parameter is equally valid. An offer that does not list the parameter may then
    /// answer the request.
    pub is_tuning: bool,
}

/// Values that request nothing.
const EMPTY: &[&str] = &["false", "-1", "\"\"", "[]", "{}"];

/// Creates a parameter that changes the result, unless its value is one of [`EMPTY`].
const fn changes(name: &'static str) -> TaskParameter {
    TaskParameter { name, neutral: EMPTY, is_tuning: false }
}

/// Creates a parameter whose default is one of the values `neutral`, and not an empty value.
const fn changes_unless(name: &'static str, neutral: &'static [&'static str]) -> TaskParameter {
    TaskParameter { name, neutral, is_tuning: false }
}

/// Creates a parameter that only tunes the result, see [`TaskParameter::is_tuning`].
const fn tunes(name: &'static str) -> TaskParameter {
    TaskParameter { name, neutral: EMPTY, is_tuning: true }
}

/// Cap on the tokens of each document that a reranking model reads.
pub const MAX_TOKENS_PER_DOC_PARAMETER: &str = "max_tokens_per_doc";

/// Parameters of embeddings, sorted by name. The numbers of the vectors depend on them.
pub const EMBEDDING_PARAMETERS: &[TaskParameter] = &[
    changes_unless("add_special_tokens", &["true"]),
    changes("chat_template"),
    changes("chat_template_kwargs"),
    changes("input_type"),
    changes("instruct"),
    changes("instruction"),
    changes("mm_processor_kwargs"),
    changes_unless("modality", &["\"text\"", "\"\"", "[\"text\"]"]),
    changes_unless("output_type", &["\"dense\"", "\"\""]),
    changes("prompt_name"),
    changes("task"),
    changes("task_type"),
    changes("text_type"),
    changes("title"),
    changes("truncate"),
    changes("truncate_dim"),
    changes("truncate_prompt_tokens"),
    changes("truncation"),
    changes_unless("truncation_direction", &["\"right\"", "\"Right\"", "\"\""]),
    changes_unless("truncation_side", &["\"right\"", "\"\""]),
];

/// Parameters of rerank requests, sorted by name.
pub const RERANK_PARAMETERS: &[TaskParameter] = &[
    changes_unless("add_special_tokens", &["true"]),
    changes("chat_template"),
    changes("chat_template_kwargs"),
    changes("instruction"),
    changes("max_chunks_per_doc"),
    // Only tunes the result: clients send this parameter with every request, and each offer truncates documents at
    // its own limit anyway.
    tunes(MAX_TOKENS_PER_DOC_PARAMETER),
    changes("max_tokens_per_query"),
    changes("mm_processor_kwargs"),
    changes("prompt"),
    changes("task"),
    changes("truncate"),
    changes("truncate_prompt_tokens"),
    changes("truncation"),
    changes_unless("truncation_direction", &["\"right\"", "\"Right\"", "\"\""]),
    changes_unless("truncation_side", &["\"right\"", "\"\""]),
];

impl InferenceRequest {
    /// Returns the parameters that the request sets to a value that is not neutral, with these values as JSON.
    pub fn task_parameters(&self) -> impl Iterator<Item = (&'static TaskParameter, &[u8])> {
        let parameters = match self.task {
            InferenceTask::Embed(_) => EMBEDDING_PARAMETERS,
            InferenceTask::Rerank(_) => RERANK_PARAMETERS,
            _ => &[],
        };
        parameters.iter().filter_map(move |parameter| {
            let value = self.member_value(parameter.name)?;
            let is_neutral = parameter.neutral.iter().any(|neutral| is_equal_without_blanks(value, neutral));
            (!is_neutral).then_some((parameter, value))
        })
    }

    /// Returns the name of the first parameter that changes the result and that the offer does not accept (`accepts`);
    /// `None` if the offer can serve the request.
    #[must_use]
    pub fn unlisted_task_parameter(&self, accepts: impl Fn(&str) -> bool) -> Option<&'static str> {
        let constraints = self.task_parameters().filter(|(parameter, _)| !parameter.is_tuning);
        constraints.map(|(parameter, _)| parameter.name).find(|name| !accepts(name))
    }

    /// Appends to a request body the parameters that the offer lists, or that its request format has (`own`), each
    /// after a comma.
    pub fn write_task_parameters(&self, target: &AttemptTarget<'_>, own: &[&str], body: &mut Vec<Bytes>) {
        for (TaskParameter { name, .. }, value) in self.task_parameters() {
            if target.capabilities.accepts_parameter(name) || own.contains(name) {
                body.push(Bytes::from(format!(",\"{name}\":")));
                body.push(Bytes::copy_from_slice(value));
            }
        }
    }
}

/// Returns true if a JSON value equals one that is written without white space.
fn is_equal_without_blanks(value: &[u8], compact: &str) -> bool {
    let mut is_in_string = false;
    let bytes = value.iter().filter(|byte| {
        is_in_string ^= **byte == b'"';
        is_in_string || !byte.is_ascii_whitespace()
    });
    bytes.eq(compact.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_makes_no_other_value() {
        for (value, compact) in
            [("{ }", "{}"), ("[\n]", "[]"), (r#"[ "text" ]"#, r#"["text"]"#), ("true", "true")]
        {
            assert!(is_equal_without_blanks(value.as_bytes(), compact), "{value}");
        }
        for (value, compact) in [(r#""te xt""#, r#""text""#), ("{1}", "{}"), ("[", "[]"), ("\" \"", "\"\"")] {
            assert!(!is_equal_without_blanks(value.as_bytes(), compact), "{value}");
        }
    }

    #[test]
    fn parameters_are_sorted_by_name() {
        for list in [EMBEDDING_PARAMETERS, RERANK_PARAMETERS] {
            assert!(list.is_sorted_by(|one, other| one.name < other.name));
        }
    }
}
