//! Page that explains routing: a form for a hypothetical request, the order of the candidates for each flavor with the
//! parts of their scores, and the excluded offers.

use super::{exact, number, quantity_cell, rows, text, text_cell, time_cell, word};
use crate::block::{Block, Cell, CellState, Field, FieldKind, Form, NoticeKind, Table};
use crate::text::Text;
use serde_json::Value;

/// Path of the page.
pub const ROUTING_PATH: &str = "/console/routing";
/// Names of the query parameters of the page that describe a request.
pub const ROUTING_QUERY_PARAMETERS: [&str; 10] = [
    "model",
    "flavor",
    "prompt_tokens",
    "max_tokens",
    "needs",
    "countries",
    "max_input_cost",
    "max_carbon_intensity",
    "min_speed_tps",
    "key",
];

/// Choices of the form field `flavor` (routing flavor), each with its value and its label; the empty value selects all
/// flavors.
const FLAVORS: [(&str, &str); 6] = [
    ("", "all flavors"),
    ("balanced", ":balanced"),
    ("speed", ":speed"),
    ("price", ":price"),
    ("eco", ":eco"),
    ("batch", ":batch"),
];

/// Form with a hypothetical request; `value` returns the value of a field.
#[must_use]
pub fn hypothetical_request_form(models: &Value, value: impl Fn(&str) -> String) -> Form {
    let models: Vec<(String, String)> =
        rows(models).iter().map(|model| (text(model, "id"), text(model, "id"))).collect();
    let model = super::forms::model_choice_field(&models);
    let given = Some(value("model")).filter(|given| !given.is_empty());
    let field = |name: &'static str, label| Field::new(name, label).with_value(value(name));
    let mut form = Form::new(ROUTING_PATH, "Request", "Explain")
        .with_field(Field { value: given.unwrap_or_else(|| model.value.clone()), ..model })
        .with_field(field("flavor", "Flavor").with_kind(FieldKind::choice(&FLAVORS)))
        .with_field(field("prompt_tokens", "Prompt tokens").with_help("1000 if empty."))
        .with_field(field("max_tokens", "Maximum output tokens").with_help("Empty for the usual length of an answer."))
        .with_field(
            field("needs", "Needed capabilities").with_help(
                "Names with commas between them: tools, json_object, json_schema, images, audio, files, logprobs, logit_bias.",
            ),
        )
        .with_field(field("countries", "Countries").with_help("Two letters each, with commas between them; empty for all."))
        .with_field(field("max_input_cost", "Maximum input price, EUR per million tokens"))
        .with_field(field("max_carbon_intensity", "Maximum grid intensity, g CO₂e per kWh"))
        .with_field(field("min_speed_tps", "Minimum tokens per second"))
        .with_field(field("key", "Key id").with_help("Checks the models that the key may use; empty for any key."));
    form.is_query = true;
    form
}

/// Form that finds a past request by its id.
#[must_use]
pub fn past_request_form(id: &str) -> Form {
    let field = Field::new("request", "Request id")
        .with_value(id)
        .with_help("Header x-request-id of the answer. The last 1000 requests of this gateway are known.");
    let mut form = Form::new(ROUTING_PATH, "Past request", "Find").with_field(field);
    form.is_query = true;
    form
}

/// Order of the candidates for each flavor, the excluded offers, and the values that were scored, with prices if
/// `with_money` is true.
#[must_use]
pub fn routing_blocks(explained: &Value, with_money: bool) -> Vec<Block> {
    let flavors = explained.get("flavors").and_then(Value::as_array).into_iter().flatten();
    let mut blocks = vec![Block::Prose(Text::with_values(
        "Prompt of {0} tokens, expected answer of {1} tokens. A score is the sum of its parts; 0 is the best. At most {2} attempts are made. Fallback models: {3}.",
        [
            Text::Quantity(number(explained, "prompt_tokens").unwrap_or_default(), ""),
            Text::Quantity(number(explained, "output_tokens").unwrap_or_default(), ""),
            Text::Exact(text(explained, "attempts"), ""),
            fallbacks(explained),
        ],
    ))];
    let mut widest: &[Value] = &[];
    for flavor in flavors {
        let candidates = flavor.get("candidates").and_then(Value::as_array).map_or(widest, Vec::as_slice);
        widest = if candidates.len() > widest.len() { candidates } else { widest };
        blocks.extend(flavor_blocks(flavor));
    }
    if !widest.is_empty() {
        blocks.push(Block::Table(value_table(widest, with_money)));
    }
    blocks
}

