//! Thinking budget of a request whose limit on generated tokens the gateway lowers.

use super::content::split_around;
use crate::body_builder::BodyBuilder;
use crate::json_cursor;
use penstock_core::{AdjustableMember, AttemptTarget};
use penstock_json_scan::json;

/// Minimum thinking budget that providers accept, in tokens.
const MIN_BUDGET_TOKENS: u64 = 1_024;

/// Treatment of `thinking` for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BudgetTreatment {
    /// Forwarded unchanged: without a budget, or with one below the limit on generated tokens.
    Unchanged,
    /// Forwarded with this budget, in tokens.
    Lowered(u64),
    /// Not forwarded, because the limit leaves no room for the minimum budget.
    Disabled,
}

impl BudgetTreatment {
    /// Returns the treatment of a budget under the lowered limit. Providers refuse a budget that is not below the
    /// limit. Such a budget becomes half of the limit, so that tokens for the answer are left.
    const fn from_budget(budget: u64, max_tokens: u64) -> Self {
        if budget < max_tokens {
            Self::Unchanged
        } else if max_tokens <= MIN_BUDGET_TOKENS {
            Self::Disabled
        } else if max_tokens / 2 < MIN_BUDGET_TOKENS {
            Self::Lowered(MIN_BUDGET_TOKENS)
        } else {
            Self::Lowered(max_tokens / 2)
        }
    }
}

/// Writes the member `thinking` after a comma, with a budget that fits under the limit of the target. If no budget
/// fits, disables thinking at offers that have a switch for it, and writes nothing for others.
pub(super) fn write_thinking(thinking: &[u8], target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    let budget = json_cursor::member_value(thinking, "budget_tokens").and_then(json_cursor::parse_integer);
    let lowered = budget.zip(target.max_tokens);
    match lowered.map(|(budget, max)| BudgetTreatment::from_budget(budget, max)) {
        None | Some(BudgetTreatment::Unchanged) => {
            let kind = json_cursor::member_value(thinking, "type").unwrap_or_default();
            let (before, after) = split_around(thinking, kind).unwrap_or((thinking, b""));
            out.push_str(r#","thinking":"#);
            out.push_source(before);
            write_type(kind, out);
            out.push_source(after);
        }
        Some(BudgetTreatment::Lowered(budget)) => {
            out.push_str(r#","thinking":{"budget_tokens":"#);
            out.push_integer(budget);
            for (name, value) in json_cursor::members(thinking).filter(|(name, _)| name != "budget_tokens") {
                out.push_byte(b',');
                out.push_json_string(&name);
                out.push_byte(b':');
                if name == "type" { write_type(value, out) } else { out.push_source(value) }
            }
            out.push_byte(b'}');
        }
        Some(BudgetTreatment::Disabled) => {
            if target.capabilities.thinking_switch && target.allows_member(AdjustableMember::Thinking) {
                out.push_str(r#","thinking":{"type":"disabled"}"#);
            }
        }
    }
}

/// Writes the type of thinking. The type `auto` of other vendors is named `adaptive` in the messages dialect.
fn write_type(kind: &[u8], out: &mut BodyBuilder<'_>) {
    match json::json_string_equals(kind, "auto") {
        true => out.push_str(r#""adaptive""#),
        false => out.push_source(kind),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use crate::{find_translator, test_support};
    use penstock_core::{Dialect, OfferCapabilities};
    use serde_json::{Value, json};

    /// Returns the limit and `thinking` of the request to a provider of this dialect.
    fn sent(
        provider: Dialect,
        thinking: &Value,
        max_tokens: Option<u64>,
        abilities: &OfferCapabilities,
    ) -> Value {
        let body = json!({"model": "m", "max_tokens": 20_000, "thinking": thinking,
            "messages": [{"role": "user", "content": "Hi"}]});
        let ask = test_support::sample_request(Dialect::Messages, body.to_string().as_bytes());
        let mut target = test_support::sample_target(provider, abilities);
        target.max_tokens = max_tokens;
        let pair = find_translator(Dialect::Messages, provider).unwrap();
        let sent = pair.build_request(&ask, &target).unwrap().concat();
        serde_json::from_slice(&sent).unwrap()
    }

    #[test]
    fn a_budget_is_lowered_below_the_lowered_limit() {
        let abilities = OfferCapabilities::default();
        let enabled = |budget: u64| json!({"type": "enabled", "budget_tokens": budget, "display": "omitted"});
        for (budget, max, expected) in [
            (10_000, None, Some(10_000)),
            (10_000, Some(10_001), Some(10_000)),
            (10_000, Some(10_000), Some(5_000)),
            (10_000, Some(4_000), Some(2_000)),
            (3_000, Some(4_000), Some(3_000)),
            (4_000, Some(4_000), Some(2_000)),
            (10_000, Some(2_047), Some(1_024)),
            (10_000, Some(1_025), Some(1_024)),
            (10_000, Some(1_024), None),
            (1_024, Some(1), None),
        ] {
            let sent = sent(Dialect::Messages, &enabled(budget), max, &abilities);
            let expected = expected.map_or(Value::Null, enabled);
            assert_eq!((&sent["thinking"], &sent["max_tokens"]), (&expected, &json!(max.unwrap_or(20_000))));
        }
        for thinking in
            [json!({"type": "adaptive"}), json!({"type": "disabled"}), json!({"type": "between_tools"})]
        {
            assert_eq!(sent(Dialect::Messages, &thinking, Some(500), &abilities)["thinking"], thinking);
        }
    }

    #[test]
    fn the_type_auto_is_sent_as_adaptive() {
        let abilities = OfferCapabilities::default();
        for (thinking, expected) in [
            (json!({"type": "auto"}), json!({"type": "adaptive"})),
            (
                json!({"display": "omitted", "type": "auto", "budget_tokens": 4_000}),
                json!({"display": "omitted", "type": "adaptive", "budget_tokens": 2_000}),
            ),
        ] {
            assert_eq!(sent(Dialect::Messages, &thinking, Some(4_000), &abilities)["thinking"], expected);
        }
    }

    #[test]
    fn thinking_without_room_is_disabled_where_the_offer_has_a_switch() {
        let abilities = OfferCapabilities { thinking_switch: true, ..OfferCapabilities::default() };
        let thinking = json!({"type": "enabled", "budget_tokens": 10_000});
        let sent = sent(Dialect::Messages, &thinking, Some(1_000), &abilities);
        assert_eq!(sent["thinking"], json!({"type": "disabled"}));
    }

    #[test]
    fn providers_of_other_dialects_get_no_budget() {
        let abilities = OfferCapabilities {
            thinking_switch: true,
            parameters: vec!["reasoning_effort".into()],
            ..OfferCapabilities::default()
        };
        let thinking = json!({"type": "enabled", "budget_tokens": 10_000});
        for provider in [Dialect::Chat, Dialect::Responses] {
            let sent = sent(provider, &thinking, Some(4_000), &abilities).to_string();
            assert!(!sent.contains("10000") && !sent.contains("budget"), "{provider:?}: {sent}");
        }
    }
}
