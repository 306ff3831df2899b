//! Reasoning effort of a request, read from the parameters of all supported vendors and engines.

use crate::json_cursor;
use penstock_core::{InferenceRequest, RequestBodyFormat};
use penstock_json_scan::json;

/// Reasoning effort that a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasoningEffort {
    /// True to enable reasoning, false to disable it; `None` if not specified.
    pub(crate) enabled: Option<bool>,
    /// Requested effort level.
    pub(crate) level: Option<EffortLevel>,
}

/// Effort level; the variants have the names that messages providers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EffortLevel {
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// Minimum thinking budget of the medium level and of the high level, in tokens.
const MEDIUM_BUDGET_TOKENS: u64 = 2_000;
const HIGH_BUDGET_TOKENS: u64 = 8_000;
/// Names of parameters for a budget of reasoning tokens. A budget of 0 disables reasoning.
const BUDGETS: [&str; 4] =
    ["thinking_budget", "thinking_token_budget", "reasoning_budget", "max_thinking_tokens"];
/// Values of the effort that responses providers accept and chat providers do not.
const EXACT_WORDS: [&str; 4] = ["none", "minimal", "xhigh", "max"];

impl EffortLevel {
    /// Returns the level's name for messages providers.
    pub(crate) const fn messages_name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Returns the level's name for chat providers, which have only three levels.
    pub(crate) const fn chat_name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High | Self::XHigh | Self::Max => "high",
        }
    }

    fn from_budget(tokens: u64) -> Self {
        match tokens {
            0..MEDIUM_BUDGET_TOKENS => Self::Low,
            MEDIUM_BUDGET_TOKENS..HIGH_BUDGET_TOKENS => Self::Medium,
            _ => Self::High,
        }
    }
}

impl ReasoningEffort {
    /// Reads the effort of a chat request. `reasoning_effort` has precedence over the parameters of other vendors.
    pub(crate) fn from_chat_request(ask: &InferenceRequest) -> Self {
        let of = |name, read: fn(&[u8]) -> Self| {
            ask.member_value(name).map(read).filter(|effort| *effort != Self::default())
        };
        of("reasoning_effort", parse_effort)
            .or_else(|| of("reasoning", parse_reasoning))
            .or_else(|| of("thinking", parse_thinking).map(|effort| effort.with_level(config_effort(ask))))
            .or_else(|| config_effort(ask).filter(|effort| *effort != Self::default()))
            .or_else(|| {
                let effort = of("enable_thinking", |value| with_enabled(parse_bool(value)))?;
                Some(effort.with_budget(ask.member_value("thinking_budget")))
            })
            .or_else(|| of("chat_template_kwargs", parse_template_kwargs))
            .or_else(|| of("think", parse_think))
            .or_else(|| {
                let is_disabled = ask.member_value("disable_reasoning").and_then(parse_bool);
                is_disabled.filter(|is_disabled| *is_disabled).map(|_| with_enabled(Some(false)))
            })
            .or_else(|| {
                let is_off = |name: &&str| {
                    ask.member_value(name).is_some_and(|value| is_zero_reasoning_budget(name, value))
                };
                BUDGETS.iter().any(is_off).then_some(with_enabled(Some(false)))
            })
            .unwrap_or_default()
    }

    /// Reads the effort of a messages request: `thinking` and `output_config`, or else the parameters of chat requests.
    pub(crate) fn from_messages_request(ask: &InferenceRequest) -> Self {
        let own = Self::from_messages_members(ask);
        if own == Self::default() { Self::from_chat_request(ask) } else { own }
    }

    /// Reads the effort that the members of the messages dialect set: `thinking` and `output_config`.
    pub(crate) fn from_messages_members(ask: &InferenceRequest) -> Self {
        let thinking = ask.member_value("thinking").unwrap_or_default();
        let kind = json_cursor::member_value(thinking, "type").and_then(json_cursor::parse_string);
        let enabled = kind.map(|kind| kind != "disabled");
        let level = config_effort(ask).and_then(|effort| effort.level);
        Self { enabled, level }.with_budget(json_cursor::member_value(thinking, "budget_tokens"))
    }

