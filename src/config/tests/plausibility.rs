//! Tests of warnings about entries that are valid but probably unintended.

use super::{load, with};

/// Returns the reasons and the corrections of the warnings about keys that end with `about`.
fn warnings(text: &str, about: &str) -> Vec<String> {
    let loaded = load(text).unwrap_or_else(|found| panic!("{text}: {:?}", found.mistakes));
    let found = loaded.warnings.into_iter().filter(|warning| warning.key.ends_with(about));
    found.map(|warning| format!("{} {}", warning.reason, warning.remedy)).collect()
}

/// Asserts that `text` causes one warning about a key, with these words, and that `without` causes none about it.
fn warns(text: &str, about: &str, words: &[&str], without: &str) {
    let found = warnings(text, about);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    for word in words {
        assert!(found[0].contains(word), "{word}: {}", found[0]);
    }
    assert_eq!(warnings(without, about), [""; 0], "{without}");
}

#[test]
fn a_path_that_repeats_the_version_is_reported() {
    let health = |path: &str| with("", "", &format!("health = {{ path = \"{path}\" }}"), "");
    warns(&health("/v1/models"), "health.path", &["/v1/v1/models", "Write \"/models\"."], &health("/models"));
    assert_eq!(warnings(&health("/v1x/models"), "health.path"), [""; 0]);
    let base = |path: &str| with("", "", "", "").replace("example.eu/v1", &format!("example.eu{path}"));
    warns(&base("/v1/v1"), "base_url", &["`/v1` twice", "Write `/v1` once."], &base("/api/v1"));
}

#[test]
fn settings_of_an_offer_without_an_effect_are_reported() {
    let chat = with("", "", "", "completions = true");
    let embedding = chat.replace("kind = \"chat\"", "kind = \"embedding\"");
    warns(&embedding, "completions", &["a model for chat", "Take it out."], &chat);
    let continued =
        |dialects: &str| with("", "", &format!("dialects = [{dialects}]"), "continuation = \"prefill\"");
    warns(&continued("\"responses\""), "continuation", &["no effect"], &continued("\"responses\", \"chat\""));
    let tools = |kind: &str| {
        with("", "supported_parameters = [\"tools\"]", "", "")
            .replace("kind = \"chat\"", &format!("kind = \"{kind}\""))
    };
    let most = |tokens: u32| with("", "", "", &format!("max_output = {tokens}"));
    warns(&most(8_193), "max_output", &["the context window, 8192"], &most(8_192));
    warns(&tools("embedding"), "supported_parameters[0]", &["embedding", "no effect"], &tools("chat"));
}

#[test]
fn a_price_of_a_credit_that_makes_short_requests_free_is_reported() {
    let priced = |credit: &str, input: &str| {
        let price = format!("price = {{ input = {input}, output = 0 }}");
        with(&format!("[billing]\neur_per_credit = {credit}"), "", "", &price)
    };
    let words = ["25 input tokens of m1 are free", "0.01"];
    warns(&priced("1", "0.02"), "eur_per_credit", &words, &priced("0.01", "0.02"));
    for (credit, input) in [("1", "0.1"), ("1", "0"), ("0.01", "0.001")] {
        assert_eq!(warnings(&priced(credit, input), "eur_per_credit"), [""; 0], "{credit} {input}");
    }
    let later = "price_changes = [{ from = \"2027-01-01\", price = { input = 0.02 } }]";
    let text = with("[billing]\neur_per_credit = 1", "", "", later);
    assert_eq!(warnings(&text, "eur_per_credit").len(), 1, "a later price");
}

#[test]
fn figures_and_patterns_that_are_not_meant_are_reported() {
    let created = |created: u64| with("", &format!("created = {created}"), "", "");
    let usual = created(1_721_692_800);
    warns(&created(1_721_692_800_000), "created", &["milliseconds", "1721692800"], &usual);
    warns(&created(4_000_000_000), "created", &["in the future"], &usual);
    let price = |cached: &str| {
        let own = format!("price = {{ input = 1, cached_input = {cached}, output = 2 }}");
        with("", "", "", "").replace("price = { input = 0.1, output = 0.2 }", &own)
    };
    warns(&price("1.5"), "price.cached_input", &["more than the price", "at most 1."], &price("1"));
    let offer = |cached: &str| with("", "", "", &format!("price = {{ cached_input = {cached} }}"));
    warns(&offer("3"), "price.cached_input", &["more than the price"], &offer("0.05"));
    let alias = |alias: &str| with("", &format!("aliases = [\"{alias}\"]"), "", "");
    warns(&alias("*"), "aliases[0]", &["every name", "claude-*"], &alias("gpt-*"));
}
