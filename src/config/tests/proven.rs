//! What the house gets.

use super::super::settings::{BaseUrl, Offer, TokenIds};
use super::super::{LogFormat, Source, Surroundings};
use super::{load, with};
use penstock_contract::{Dialect, Score};
use penstock_tokens::Encoding;
use std::time::Duration;

#[test]
fn the_demo_has_no_mistake_and_no_warning() {
    let loaded = Source::Demo.load_with(Surroundings { env: &|_| None }).unwrap();
    assert_eq!(loaded.warnings, []);
    let settings = loaded.settings;
    assert_eq!(settings.providers.len(), 3);
    assert_eq!(settings.simulators.len(), 3);
    assert_eq!(settings.log.format, LogFormat::Text);
    assert!(settings.models.iter().all(|model| settings.offers_of(&model.card.id).count() >= 2));
    let places: Vec<&str> = settings.providers.iter().map(|provider| &*provider.place.code).collect();
    assert_eq!(places, ["FI", "FR", "PL"]);
    for provider in &settings.providers {
        assert!(settings.simulators.iter().any(|simulated| simulated.address.port() == provider.base.port));
    }
    let alias = |name: &str| settings.models.iter().any(|model| model.card.aliases.iter().any(|a| a == name));
    assert!(alias("claude-haiku-4-5"));
}

#[test]
fn an_offer_takes_from_its_model_what_it_does_not_say() {
    let text =
        with("", "max_output = 512\nsupported_parameters = [\"tools\"]", "", "price = { output = 0.9 }");
    let offer = load(&text).unwrap().settings.offers.remove(0);
    assert_eq!(&*offer.name, "m1");
    assert_eq!(offer.tariff.input.unwrap().to_string(), "0.1");
    assert_eq!(offer.tariff.output.unwrap().to_string(), "0.9");
    assert_eq!((offer.context_length, offer.max_output), (8192, Some(512)));
    assert!(offer.abilities.accepts("tools"));
    assert_eq!(offer.dialects, [Dialect::Chat]);
}

#[test]
fn a_new_price_of_input_is_the_price_of_cached_input_too() {
    let model = "[models.price]\ninput = 0.1\ncached_input = 0.01\noutput = 0.2";
    let text =
        with("", "", "", "price = { input = 0.05 }").replace("price = { input = 0.1, output = 0.2 }", model);
    let offer = load(&text).unwrap().settings.offers.remove(0);
    assert_eq!(offer.tariff.cached_input, None);
}

#[test]
fn what_is_not_known_of_a_building_is_assumed_and_told() {
    let loaded = load(&with("", "", "", "").replace("pue = 1.2\n", "")).unwrap();
    assert_eq!(loaded.settings.providers[0].place.site.pue, None);
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].why.contains("1.40 is assumed"));
}

#[test]
fn what_runs_but_is_odd_is_told() {
    let warned = |text: &str, word: &str| {
        let warnings = load(text).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.why.contains(word)), "{word}: {warnings:#?}");
    };
    let base = with("", "", "", "");
    warned(&base.replace("https://api", "http://api"), "in the open");
    warned(&base.replace("[[providers.offers]]\nmodel = \"m1\"", ""), "offers no model");
    warned(&base.replace("[[providers.offers]]\nmodel = \"m1\"", ""), "No provider offers this model");
    warned(&base.replace("price = { input = 0.1, output = 0.2 }", ""), "given away");
    warned(&with("", "", "timeouts = { idle = \"20m\" }", ""), "has no effect");
    warned(&format!("[spool]\ndisk = \"1MiB\"\n{base}"), "room of uploads");
    assert_eq!(load(&base.replace("https://api.example.eu", "http://127.0.0.1:9")).unwrap().warnings, []);
}

