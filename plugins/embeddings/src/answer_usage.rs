//! Reported usage of an answer: tokens and measured energy.

use penstock_core::{AttemptTarget, InferenceRequest, MeasuredEnergy, ReportedUsage, TokenUsage};
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Tokens and energy of one answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerUsage {
    /// Total number of tokens, which are all input tokens; `None` if the provider does not report it.
    pub(crate) tokens: Option<u64>,
    /// Number of those tokens that the provider read from its cache.
    pub(crate) cached: u64,
    /// Energy measured by the provider; `None` if the provider does not report it.
    pub(crate) measured: Option<MeasuredEnergy>,
}

impl AnswerUsage {
    /// Reads a top-level member of an answer, if it reports tokens or energy.
    pub(crate) fn read_member(&mut self, key: &str, value: &[u8]) {
        match key {
            "usage" => {
                if let Some((tokens, cached)) = tokens(value) {
                    (self.tokens, self.cached) = (Some(tokens), cached);
                }
            }
            "meta" if self.tokens.is_none() => {
                if let Some((tokens, cached)) = usage::member_value(value, "tokens").and_then(tokens) {
                    (self.tokens, self.cached) = (Some(tokens), cached);
                }
            }
            "energy" => self.measured = usage::parse_energy(value).or(self.measured),
            "impact" => self.measured = usage::parse_impact_energy(value).or(self.measured),
            _ => {}
        }
    }

    /// Adds the usage of two parts of an answer. A value that one part lacks is unknown in the sum.
    fn add(self, other: Self) -> Self {
        let sum = |one: MeasuredEnergy, other: MeasuredEnergy| MeasuredEnergy {
            joules: one.joules.saturating_add(other.joules),
            boundary: one.boundary.filter(|boundary| Some(*boundary) == other.boundary),
        };
        Self {
            tokens: self.tokens.zip(other.tokens).map(|(one, other)| one.saturating_add(other)),
            cached: self.cached.saturating_add(other.cached),
            measured: self.measured.zip(other.measured).map(|(one, other)| sum(one, other)),
        }
    }

    /// Returns the sum of the usage of all parts of an answer. Each part has text, so 0 tokens of one of several parts
    /// are a missing number; the sum would hide them.
    pub(crate) fn sum(parts: Vec<Self>) -> Self {
        let is_split = parts.len() > 1;
        let parts = parts
            .into_iter()
            .map(|part| Self { tokens: part.tokens.filter(|tokens| *tokens > 0 || !is_split), ..part });
        parts.reduce(Self::add).unwrap_or_default()
    }

    /// Returns the reported usage. If the provider reports none, or an impossible number, returns the gateway's own
    /// count.
    pub(crate) fn to_token_usage(&self, ask: &InferenceRequest, target: &AttemptTarget<'_>) -> TokenUsage {
        // Without a number of prompt tokens, the gateway counts them, and none of them as cached.
        let cached = self.tokens.map_or(0, |_| self.cached);
        let stated = ReportedUsage { input: self.tokens, cached, output: Some(0), reasoning: 0 };
        stated.to_plausible_usage(&ask.usage_bounds(target), &ask.estimate_unreported_usage(0))
    }
}

/// Returns the input tokens of a `usage` object and the cached ones among them, under any of the names in use; `None`
/// if it states no number of tokens. The total is used only if the input is absent or 0, because some providers state
/// only the total.
fn tokens(usage: &[u8]) -> Option<(u64, u64)> {
    let (mut total, mut input, mut cached) = (None, None, None);
    let mut members = json::members(usage);
    while let Some((key, value)) = members.next_unescaped() {
        match &*key {
            "total_tokens" => total = usage::parse_token_count(value).or(total),
            "prompt_tokens" | "input_tokens" => {
                input = input.or_else(|| usage::parse_token_count(value));
            }
            name => cached = usage::read_cached_tokens(name, value, cached),
        }
    }
    let tokens = input.filter(|input| *input > 0).or(total).or(input)?;
    Some((tokens, cached.unwrap_or_default()))
}
