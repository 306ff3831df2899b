//! Parameters of engines that no dialect defines, grouped by their effect on the answer:
//!
//! - A *constraint* is sent to the engine if the offer lists it; otherwise the request is refused with the name of the
//!   parameter, unless its value has no effect.
//! - A *tuning* parameter is sent to the engine if the offer lists it, and dropped otherwise.
//! - A *private* parameter of a client or an engine is always dropped.
//!
//! Names in `supported_parameters` of the configuration are validated by [`is_listable_parameter`].

use crate::{json_cursor, reasoning_effort};
use penstock_core::{ApiError, DIALECTS, InferenceRequest, InferenceTask, OfferCapabilities};
use penstock_json_scan::json;

/// Effect of a parameter on the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterEffect {
    /// Constraint on the answer, such as a grammar. It is sent to the engine, or the request is refused.
    Constraint,
    /// Tuning of sampling or reasoning: an answer without it is different but valid, so it may be dropped.
    Tuning,
    /// Internal option of an engine, such as its cache or scheduler, or of the client. It is always dropped.
    Private,
}

/// Request parameter of an engine that no dialect defines.
#[derive(Clone, Copy, Debug)]
pub struct EngineParameter {
    /// Name of the member at the top level of the body.
    pub name: &'static str,
    /// Effect on the answer.
    pub effect: ParameterEffect,
    /// Values with which the parameter has no effect.
    pub neutral: NeutralValue,
}

/// JSON values of a parameter that have no effect: `null`, `""`, `[]`, `{}`, and the values of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeutralValue {
    /// `false` and 0.
    Zero,
    /// `false`, 0 and 1.
    ZeroOrOne,
    /// `false`; 0 has an effect.
    FalseOnly,
    /// `false` and -1; 0 has an effect.
    MinusOne,
    /// `true` and 0; `false` has an effect.
    True,
}

const fn constrains(name: &'static str) -> EngineParameter {
    EngineParameter { name, effect: ParameterEffect::Constraint, neutral: NeutralValue::Zero }
}

/// Creates a constraint parameter that has no effect with the given values.
const fn constrains_unless(name: &'static str, neutral: NeutralValue) -> EngineParameter {
    EngineParameter { name, effect: ParameterEffect::Constraint, neutral }
}

const fn tunes(name: &'static str) -> EngineParameter {
    EngineParameter { name, effect: ParameterEffect::Tuning, neutral: NeutralValue::Zero }
}

const fn private(name: &'static str) -> EngineParameter {
    EngineParameter { name, effect: ParameterEffect::Private, neutral: NeutralValue::Zero }
}

/// Parameters of vLLM, SGLang, TGI, llama.cpp, TensorRT-LLM and APIs built on them, sorted by name.
pub const ENGINE_PARAMETERS: &[EngineParameter] = &[
    constrains("adapter_id"),
    constrains("adapter_name"),
    private("add_generation_prompt"),
    private("add_special_tokens"),
    constrains("allowed_token_ids"),
    constrains("bad"),
    constrains("bad_token_ids"),
    constrains("bad_words"),
    constrains("bad_words_ids"),
    constrains("banned_strings"),
    constrains("banned_tokens"),
    constrains_unless("best_of", NeutralValue::ZeroOrOne),
    private("bootstrap_host"),
    private("bootstrap_port"),
    private("bootstrap_room"),
    private("cache_prompt"),
    private("cache_salt"),
    constrains("chat_template"),
    tunes("chat_template_kwargs"),
    constrains("custom_logit_processor"),
    constrains("custom_params"),
    private("data_parallel_rank"),
    private("details"),
    tunes("do_sample"),
    constrains("documents"),
    tunes("dry_allowed_length"),
    tunes("dry_base"),
    tunes("dry_multiplier"),
    tunes("dry_penalty_last_n"),
    tunes("dry_sequence_breakers"),
    tunes("dynatemp_exponent"),
    tunes("dynatemp_range"),
    tunes("early_stopping"),
    constrains("ebnf"),
    constrains("echo"),
    constrains("enable_search"),
    tunes("enable_thinking"),
    constrains("end_id"),
    tunes("epsilon_cutoff"),
    tunes("eta_cutoff"),
    constrains("force_words_ids"),
    constrains("grammar"),
    constrains("grammar_lazy"),
    constrains("grammar_triggers"),
    constrains("guided_choice"),
    private("guided_decoding_backend"),
    constrains("guided_decoding_params"),
    constrains("guided_grammar"),
    constrains("guided_json"),
    constrains("guided_json_object"),
    constrains("guided_regex"),
    tunes("guided_whitespace_pattern"),
    constrains("guideline"),
    private("id_slot"),
    constrains("ignore_eos"),
    private("include_reasoning"),
    constrains("include_stop_str_in_output"),
    constrains("json_schema"),
    private("kv_transfer_params"),
    tunes("length_penalty"),
    constrains("logits_bias"),
    constrains("logits_processors"),
    constrains("lora"),
    constrains("lora_path"),
    constrains("lora_request"),
    constrains("min_keep"),
    constrains("min_length"),
    constrains("min_new_tokens"),
    tunes("min_p"),
    constrains("min_tokens"),
    tunes("mirostat"),
    tunes("mirostat_eta"),
    tunes("mirostat_tau"),
    tunes("mm_processor_kwargs"),
    constrains("n_discard"),
    constrains("n_keep"),
    constrains_unless("n_predict", NeutralValue::MinusOne),
    constrains("n_probs"),
    constrains("no_repeat_ngram_size"),
    constrains("no_stop_trim"),
    constrains_unless("num_beams", NeutralValue::ZeroOrOne),
    private("parse_tool_calls"),
    private("post_sampling_probs"),
    private("priority"),
    constrains_unless("prompt_logprobs", NeutralValue::FalseOnly),
    constrains_unless("reasoning_budget", NeutralValue::MinusOne),
    private("reasoning_format"),
    constrains("regex"),
    tunes("repeat_last_n"),
    tunes("repeat_penalty"),
    constrains("repetition_detection"),
    tunes("repetition_penalty"),
    private("request_id"),
    private("return_hidden_states"),
    private("return_progress"),
    constrains("return_token_ids"),
    constrains("return_tokens_as_token_ids"),
    private("rid"),
    constrains("safe_prompt"),
    tunes("samplers"),
    private("separate_reasoning"),
    constrains_unless("skip_special_tokens", NeutralValue::True),
    tunes("smoothing_factor"),
    constrains_unless("spaces_between_special_tokens", NeutralValue::True),
    constrains("stop_regex"),
    constrains("stop_token_ids"),
    private("stream_reasoning"),
    constrains("structural_tag"),
    constrains("structured_outputs"),
    constrains("suppress_tokens"),
    private("t_max_predict_ms"),
    tunes("tfs_z"),
    tunes("thinking_budget"),
    tunes("thinking_token_budget"),
    private("timings_per_token"),
    constrains("tool_prompt"),
    tunes("top_a"),
    tunes("top_k"),
    tunes("top_n_sigma"),
    constrains_unless("truncate_prompt_tokens", NeutralValue::MinusOne),
    tunes("typical_p"),
    constrains("use_beam_search"),
    tunes("verbosity"),
    private("vllm_xargs"),
    private("watermark"),
    tunes("xtc_probability"),
    tunes("xtc_threshold"),
];