#[test]
fn offers_of_vectors_have_a_shape_and_scores_their_scale() {
    let offer = |kind: &str, model: &str, offer: &str| {
        let text = with("", model, "", offer).replace("\"chat\"", &format!("\"{kind}\""));
        load(&text).unwrap().settings.offers.remove(0)
    };
    let shape = |offer: &Offer| offer.shape.map(|shape| (shape.name(), shape.path()));
    assert_eq!(shape(&offer("chat", "", "")), None);
    assert_eq!(shape(&offer("embedding", "", "")), Some(("openai", "/embeddings")));
    assert_eq!(shape(&offer("embedding", "", "shape = \"tei\"")), Some(("tei", "/embed")));
    assert_eq!(shape(&offer("rerank", "", "")), Some(("vllm", "/rerank")));
    assert_eq!(shape(&offer("rerank", "", "shape = \"cohere_v2\"")), Some(("cohere_v2", "/rerank")));
    assert_eq!(offer("rerank", "", "").abilities.score, Score::AsIs);
    let logits = offer("rerank", "score = \"sigmoid\"", "max_inputs = 32");
    assert_eq!((logits.abilities.score, logits.abilities.max_inputs), (Score::Sigmoid, Some(32)));
    assert_eq!(offer("rerank", "score = \"sigmoid\"", "score = \"as_is\"").abilities.score, Score::AsIs);
    assert_eq!(offer("embedding", "", "").model.token_ids, TokenIds::Text(Encoding::Cl100k));
    assert_eq!(offer("embedding", "token_ids = \"native\"", "").model.token_ids, TokenIds::Native);
}

#[test]
fn a_base_url_is_taken_apart() {
    let base = |url: &str| {
        let text = with("", "", "", "").replace("https://api.example.eu/v1", url);
        load(&text).unwrap().settings.providers[0].base.clone()
    };
    let expected = |tls, host: &str, port, path_prefix: &str, authority: &str| BaseUrl {
        tls,
        host: host.into(),
        port,
        path_prefix: path_prefix.into(),
        authority: authority.into(),
    };
    assert_eq!(
        base("https://API.example.eu/v1/"),
        expected(true, "api.example.eu", 443, "/v1", "api.example.eu")
    );
    assert_eq!(base("http://127.0.0.1:9101"), expected(false, "127.0.0.1", 9101, "", "127.0.0.1:9101"));
    assert_eq!(base("https://[::1]:8443/a/b"), expected(true, "::1", 8443, "/a/b", "[::1]:8443"));
    assert_eq!(base("https://x.eu:443"), expected(true, "x.eu", 443, "", "x.eu"));
}

#[test]
fn eco_ranks_by_the_grid_and_by_what_a_contract_is_worth() {
    let share = |contract: &str| {
        let line = format!("contractual_renewable = {{ {contract} }}");
        let place = load(&with("", "", &line, "")).unwrap().settings.providers.remove(0).place.clone();
        assert_eq!(place.grid.renewable_percent.to_string(), "27");
        place.eco_share().normalize().to_string()
    };
    assert_eq!(share("share = 1.0, evidence = \"on-site\""), "1");
    assert_eq!(share("share = 1.0, evidence = \"annual-ppa\""), "0.635");
    assert_eq!(share("share = 1.0, evidence = \"unbundled\""), "0.27");
}

#[test]
fn the_version_is_that_of_what_is_in_effect() {
    let version = |text: &str| load(text).unwrap().settings.version;
    let plain = version(&with("", "", "", ""));
    assert_eq!(plain.0.len(), 12);
    assert_eq!(plain, version(&with("[routing]\nattempts = 4 # the default", "", "", "")));
    assert_ne!(plain, version(&with("[routing]\nattempts = 3", "", "", "")));
}

#[test]
fn settings_say_what_the_file_says() {
    let top = "[routing]\npatience = \"0\"\ntotal = \"90s\"\n[process]\nthreads = 3\ndrain = \"0\"\n[limits]\njson_body = 1000";
    let settings =
        load(&with(top, "presets = { reasoning = { temperature = 0.6 } }", "", "")).unwrap().settings;
    assert_eq!(settings.routing.total, Duration::from_secs(90));
    assert_eq!(settings.threads, 3);
    assert_eq!(settings.drain, Duration::ZERO);
    assert_eq!(settings.limits.json_body, 1000);
    assert_eq!(settings.models[0].presets["reasoning"], [("temperature".into(), "0.6".into())]);
}
