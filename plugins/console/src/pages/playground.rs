//! Playground of the account holders: form, quote before a request, answer and its footprint afterwards.

use super::key_state::KeyState;
use super::{figure, number, place, rows, text, word};
use crate::block::{Block, CellState, Field, FieldKind, Form, NoticeKind, Tile};
use crate::text::Text;
use serde_json::Value;

/// Name and value that the second button of the form sends. They ask for another quote instead of sending the request
/// to the model.
pub const QUOTE_ACTION: (&str, &str) = ("action", "quote");

/// Maximum number of keys to choose from; with more of them, the form has a text field for the name or the id of a
/// key instead.
const MAX_KEYS: usize = 50;

/// Values that can be selected in the playground form.
#[derive(Clone, Debug, Default)]
pub struct PlaygroundChoices<'a> {
    /// Page of the account's keys, as the admin API lists them.
    pub keys: Value,
    /// Ids and names of the chat models.
    pub models: Vec<(String, String)>,
    /// Names of the flavors.
    pub flavors: Vec<&'a str>,
    /// Time at which a key has to be valid, in Unix seconds.
    pub now: u64,
    /// Default of the maximum number of tokens.
    pub max_tokens: u64,
    /// Digest of the request whose quote is shown; `None` before the quote.
    pub quoted: Option<String>,
}

/// Name of the hidden field with the digest of the request whose quote is shown.
pub const QUOTED_REQUEST_FIELD: &str = "quoted";

/// Form that is sent to `path`; `None` if no key in `choices` is valid and the account has no further keys. The button
/// of the form asks for a quote; once the quote is shown, it sends the request to the model.
#[must_use]
pub fn playground_form(path: &str, choices: &PlaygroundChoices<'_>) -> Option<Form> {
    let is_valid = |key: &&Value| KeyState::at(key, choices.now) == KeyState::Valid;
    let option = |key: &Value| {
        let id = text(key, "id");
        let name = text(key, "name");
        let label = if name.is_empty() { id.clone() } else { format!("{name} ({id})") };
        (id, Text::Data(label))
    };
    let keys: Vec<(String, Text)> = rows(&choices.keys).iter().filter(is_valid).map(option).collect();
    let has_more = choices.keys.get("next").is_some_and(|next| !next.is_null());
    let key = match keys.first() {
        Some((key, _)) if !has_more && keys.len() <= MAX_KEYS => Field::new("key", "Key")
            .with_value(key.clone())
            .with_kind(FieldKind::Choice(keys))
            .with_help("Its scopes, limits and budget apply, and it pays."),
        None if !has_more => return None,
        _ => Field::new("key", "Key")
            .required()
            .with_help("Name or id of a key. Its scopes, limits and budget apply, and it pays."),
    };
    let default = (String::new(), Text::from("Default of the model"));
    let flavors =
        choices.flavors.iter().map(|flavor| ((*flavor).to_owned(), Text::Data((*flavor).to_owned())));
    let flavors = std::iter::once(default).chain(flavors).collect();
    let submit = if choices.quoted.is_some() { "Send" } else { "Show the quote" };
    let form = Form::new(path, "Request", submit)
        .with_field(key)
        .with_field(super::forms::model_choice_field(&choices.models))
        .with_field(Field::new("flavor", "Flavor").with_kind(FieldKind::Choice(flavors)))
        .with_field(
            Field::new("prompt", "Prompt")
                .with_kind(FieldKind::Lines)
                .required()
                .with_help("Prompt and answer are not stored."),
        )
        .with_field(
            Field::new("max_tokens", "Maximum number of generated tokens")
                .with_value(choices.max_tokens.to_string())
                .required(),
        );
    Some(match &choices.quoted {
        Some(digest) => {
            let quoted = Field::hidden(QUOTED_REQUEST_FIELD, digest.as_str());
            form.with_field(quoted).with_second_button(QUOTE_ACTION, "Show the quote")
        }
        None => form,
    })
}

/// Tiles of a quote. `quote` has the members `expected` (with `environment_impact` and `billing_cost`), `expected_eur`,
/// `output_tokens` and `highest_eur`.
#[must_use]
pub fn quote_blocks(quote: &Value) -> Vec<Block> {
    let expected = quote.get("expected").cloned().unwrap_or_default();
    let tokens = Text::with_values("for about {0} generated tokens", [figure(quote, "output_tokens", "")]);
    let mut tiles = vec![
        tile("Expected cost", figure(quote, "expected_eur", "EUR"), tokens),
        tile("Cost at most", figure(quote, "highest_eur", "EUR"), "reserved while the request runs".into()),
    ];
    tiles.extend(footprint_tiles(&expected));
    vec![Block::Heading("Quote".into()), Block::Tiles(tiles)]
}

/// Blocks of an answer with its actual cost and footprint. `answer` has the members `text`, `finish_reason`, `usage`,
/// `eur`, `environment_impact` and `billing_cost`.
#[must_use]
pub fn playground_answer_blocks(answer: &Value) -> Vec<Block> {
    let mut blocks = vec![Block::Heading("Answer".into())];
    if answer.get("finish_reason").and_then(Value::as_str) == Some("length") {
        let text = "The answer ends at the maximum number of tokens.";
        blocks.push(Block::Notice(NoticeKind::Warning, text.into()));
    }
    blocks.push(Block::Prose(text(answer, "text").into()));
    let usage = answer.get("usage").cloned().unwrap_or_default();
    let tokens = [figure(&usage, "prompt_tokens", ""), figure(&usage, "completion_tokens", "")];
    let tokens = Text::with_values("{0} tokens of input, {1} generated", tokens);
    let mut tiles = vec![tile("Cost", figure(answer, "eur", "EUR"), tokens)];
    tiles.extend(footprint_tiles(answer));
    blocks.push(Block::Tiles(tiles));
    blocks
}

