//! Reported usage of an answer: tokens and measured energy.

use penstock_core::{AttemptTarget, InferenceRequest, MeasuredEnergy, ReportedUsage, TokenUsage};
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Tokens and energy of one answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerUsage {
    /// Total number of tokens, which are all input tokens; `None` if the provider does not report it.
    pub(crate) tokens: Option<u64>,
    /// Energy measured by the provider; `None` if the provider does not report it.
    pub(crate) measured: Option<MeasuredEnergy>,
}

impl AnswerUsage {
    /// Reads a top-level member of an answer, if it reports tokens or energy.
    pub(crate) fn read_member(&mut self, key: &str, value: &[u8]) {
        match key {
            "usage" => self.tokens = tokens(value).or(self.tokens),
            "meta" => self.tokens = self.tokens.or_else(|| tokens(usage::member_value(value, "tokens")?)),
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
        let stated = ReportedUsage { input: self.tokens, output: Some(0), ..ReportedUsage::default() };
        stated.to_plausible_usage(&ask.usage_bounds(target), &ask.estimate_unreported_usage(0))
    }
}

/// Returns the input tokens of a `usage` object, under any of the names in use; `None` if it states no number. The
/// total is used only if the input is absent or 0, because some providers state only the total.
fn tokens(usage: &[u8]) -> Option<u64> {
    let (mut total, mut input) = (None, None);
    let mut members = json::members(usage);
    while let Some((key, value)) = members.next_unescaped() {
        match &*key {
            "total_tokens" => total = usage::parse_token_count(value).or(total),
            "prompt_tokens" | "input_tokens" => {
                input = input.or_else(|| usage::parse_token_count(value));
            }
            _ => {}
        }
    }
    input.filter(|input| *input > 0).or(total).or(input)
}