fn fallbacks(explained: &Value) -> Text {
    match text(explained, "fallbacks") {
        names if names.is_empty() => "none".into(),
        names => names.into(),
    }
}

fn flavor_blocks(flavor: &Value) -> Vec<Block> {
    let weights = flavor.get("weights").cloned().unwrap_or_default();
    let weight = |name: &str| Text::Quantity(number(&weights, name).unwrap_or_default(), "");
    let heading = if flavor.get("is_default") == Some(&Value::Bool(true)) {
        "Flavor :{0}, the default: weights price {1}, speed {2}, environment {3}"
    } else {
        "Flavor :{0}: weights price {1}, speed {2}, environment {3}"
    };
    let heading = Text::with_values(
        heading,
        [text(flavor, "flavor").into(), weight("price"), weight("speed"), weight("environment")],
    );
    let list = |name: &str| -> &[Value] {
        flavor.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    };
    let (candidates, excluded) = (list("candidates"), list("excluded"));
    let mut blocks =
        vec![Block::Heading(heading), first_notice(candidates, number(flavor, "max_intensity_ratio"))];
    if !candidates.is_empty() {
        blocks.push(Block::Table(score_table(flavor, candidates)));
    }
    if !excluded.is_empty() {
        blocks.push(Block::Table(excluded_table(flavor, excluded)));
    }
    blocks
}

/// Sentence about the offer that is tried first, and the reason. `ratio` is the flavor's limit of the carbon intensity,
/// as a multiple of the lowest intensity of all candidates; `None` without such a limit.
fn first_notice(candidates: &[Value], ratio: Option<f64>) -> Block {
    let Some(first) = candidates.first() else {
        return Block::Notice(NoticeKind::Error, "No offer can serve this request.".into());
    };
    let shared = candidates.iter().filter(|one| one.get("shares_first_place") == Some(&Value::Bool(true)));
    let provider = Text::Data(text(first, "provider"));
    if text(first, "rank") == "unhealthy" {
        let sentence = Text::with_values("No offer is healthy; {0} is asked nevertheless.", [provider]);
        return Block::Notice(NoticeKind::Warning, sentence);
    }
    let terms = first.get("terms").cloned().unwrap_or_default();
    let term = |name: &str| Text::Quantity(number(&terms, name).unwrap_or_default(), "");
    let score = Text::Quantity(number(first, "score").unwrap_or_default(), "");
    let parts = [provider, score, term("price"), term("speed"), term("environment")];
    let sentence =
        Text::with_values("{0} comes first: score {1} = {2} price + {3} speed + {4} environment.", parts);
    let sharing: Vec<String> = shared.map(|one| text(one, "provider")).collect();
    let sentence = match sharing.len() {
        0 | 1 => sentence,
        _ => Text::with_values(
            "{0} Scores that differ by at most 0.05 count as equal; these offers share the requests: {1}.",
            [sentence, sharing.join(", ").into()],
        ),
    };
    let is_above = candidates.iter().any(|one| text(one, "rank") == "above_carbon_limit");
    let limit =
        "{0} Offers whose grid emits more than {1} times as much as the cleanest come after the others.";
    let sentence = match ratio.filter(|_| is_above) {
        Some(ratio) => Text::with_values(limit, [sentence, Text::Quantity(ratio, "")]),
        None => sentence,
    };
    Block::Notice(NoticeKind::Success, sentence)
}