    /// Replaces the level by that of another effort, if it has one and reasoning is not disabled.
    fn with_level(self, other: Option<Self>) -> Self {
        let level = other.and_then(|other| other.level).filter(|_| self.enabled != Some(false));
        Self { level: level.or(self.level), ..self }
    }

    /// Adds a budget of reasoning tokens; 0 disables reasoning, unless it is enabled explicitly.
    fn with_budget_or_off(self, tokens: Option<&[u8]>) -> Self {
        let is_off = self.enabled.is_none() && tokens.and_then(json_cursor::parse_float) == Some(0.0);
        if is_off { with_enabled(Some(false)) } else { self.with_budget(tokens) }
    }

    /// Adds the level that corresponds to a budget of reasoning tokens, unless a level is set or reasoning is disabled.
    fn with_budget(self, tokens: Option<&[u8]>) -> Self {
        let level = tokens
            .and_then(json_cursor::parse_integer)
            .map(EffortLevel::from_budget)
            .filter(|_| self.enabled != Some(false));
        Self { level: self.level.or(level), ..self }
    }
}

const fn with_enabled(switch: Option<bool>) -> ReasoningEffort {
    ReasoningEffort { enabled: switch, level: None }
}

fn parse_bool(value: &[u8]) -> Option<bool> {
    match value {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Returns the effort in `output_config` of a request; `None` if it has none.
fn config_effort(ask: &InferenceRequest) -> Option<ReasoningEffort> {
    let config = ask.member_value("output_config")?;
    json_cursor::member_value(config, "effort").map(parse_effort)
}

/// Parses `reasoning_effort`, or `effort` of `reasoning` or `output_config`.
pub(crate) fn parse_effort(value: &[u8]) -> ReasoningEffort {
    let level = match json_cursor::parse_string(value).unwrap_or_default().as_ref() {
        "none" => return with_enabled(Some(false)),
        "minimal" | "low" => EffortLevel::Low,
        "medium" => EffortLevel::Medium,
        "high" => EffortLevel::High,
        "xhigh" => EffortLevel::XHigh,
        "max" => EffortLevel::Max,
        _ => return ReasoningEffort::default(),
    };
    ReasoningEffort { enabled: None, level: Some(level) }
}

/// Returns true if a parameter is a budget of reasoning tokens and its value is 0, so that it disables reasoning.
pub(crate) fn is_zero_reasoning_budget(name: &str, value: &[u8]) -> bool {
    BUDGETS.contains(&name) && json_cursor::parse_float(value) == Some(0.0)
}

/// Returns the effort that the client requests, and its replacement for chat providers. `None` unless the effort is
/// one of [`EXACT_WORDS`].
pub(crate) fn effort_and_replacement(ask: &InferenceRequest) -> Option<(&'static str, &'static str)> {
    let member = |name, key| ask.member_value(name).and_then(|value| json_cursor::member_value(value, key));
    let value = match ask.dialect.request_body_format() {
        RequestBodyFormat::Chat => {
            let own = ask.member_value("reasoning_effort").or_else(|| member("reasoning", "effort"));
            own.or_else(|| member("output_config", "effort"))
        }
        RequestBodyFormat::Messages => member("output_config", "effort"),
    }?;
    let word = EXACT_WORDS.into_iter().find(|word| json::json_string_equals(value, word))?;
    let level = parse_effort(value).level.unwrap_or(EffortLevel::Low);
    Some((word, level.chat_name()))
}

/// Returns true if the client disables reasoning, by the parameter of any vendor or engine.
pub(crate) fn is_reasoning_off(ask: &InferenceRequest) -> bool {
    match ask.dialect.request_body_format() {
        RequestBodyFormat::Chat => ReasoningEffort::from_chat_request(ask).enabled == Some(false),
        RequestBodyFormat::Messages => ReasoningEffort::from_messages_request(ask).enabled == Some(false),
    }
}

/// Returns true if a chat client asks to leave the reasoning out of the answer. The model may reason nevertheless.
pub(crate) fn is_reasoning_hidden(ask: &InferenceRequest) -> bool {
    let exclude = ask.member_value("reasoning").and_then(|value| json_cursor::member_value(value, "exclude"));
    let format = ask.member_value("reasoning_format").unwrap_or_default();
    ask.member_value("include_reasoning") == Some(b"false")
        || exclude == Some(b"true")
        || json::json_string_equals(format, "hidden")
}

/// Parses `think` of Ollama: a boolean or an effort.
fn parse_think(value: &[u8]) -> ReasoningEffort {
    match parse_bool(value) {
        Some(on) => with_enabled(Some(on)),
        None => parse_effort(value),
    }
}

/// Parses the value of `reasoning`: `{"effort":…}`, `{"enabled":…}` or `{"max_tokens":…}`.
fn parse_reasoning(value: &[u8]) -> ReasoningEffort {
    let effort = json_cursor::member_value(value, "effort").map(parse_effort).unwrap_or_default();
    if effort != ReasoningEffort::default() {
        return effort;
    }
    let budget = json_cursor::member_value(value, "max_tokens");
    with_enabled(json_cursor::member_value(value, "enabled").and_then(parse_bool)).with_budget_or_off(budget)
}

/// Parses the value of `thinking`: `{"type":"enabled","budget_tokens":…}`, or a boolean. The types `adaptive` and `auto`,
/// with which the model itself decides how much it thinks, enable thinking.
fn parse_thinking(value: &[u8]) -> ReasoningEffort {
    let kind = json_cursor::member_value(value, "type").unwrap_or_default();
    let on = match () {
        () if json::json_string_equals(kind, "disabled") => Some(false),
        () if ["enabled", "adaptive", "auto"].iter().any(|on| json::json_string_equals(kind, on)) => {
            Some(true)
        }
        () => parse_bool(value),
    };
    let budget = json_cursor::member_value(value, "budget_tokens");
    if on.is_some() {
        with_enabled(on).with_budget(budget)
    } else {
        with_enabled(on).with_budget_or_off(budget)
    }
}

/// Parses `chat_template_kwargs`, for the templates of Qwen, GLM, DeepSeek and Granite.
fn parse_template_kwargs(value: &[u8]) -> ReasoningEffort {
    let says = |name| json_cursor::member_value(value, name).and_then(parse_bool);
    let level = json_cursor::member_value(value, "reasoning_effort").map(parse_effort).unwrap_or_default();
    match says("enable_thinking").or_else(|| says("thinking")) {
        None if level == ReasoningEffort::default() => {
            let budget = json_cursor::member_value(value, "thinking_budget");
            ReasoningEffort::default().with_budget_or_off(budget)
        }
        None => level,
        on => ReasoningEffort { enabled: on, level: level.level.filter(|_| on == Some(true)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;
    use penstock_core::Dialect;

    fn read(members: &str) -> ReasoningEffort {
        ReasoningEffort::from_chat_request(&test_support::sample_request(
            Dialect::Chat,
            format!(r#"{{"model":"m","messages":[],{members}}}"#).as_bytes(),
        ))
    }

    #[test]
    fn effort_is_read_in_the_spelling_of_every_vendor() {
        let off = with_enabled(Some(false));
        for members in [
            r#""reasoning_effort":"none""#,
            r#""reasoning_effort":"n\u006fne""#,
            r#""chat_template_kwargs":{"enable_thinking":false}"#,
            r#""chat_template_kwargs":{"enable\u005fthinking":false,"x":1}"#,
            r#""chat_template_kwargs":{"thinking":false}"#,
            r#""enable_thinking":false,"thinking_budget":9000"#,
            r#""thinking":{"type":"disabled"}"#,
            r#""thinking":{"type":"disabl\u0065d","budget_tokens":9000}"#,
            r#""thinking":false"#,
            r#""thinking":{"type":"disabled"},"output_config":{"effort":"high"}"#,
            r#""output_config":{"effort":"none"}"#,
            r#""reasoning":{"effort":"none"}"#,
            r#""reasoning":{"enabled":false}"#,
            r#""reasoning_effort":"none","thinking":{"type":"enabled"}"#,
            r#""reasoning":{"max_tokens":0}"#,
            r#""thinking_budget":0"#,
            r#""thinking_token_budget":0.0"#,
            r#""reasoning_budget":0"#,
            r#""think":false"#,
            r#""disable_reasoning":true"#,
            r#""max_thinking_tokens":0"#,
            r#""thinking":{"budget_tokens":0}"#,
            r#""chat_template_kwargs":{"thinking_budget":0}"#,
        ] {
            assert_eq!(read(members), off, "{members}");
        }
        let level = |level| ReasoningEffort { enabled: None, level: Some(level) };
        let on = |level| ReasoningEffort { enabled: Some(true), level };
        for (members, effort) in [
            (r#""reasoning_effort":"minimal""#, level(EffortLevel::Low)),
            (r#""reasoning_effort":"xhigh""#, level(EffortLevel::XHigh)),
            (r#""reasoning":{"effort":"max"}"#, level(EffortLevel::Max)),
            (r#""reasoning":{"max_tokens":1999}"#, level(EffortLevel::Low)),
            (r#""reasoning":{"max_tokens":2000}"#, level(EffortLevel::Medium)),
            (r#""reasoning":{"max_tokens":8000}"#, level(EffortLevel::High)),
            (r#""reasoning":{"enabled":true}"#, on(None)),
            (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, on(Some(EffortLevel::Low))),
            (r#""thinking":{"type":"adaptive"}"#, on(None)),
            (r#""thinking":{"type":"\u0061uto","budget_tokens":2000}"#, on(Some(EffortLevel::Medium))),
            (
                r#""thinking":{"type":"adaptive"},"output_config":{"effort":"low"}"#,
                on(Some(EffortLevel::Low)),
            ),
            (r#""output_config":{"effort":"xhigh"},"enable_thinking":true"#, level(EffortLevel::XHigh)),
            (r#""output_config":{"effort":"low"},"reasoning_effort":"high""#, level(EffortLevel::High)),
            (r#""output_config":{"effort":null},"enable_thinking":true"#, on(None)),
            (r#""enable_thinking":true"#, on(None)),
            (r#""chat_template_kwargs":{"enable_thinking":true}"#, on(None)),
            (r#""chat_template_kwargs":{"reasoning_effort":"high"}"#, level(EffortLevel::High)),
            (r#""reasoning_effort":"low","enable_thinking":false"#, level(EffortLevel::Low)),
            (r#""reasoning":{"summary":"auto"},"enable_thinking":true"#, on(None)),
            (r#""chat_template_kwargs":{"x":1}"#, ReasoningEffort::default()),
            (r#""think":true"#, on(None)),
            (r#""think":"high""#, level(EffortLevel::High)),
            (r#""think":false,"reasoning_effort":"high""#, level(EffortLevel::High)),
            (r#""reasoning_budget":-1,"thinking_budget":100"#, ReasoningEffort::default()),
            (r#""reasoning_effort":null,"thinking":{}"#, ReasoningEffort::default()),
            (r#""reasoning_effort":"default","disable_reasoning":false"#, ReasoningEffort::default()),
            (r#""chat_template_kwargs":{"thinking_budget":100}"#, level(EffortLevel::Low)),
        ] {
            assert_eq!(read(members), effort, "{members}");
        }
    }
}