/// Members of the dialects, and of requests for other model kinds such as images and embeddings, that
/// `supported_parameters` may list, sorted by name.
pub const LISTABLE_DIALECT_MEMBERS: &[&str] = &[
    "dimensions",
    "encoding_format",
    "frequency_penalty",
    "include_reasoning",
    "language",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "n",
    "num_inference_steps",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt",
    "quality",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "return_documents",
    "seed",
    "size",
    "stop",
    "stop_sequences",
    "stream",
    "stream_options",
    "style",
    "suffix",
    "system",
    "temperature",
    "thinking",
    "timestamp_granularities",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_n",
    "top_p",
    "user",
];

/// Returns the engine parameter of this name.
#[must_use]
pub fn find_engine_parameter(name: &str) -> Option<&'static EngineParameter> {
    let at = ENGINE_PARAMETERS.binary_search_by(|row| row.name.cmp(name)).ok()?;
    ENGINE_PARAMETERS.get(at)
}

/// Returns true if `supported_parameters` may list this name.
#[must_use]
pub fn is_listable_parameter(name: &str) -> bool {
    LISTABLE_DIALECT_MEMBERS.binary_search(&name).is_ok() || find_engine_parameter(name).is_some()
}

impl EngineParameter {
    /// Returns true if a value has an effect.
    pub(crate) fn has_effect(&self, value: &[u8]) -> bool {
        let hollow = |value: &[u8]| {
            let inside = value.get(1..value.len().saturating_sub(1)).unwrap_or_default();
            matches!(value.first(), Some(b'[' | b'{' | b'"')) && json::trim(inside).is_empty()
        };
        let number = json_cursor::parse_float(value);
        let is_neutral = match self.neutral {
            NeutralValue::Zero => value == b"false" || number == Some(0.0),
            NeutralValue::ZeroOrOne => value == b"false" || matches!(number, Some(0.0 | 1.0)),
            NeutralValue::FalseOnly => value == b"false",
            NeutralValue::MinusOne => value == b"false" || number == Some(-1.0),
            NeutralValue::True => value == b"true" || number == Some(0.0),
        };
        value != b"null" && !hollow(value) && !is_neutral
    }
}