/// Scores of the candidates, best first.
fn score_table(flavor: &Value, candidates: &[Value]) -> Table {
    let row = |(at, one): (usize, &Value)| {
        let terms = one.get("terms").cloned().unwrap_or_default();
        vec![
            Cell::text((at + 1).to_string()),
            text_cell(one, "provider"),
            Cell::text(super::country(&text(one, "country"))),
            quantity_cell(one, "score", ""),
            quantity_cell(&terms, "price", ""),
            quantity_cell(&terms, "speed", ""),
            quantity_cell(&terms, "environment", ""),
            health_cell(one),
            Cell::text(remarks(one)),
        ]
    };
    Table {
        title: Text::with_values("Candidates of :{0}", [text(flavor, "flavor").into()]),
        headings: vec![
            "Rank",
            "Provider",
            "Country",
            "Score",
            "Price part",
            "Speed part",
            "Environment part",
            "Health",
            "Remarks",
        ],
        rows: candidates.iter().enumerate().map(row).collect(),
        empty_text: "No offer can serve this request.",
        next: None,
        is_screen_only: false,
    }
}

/// Table of the values that were scored, which are the same for each flavor.
fn value_table(candidates: &[Value], with_money: bool) -> Table {
    let percent = |one: &Value, name: &str| match number(one, name) {
        Some(share) => Cell::number(Text::Quantity(share * 100.0, "%")),
        None => Cell::number("–"),
    };
    let row = |one: &Value| {
        let mut cells = vec![text_cell(one, "provider")];
        cells.extend(with_money.then(|| quantity_cell(one, "price_eur", "EUR")));
        cells.extend([
            quantity_cell(one, "predicted_seconds", "s"),
            percent(one, "failing"),
            in_flight_cell(one),
            quantity_cell(one, "g_per_kwh", "g/kWh"),
            percent(one, "renewable"),
        ]);
        cells
    };
    let mut headings = vec!["Provider"];
    headings.extend(with_money.then_some("Expected price"));
    headings.extend([
        "Expected time",
        "Failures",
        "In flight",
        "Grid intensity, yearly mean",
        "Renewable share",
    ]);
    Table {
        title: "Values behind the scores".into(),
        headings,
        rows: candidates.iter().map(row).collect(),
        empty_text: "No offer can serve this request.",
        next: None,
        is_screen_only: false,
    }
}

fn health_cell(one: &Value) -> Cell {
    let health = text(one, "health");
    let state = match &*health {
        "healthy" => CellState::Good,
        "half_open" | "cooldown" => CellState::Warning,
        _ => CellState::Bad,
    };
    let shown = match number(one, "rests_for_seconds") {
        Some(seconds) => {
            Text::with_values("{0}, back in {1}", [Text::Word(health), Text::Quantity(seconds.ceil(), "s")])
        }
        None => Text::Word(health),
    };
    Cell::text(shown).with_state(state)
}

fn in_flight_cell(one: &Value) -> Cell {
    let of = |name: &str| Text::Quantity(number(one, name).unwrap_or_default(), "");
    match number(one, "max_in_flight") {
        Some(_) => {
            Cell::number(Text::with_values("{0} of {1}", [of("requests_in_flight"), of("max_in_flight")]))
        }
        None => quantity_cell(one, "requests_in_flight", ""),
    }
}

/// Facts of a candidate that the scores do not show.
fn remarks(one: &Value) -> Text {
    let is = |name: &str| one.get(name) == Some(&Value::Bool(true));
    let facts = [
        (is("shares_first_place"), "shares the first place"),
        (text(one, "rank") == "above_carbon_limit", "above the carbon limit"),
        (is("is_full"), "no free slot"),
        (is("is_answer_shortened"), "answer shortened by the limits of the offer"),
        (is("is_speed_unknown"), "speed unknown"),
        (number(one, "predicted_seconds").is_none(), "not measured yet"),
    ];
    let shown = facts.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, fact)| Text::from(fact));
    shown.reduce(|one, other| Text::with_values("{0}, {1}", [one, other])).unwrap_or_default()
}