/// Returns the tiles with the figures and the provider in `environment_impact`, and the wallet in `billing_cost`.
fn footprint_tiles(members: &Value) -> Vec<Tile> {
    let impact = members.get("environment_impact").cloned().unwrap_or_default();
    let cost = members.get("billing_cost").cloned().unwrap_or_default();
    let provenance = impact.get("provenance").cloned().unwrap_or_default();
    let low_and_high = match (number(&provenance, "energy_kwh_low"), number(&provenance, "energy_kwh_high")) {
        (Some(low), Some(high)) => {
            Text::with_values("{0} to {1}", [Text::Quantity(low, "kWh"), Text::Quantity(high, "kWh")])
        }
        _ => Text::default(),
    };
    vec![
        tile(
            "Credits",
            figure(&cost, "credits", ""),
            Text::with_values("paid with {0}", [word(&cost, "paid_with")]),
        ),
        tile("Energy", figure(&impact, "energy_kwh", "kWh"), low_and_high),
        tile("Carbon, location-based", figure(&impact, "carbon_g_co2", "g"), "CO₂ equivalent".into()),
        tile("Water", figure(&impact, "water_liters", "l"), Text::default()),
        tile("Provider", text(&impact, "provider_id").into(), place(&text(&impact, "location"))),
    ]
}

fn tile(label: &'static str, value: Text, detail: Text) -> Tile {
    Tile { label: label.into(), value, detail, state: CellState::None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn only_valid_keys_can_be_chosen() {
        let keys = json!({ "data": [
            { "id": "k1", "name": "old", "revoked": 7 },
            { "id": "k0", "name": "over", "revoked": null, "expires": 10 },
            { "id": "k2", "name": "ci", "revoked": null },
        ] });
        let choices = PlaygroundChoices { keys, now: 10, ..PlaygroundChoices::default() };
        let form = playground_form("/dashboard/playground", &choices).unwrap();
        let key = form.fields.iter().find(|field| field.name == "key").unwrap();
        assert_eq!(key.kind, FieldKind::Choice(vec![("k2".to_owned(), Text::Data("ci (k2)".to_owned()))]));
        assert!(playground_form("/", &PlaygroundChoices::default()).is_none());
    }

    #[test]
    fn one_of_many_keys_or_models_is_entered() {
        let key = |id: usize| json!({ "id": format!("k{id}"), "name": "ci" });
        let many = |keys: usize, next: Value| json!({ "data": (0..keys).map(key).collect::<Vec<_>>(), "next": next });
        let field =
            |form: &Form, name: &str| form.fields.iter().find(|field| field.name == name).unwrap().clone();
        let models: Vec<(String, String)> =
            (0..900).map(|id| (format!("m{id}"), "a model with a long name".to_owned())).collect();
        for (keys, models, is_key_chosen, is_model_chosen) in [
            (many(50, Value::Null), models.get(..3).unwrap_or_default(), true, true),
            (many(51, Value::Null), &models[..], false, false),
            (many(3, json!("k3")), &[], false, true),
            (many(0, json!("k3")), &[], false, true),
        ] {
            let choices = PlaygroundChoices { keys, models: models.to_vec(), ..PlaygroundChoices::default() };
            let form = playground_form("/", &choices).unwrap();
            assert_eq!(matches!(field(&form, "key").kind, FieldKind::Choice(_)), is_key_chosen);
            assert_eq!(matches!(field(&form, "model").kind, FieldKind::Choice(_)), is_model_chosen);
        }
    }

    #[test]
    fn a_request_is_sent_once_its_quote_is_shown_only() {
        let keys = json!({ "data": [{ "id": "k2", "name": "ci", "revoked": null }] });
        let mut choices = PlaygroundChoices { keys, ..PlaygroundChoices::default() };
        let first = playground_form("/", &choices).unwrap();
        assert!(first.submit == Text::from("Show the quote") && first.second_button.is_none());
        choices.quoted = Some("d1".to_owned());
        let second = playground_form("/", &choices).unwrap();
        assert!(second.submit == Text::from("Send") && second.second_button.is_some());
        assert!(second.fields.iter().any(|field| field.name == QUOTED_REQUEST_FIELD && field.value == "d1"));
    }

    #[test]
    fn a_quote_has_the_expected_and_the_highest_price() {
        let quote = json!({
            "expected": { "environment_impact": { "energy_kwh": 0.0012, "location": "Paris, France" },
                "billing_cost": { "credits": "0.5", "paid_with": "credits" } },
            "expected_eur": "0.002", "highest_eur": "0.05", "output_tokens": 256,
        });
        let shown = format!("{:?}", quote_blocks(&quote));
        for text in ["(0.002, \"EUR\")", "(0.05, \"EUR\")", "(0.0012, \"kWh\")", "Word(\"France\")", "256"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
    }
}
