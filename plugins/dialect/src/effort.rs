//! Reasoning effort of a chat request, in the parameters of all supported vendors and engines.

use crate::scan;
use penstock_contract::Ask;
use penstock_wire::json;

/// Requested reasoning effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// True to enable reasoning, false to disable it; `None` if not specified.
    pub(crate) switch: Option<bool>,
    /// Requested effort level.
    pub(crate) level: Option<Level>,
}

/// Effort level, as messages providers define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// Minimum thinking budget of the medium level and of the high level, in tokens.
const MEDIUM_FROM: u64 = 2_000;
const HIGH_FROM: u64 = 8_000;

impl Level {
    /// Returns the level's name for messages providers.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Returns the level's name for chat providers, which have three.
    pub(crate) const fn chat_word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High | Self::XHigh | Self::Max => "high",
        }
    }

    fn of_budget(tokens: u64) -> Self {
        match tokens {
            0..MEDIUM_FROM => Self::Low,
            MEDIUM_FROM..HIGH_FROM => Self::Medium,
            _ => Self::High,
        }
    }
}

impl Effort {
    /// Reads the effort of a chat request. `reasoning_effort` has precedence over the parameters of other vendors.
    pub(crate) fn of(ask: &Ask) -> Self {
        let of = |name, read: fn(&[u8]) -> Self| {
            ask.value(name).map(read).filter(|effort| *effort != Self::default())
        };
        of("reasoning_effort", word)
            .or_else(|| of("reasoning", reasoning))
            .or_else(|| of("thinking", thinking))
            .or_else(|| {
                let effort = of("enable_thinking", |value| switch(boolean(value)))?;
                Some(effort.with_budget(ask.value("thinking_budget")))
            })
            .or_else(|| of("chat_template_kwargs", template))
            .unwrap_or_default()
    }

    fn with_budget(self, tokens: Option<&[u8]>) -> Self {
        let level =
            tokens.and_then(scan::number).map(Level::of_budget).filter(|_| self.switch != Some(false));
        Self { level: self.level.or(level), ..self }
    }
}

const fn switch(switch: Option<bool>) -> Effort {
    Effort { switch, level: None }
}

fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Parses `reasoning_effort`, or `effort` of `reasoning`.
pub(crate) fn word(value: &[u8]) -> Effort {
    let level = match scan::string(value).unwrap_or_default().as_ref() {
        "none" => return switch(Some(false)),
        "minimal" | "low" => Level::Low,
        "medium" => Level::Medium,
        "high" => Level::High,
        "xhigh" => Level::XHigh,
        "max" => Level::Max,
        _ => return Effort::default(),
    };
    Effort { switch: None, level: Some(level) }
}

/// Parses `{"effort":…}`, `{"enabled":…}` or `{"max_tokens":…}`.
fn reasoning(value: &[u8]) -> Effort {
    let effort = scan::member(value, "effort").map(word).unwrap_or_default();
    if effort != Effort::default() {
        return effort;
    }
    let budget = scan::member(value, "max_tokens");
    switch(scan::member(value, "enabled").and_then(boolean)).with_budget(budget)
}

/// Parses `{"type":"enabled","budget_tokens":…}`, or a boolean.
fn thinking(value: &[u8]) -> Effort {
    let kind = scan::member(value, "type").unwrap_or_default();
    let on = match () {
        () if json::is_string(kind, "disabled") => Some(false),
        () if json::is_string(kind, "enabled") => Some(true),
        () => boolean(value),
    };
    switch(on).with_budget(scan::member(value, "budget_tokens"))
}

/// Parses `chat_template_kwargs`, for the templates of Qwen, GLM, DeepSeek and Granite.
fn template(value: &[u8]) -> Effort {
    let says = |name| scan::member(value, name).and_then(boolean);
    let level = scan::member(value, "reasoning_effort").map(word).unwrap_or_default();
    match says("enable_thinking").or_else(|| says("thinking")) {
        None => level,
        on => Effort { switch: on, level: level.level.filter(|_| on == Some(true)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;
    use penstock_contract::Dialect;

    fn read(members: &str) -> Effort {
        Effort::of(&trial::ask(
            Dialect::Chat,
            format!(r#"{{"model":"m","messages":[],{members}}}"#).as_bytes(),
        ))
    }

    #[test]
    fn effort_is_read_in_every_vendors_words() {
        let off = switch(Some(false));
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
            r#""reasoning":{"effort":"none"}"#,
            r#""reasoning":{"enabled":false}"#,
            r#""reasoning_effort":"none","thinking":{"type":"enabled"}"#,
        ] {
            assert_eq!(read(members), off, "{members}");
        }
        let level = |level| Effort { switch: None, level: Some(level) };
        let on = |level| Effort { switch: Some(true), level };
        for (members, effort) in [
            (r#""reasoning_effort":"minimal""#, level(Level::Low)),
            (r#""reasoning_effort":"xhigh""#, level(Level::XHigh)),
            (r#""reasoning":{"effort":"max"}"#, level(Level::Max)),
            (r#""reasoning":{"max_tokens":1999}"#, level(Level::Low)),
            (r#""reasoning":{"max_tokens":2000}"#, level(Level::Medium)),
            (r#""reasoning":{"max_tokens":8000}"#, level(Level::High)),
            (r#""reasoning":{"enabled":true}"#, on(None)),
            (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, on(Some(Level::Low))),
            (r#""enable_thinking":true"#, on(None)),
            (r#""chat_template_kwargs":{"enable_thinking":true}"#, on(None)),
            (r#""chat_template_kwargs":{"reasoning_effort":"high"}"#, level(Level::High)),
            (r#""reasoning_effort":"low","enable_thinking":false"#, level(Level::Low)),
            (r#""reasoning":{"summary":"auto"},"enable_thinking":true"#, on(None)),
            (r#""chat_template_kwargs":{"x":1}"#, Effort::default()),
            (r#""reasoning_effort":null,"thinking":{}"#, Effort::default()),
        ] {
            assert_eq!(read(members), effort, "{members}");
        }
    }
}