fn excluded_table(flavor: &Value, excluded: &[Value]) -> Table {
    let row = |one: &Value| {
        vec![
            text_cell(one, "provider"),
            Cell::text(super::country(&text(one, "country"))),
            Cell::text(Text::Word(text(one, "reason"))).with_state(CellState::Warning),
            Cell::text(Text::from_sentence(
                &text(one, "message"),
                &["The offer does not meet these filters: {0}."],
            )),
        ]
    };
    Table {
        title: Text::with_values("Excluded for :{0}", [text(flavor, "flavor").into()]),
        headings: vec!["Provider", "Country", "Reason", "Explanation"],
        rows: excluded.iter().map(row).collect(),
        empty_text: "No offer is excluded.",
        next: None,
        is_screen_only: false,
    }
}

/// Facts and attempts of a past request.
#[must_use]
pub fn past_request_blocks(request: &Value) -> Vec<Block> {
    let facts = [
        ("Request id", text_cell(request, "id")),
        ("Time", time_cell(request, "at")),
        ("Model", text_cell(request, "model")),
        ("Flavor", text_cell(request, "flavor")),
        ("Provider", text_cell(request, "provider")),
        ("Outcome", Cell::text(word(request, "outcome"))),
        ("Time to first token", quantity_cell(request, "first_token_seconds", "s")),
        ("Session", Cell::text(word(request, "session"))),
    ];
    let attempts = request.get("attempts").and_then(Value::as_array).into_iter().flatten();
    let attempt = |(at, one): (usize, &Value)| {
        let seconds = number(one, "seconds").unwrap_or_default();
        vec![
            Cell::text((at + 1).to_string()),
            text_cell(one, "provider"),
            Cell::text(word(one, "outcome")),
            Cell::number(Text::Quantity(seconds, "s")).with_exact_value(exact(seconds, "s")),
        ]
    };
    let table = |title: &'static str, headings: Vec<&'static str>, rows| Table {
        title: title.into(),
        headings,
        rows,
        empty_text: "No provider was asked.",
        next: None,
        is_screen_only: false,
    };
    let facts = facts.into_iter().map(|(name, cell)| vec![Cell::text(name), cell]).collect();
    vec![
        Block::Table(table("Past request", vec!["Property", "Value"], facts)),
        Block::Table(table(
            "Attempts",
            vec!["Number", "Provider", "Outcome", "Time"],
            attempts.enumerate().map(attempt).collect(),
        )),
        Block::Notice(
            NoticeKind::Warning,
            "The scores below are those of a request of this size now, not those of the past.".into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::language::Language;
    use serde_json::json;

    fn candidate(provider: &str, score: f64, shares: bool, rank: &str) -> Value {
        json!({ "provider": provider, "score": score, "shares_first_place": shares, "rank": rank, "health": "healthy",
            "price_eur": 0.01, "terms": { "price": score, "speed": 0.0, "environment": 0.0 } })
    }

    fn notice(candidates: &[Value]) -> String {
        match first_notice(candidates, Some(2.0)) {
            Block::Notice(_, text) => text.render(Language::English).into_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_first_offer_is_named_with_the_parts_of_its_score() {
        let one = candidate("a", 0.125, true, "usable");
        assert_eq!(
            notice(std::slice::from_ref(&one)),
            "a comes first: score 0.125 = 0.125 price + 0 speed + 0 environment."
        );
        let tied = notice(&[one, candidate("b", 0.15, true, "usable"), candidate("c", 0.9, false, "usable")]);
        assert!(tied.ends_with("share the requests: a, b."), "{tied}");
        let ejected = notice(&[candidate("a", 0.0, false, "unhealthy")]);
        assert_eq!(ejected, "No offer is healthy; a is asked nevertheless.");
        assert_eq!(notice(&[]), "No offer can serve this request.");
    }

    #[test]
    fn money_is_shown_only_to_those_who_may_see_it() {
        let explained = json!({ "flavors": [{ "flavor": "eco", "candidates": [candidate("a", 0.1, true, "usable")],
            "excluded": [{ "provider": "b", "reason": "filters.countries", "message": "The offer does not meet these filters: countries." }] }] });
        for with_money in [true, false] {
            let shown = format!("{:?}", routing_blocks(&explained, with_money));
            assert_eq!(shown.contains("Expected price"), with_money);
            assert!(shown.contains("The offer does not meet these filters: {0}."), "{shown}");
        }
    }
}