/// Returns true if a parameter is sent to an offer: it tunes or constrains the answer, and the offer accepts it.
/// Unknown and private parameters are not sent.
///
/// # Errors
/// Returns `Unsupported` for a constraint that the offer does not accept.
pub(crate) fn should_forward(
    abilities: &OfferCapabilities,
    name: &str,
    value: &[u8],
) -> Result<bool, ApiError> {
    let Some(parameter) = find_engine_parameter(name) else { return Ok(false) };
    match parameter.effect {
        ParameterEffect::Private => Ok(false),
        ParameterEffect::Tuning => Ok(abilities.accepts_parameter(name)),
        ParameterEffect::Constraint if abilities.accepts_parameter(name) => Ok(true),
        // A parameter that disables reasoning is not treated as a constraint, because it is translated to a reasoning
        // effort.
        ParameterEffect::Constraint if reasoning_effort::is_zero_reasoning_budget(name, value) => Ok(false),
        ParameterEffect::Constraint if parameter.has_effect(value) => Err(unsupported_error(name)),
        ParameterEffect::Constraint => Ok(false),
    }
}

/// Returns true if the request has an engine constraint with an effect, or is a text completion with `response_format`,
/// so that some offers may not support it.
#[must_use]
pub fn has_engine_constraint(ask: &InferenceRequest) -> bool {
    let is_completion = matches!(ask.task, InferenceTask::Complete(_));
    ask.members.0.iter().any(|field| {
        (is_completion && &*field.name == "response_format")
            || find_engine_parameter(&field.name)
                .filter(|parameter| parameter.effect == ParameterEffect::Constraint)
                .is_some_and(|parameter| {
                    ask.member_value(&field.name).is_some_and(|value| parameter.has_effect(value))
                })
    })
}

/// Returns true if the path in the error of a request builder leads to the format of the answer (also under its older
/// name `output_format`), or to an engine parameter that constrains the answer ([`ParameterEffect::Constraint`], such
/// as `bad_words`).
#[must_use]
pub fn is_constraint_error(error: &ApiError) -> bool {
    let path = error.param.as_deref().unwrap_or_default();
    let name = path.split(['.', '[']).next().unwrap_or_default();
    matches!(name, "response_format" | "output_format")
        || DIALECTS.iter().any(|row| row.format_error_path == path)
        || find_engine_parameter(name)
            .is_some_and(|parameter| parameter.effect == ParameterEffect::Constraint)
}

/// Returns the error of an unsupported constraint.
pub(crate) fn unsupported_error(name: &str) -> ApiError {
    ApiError::unsupported(name, format!("This model does not support `{name}`."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn the_tables_are_sorted_and_name_nothing_twice() {
        assert!(ENGINE_PARAMETERS.windows(2).all(|two| two[0].name < two[1].name));
        assert!(LISTABLE_DIALECT_MEMBERS.windows(2).all(|two| two[0] < two[1]));
        assert!(
            is_listable_parameter("tools")
                && is_listable_parameter("top_k")
                && is_listable_parameter("guided_json")
        );
        assert!(!is_listable_parameter("tool") && !is_listable_parameter(""));
    }

    #[test]
    fn a_constraint_is_forwarded_if_listed_and_refused_otherwise_unless_it_has_no_effect() {
        let listing = |names: &[&str]| OfferCapabilities {
            parameters: names.iter().map(|name| (*name).into()).collect(),
            ..OfferCapabilities::default()
        };
        for row in ENGINE_PARAMETERS {
            let with = listing(&[row.name]);
            let without = listing(&["temperature"]);
            let value = if row.neutral == NeutralValue::True { &b"false"[..] } else { b"5" };
            let neutral = match row.neutral {
                NeutralValue::Zero => ["false", "0"],
                NeutralValue::ZeroOrOne => ["0", "1"],
                NeutralValue::FalseOnly => ["false", "null"],
                NeutralValue::MinusOne => ["false", "-1"],
                NeutralValue::True => ["true", "0"],
            };
            let taken = should_forward(&with, row.name, value).unwrap();
            match row.effect {
                ParameterEffect::Constraint => {
                    assert!(taken, "{}", row.name);
                    let refusal = should_forward(&without, row.name, value).unwrap_err();
                    assert_eq!(refusal.param.as_deref(), Some(row.name));
                    for idle in ["null", "[]", "{ }", "\"\""].into_iter().chain(neutral) {
                        assert!(
                            !should_forward(&without, row.name, idle.as_bytes()).unwrap(),
                            "{} {idle}",
                            row.name
                        );
                    }
                }
                ParameterEffect::Tuning => {
                    assert!(taken && !should_forward(&without, row.name, value).unwrap(), "{}", row.name)
                }
                ParameterEffect::Private => assert!(!taken, "{}", row.name),
            }
        }
        for (name, value) in
            [("min_tokens", "0"), ("min_tokens", "0.0"), ("ignore_eos", "false"), ("best_of", "1")]
        {
            assert!(!should_forward(&listing(&[]), name, value.as_bytes()).unwrap(), "{name}");
        }
        for (name, value) in [("prompt_logprobs", "0"), ("n_predict", "0"), ("prompt_logprobs", "-1")] {
            let refusal = should_forward(&listing(&[]), name, value.as_bytes()).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some(name), "{value}");
        }
        assert!(should_forward(&listing(&[]), "unheard_of", b"1").is_ok_and(|passes| !passes));
    }
}
