//! Resolved settings.

use super::super::settings::{BaseUrl, OfferSettings, TokenIdPolicy};
use super::super::{ConfigSource, LogFormat, ResolveEnv};
use super::{load, mistake, mistakes, tells, with};
use penstock_core::{Dialect, RerankScoreTransform};
use penstock_tokens::PublishedEncoding;
use std::time::Duration;

#[test]
fn the_demo_has_no_mistake_and_no_warning() {
    let loaded = ConfigSource::Demo.load_with_env(ResolveEnv { env: &|_| None }).unwrap();
    assert_eq!(loaded.warnings, []);
    let settings = loaded.settings;
    assert_eq!(settings.providers.len(), 3);
    assert_eq!(settings.simulators.len(), 3);
    assert_eq!(settings.log.format, LogFormat::Text);
    assert!(settings.models.iter().all(|model| settings.offers_of_model(&model.card.id).count() >= 2));
    let codes: Vec<&str> = settings.providers.iter().map(|provider| &*provider.location.code).collect();
    assert_eq!(codes, ["FI", "FR", "PL"]);
    for provider in &settings.providers {
        assert!(
            settings.simulators.iter().any(|simulated| simulated.address.port() == provider.base_url.port)
        );
    }
    let alias = |name: &str| settings.models.iter().any(|model| model.card.aliases.iter().any(|a| a == name));
    assert!(alias("claude-haiku-4-5"));
}

#[test]
fn an_offer_inherits_absent_settings_from_its_model() {
    let text =
        with("", "max_output = 512\nsupported_parameters = [\"tools\"]", "", "price = { output = 0.9 }");
    let offer = load(&text).unwrap().settings.offers.remove(0);
    assert_eq!(&*offer.name, "m1");
    assert_eq!(offer.tariff.input.unwrap().to_string(), "0.1");
    assert_eq!(offer.tariff.output.unwrap().to_string(), "0.9");
    assert_eq!((offer.context_length, offer.max_output), (8192, Some(512)));
    assert!(offer.capabilities.accepts_parameter("tools"));
    assert_eq!(offer.dialects, [Dialect::Chat]);
}

#[test]
fn a_new_price_of_input_keeps_the_price_of_cached_input_up_to_its_own() {
    let model = "[models.price]\ninput = 0.1\ncached_input = 0.01\noutput = 0.2";
    let change = |from: &str, price: &str| {
        format!("[[models.price_changes]]\nfrom = \"{from}\"\nprice = {{ {price} }}\n")
    };
    for (offer, cached) in [
        ("price = { input = 0.05 }", Some("0.01")),
        ("price = { input = 0.005 }", Some("0.005")),
        ("price = { input = 0.05, cached_input = 0.02 }", Some("0.02")),
        ("price = { output = 0.3 }", Some("0.01")),
    ] {
        let text = with("", "", "", offer).replace("price = { input = 0.1, output = 0.2 }", model);
        let offer = load(&text).unwrap().settings.offers.remove(0);
        assert_eq!(offer.tariff.cached_input.map(|price| price.to_string()).as_deref(), cached);
    }
    let changes = change("2027-01-01", "input = 5, output = 7") + &change("2027-02-01", "input = 3");
    let text = with("", &changes, "", "").replace("price = { input = 0.1, output = 0.2 }", model);
    let settings = load(&text).unwrap().settings;
    for later in [&settings.models[0].later_tariffs, &settings.offers[0].later_tariffs] {
        let prices: Vec<String> = later
            .iter()
            .filter_map(|(_, tariff)| tariff.cached_input)
            .map(|price| price.to_string())
            .collect();
        assert_eq!(prices, ["0.01", "0.01"]);
    }
}

#[test]
fn the_catalogue_has_the_prices_of_each_day_and_else_those_of_the_offers() {
    let shown = |text: &str, at: u64| {
        let price = load(text).unwrap().settings.catalog_models().remove(0).price_at(at);
        price.map(|price| [price.input, price.cached_input, price.output].map(|price| price.to_string()))
    };
    let change = "[[models.price_changes]]\nfrom = \"1970-01-02\"\nprice = { input = 3 }";
    let text = with("", change, "", "price = { input = 9 }");
    assert_eq!(
        shown(&text, 86_399).unwrap(),
        ["0.1", "0.1", "0.2"],
        "the price of the model, not of an offer"
    );
    assert_eq!(shown(&text, 86_400).unwrap(), ["3", "3", "0.2"]);
    let own = "price = { input = 1, cached_input = 0.5, output = 2 }\n\
               price_changes = [{ from = \"1970-01-03\", price = { output = 4 } }]";
    let text = with("", "", "", own).replace("price = { input = 0.1, output = 0.2 }", "");
    assert_eq!(shown(&text, 0).unwrap(), ["1", "0.5", "2"], "a model without prices is not free");
    assert_eq!(shown(&text, 2 * 86_400).unwrap(), ["1", "0.5", "4"]);
    let second = "\n[[providers]]\nid = \"p2\"\noperator = \"O\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
                  base_url = \"https://two.example.eu/v1\"\npue = 1.2\n[[providers.offers]]\nmodel = \"m1\"\n\
                  price = { input = 0.5, output = 3 }\n";
    assert_eq!(shown(&(text + second), 0).unwrap(), ["1", "0.5", "3"], "the highest of the offers");
    let unpriced = with("", "", "", "").replace("price = { input = 0.1, output = 0.2 }", "");
    assert_eq!(shown(&unpriced, 0), None);
}

#[test]
fn an_unknown_pue_is_assumed_with_a_warning() {
    let loaded = load(&with("", "", "", "").replace("pue = 1.2\n", "")).unwrap();
    assert_eq!(loaded.settings.providers[0].location.site.pue, None);
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].reason.contains("1.40 is assumed"));
}

#[test]
fn odd_settings_are_warnings() {
    let warned = |text: &str, word: &str| {
        let warnings = load(text).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.reason.contains(word)), "{word}: {warnings:#?}");
    };
    let base = with("", "", "", "");
    warned(&base.replace("https://api", "http://api"), "unencrypted");
    warned(&base.replace("[[providers.offers]]\nmodel = \"m1\"", ""), "offers no model");
    warned(&base.replace("[[providers.offers]]\nmodel = \"m1\"", ""), "No provider offers this model");
    warned(&base.replace("price = { input = 0.1, output = 0.2 }", ""), "are free here");
    warned(&with("", "", "timeouts = { idle = \"20m\" }", ""), "has no effect");
    warned(&format!("[spool]\ndisk = \"1MiB\"\n{base}"), "space of");
    assert_eq!(load(&base.replace("https://api.example.eu", "http://127.0.0.1:9")).unwrap().warnings, []);
}

#[test]
fn likely_misunderstandings_are_warnings_with_a_correction() {
    let warned = |text: &str, key: &str, why: &str, fix: &str| {
        let warnings = load(text).unwrap().warnings;
        let fits = |warning: &super::Diagnostic| {
            warning.key == key && warning.reason.contains(why) && warning.remedy.contains(fix)
        };
        assert!(warnings.iter().filter(|warning| fits(warning)).count() == 1, "{key}: {warnings:#?}");
    };
    let base = with("", "", "", "");
    for admin in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090"] {
        warned(&format!("[listen]\nadmin = \"{admin}\"\n{base}"), "listen.admin", "no TLS", "127.0.0.1");
    }
    for admin in ["127.0.0.2:9090", "[::1]:9090"] {
        assert_eq!(load(&format!("[listen]\nadmin = \"{admin}\"\n{base}")).unwrap().warnings, []);
    }
    warned(&base.replace("eu/v1", "eu"), "providers.p1.base_url", "no path", "/v1");
    warned(&base.replace("eu/v1", "eu/"), "providers.p1.base_url", "no path", "/v1");
    let retired = with("", "lifecycle = \"retired\"", "", "");
    warned(&retired, "models.m1.lifecycle", "still served", "deprecated");
    let unoffered = retired
        .replace("[[providers.offers]]\nmodel = \"m1\"", "")
        .replace("kind =", "fallbacks = []\nkind =");
    assert!(!load(&unoffered).unwrap().warnings.iter().any(|warning| warning.key.ends_with("lifecycle")));
}

#[test]
fn a_price_of_one_token_is_distinguished_from_one_of_a_million() {
    let warned = |text: &str| {
        let warnings = load(text).unwrap().warnings;
        warnings.into_iter().map(|warning| (warning.key, warning.remedy)).collect::<Vec<_>>()
    };
    let base = with("", "", "", "");
    let price = |input: &str| base.replace("input = 0.1", &format!("input = {input}"));
    let fix = "Write 0.15 if it is the price of one token.".to_owned();
    assert_eq!(warned(&price("0.00000015")), [("models.m1.price.input".to_owned(), fix)]);
    assert_eq!(warned(&price("0.000999")).len(), 1);
    for plain in ["0.001", "0", "0.01", "30"] {
        assert_eq!(warned(&price(plain)), [], "{plain}");
    }
    let offer = with("", "", "", "price = { output = 6e-7 }");
    assert_eq!(warned(&offer)[0].0, "providers.p1.offers[0].price.output");
    let later = "[[models.price_changes]]\nfrom = \"2027-01-01\"\nprice = { cached_input = 1e-8 }";
    assert_eq!(warned(&with("", later, "", ""))[0].0, "models.m1.price_changes[0].price.cached_input");
}

#[test]
fn parameters_default_to_the_usual_ones_and_misspelt_ones_are_warnings() {
    let load_with = |parameters: &str| {
        load(&with("", parameters, "", "").replace("supported_parameters = LEFT OUT", "")).unwrap()
    };
    let usual = load_with("supported_parameters = LEFT OUT");
    assert_eq!(usual.warnings.len(), 1);
    assert!(usual.warnings[0].reason.contains("left out") && usual.warnings[0].reason.contains("tools"));
    let accepts = |name: &str| usual.settings.offers[0].capabilities.accepts_parameter(name);
    assert!(accepts("tools") && accepts("temperature") && accepts("response_format"));
    assert!(!accepts("reasoning_effort") && !accepts("logit_bias"));
    assert!(usual.settings.models[0].card.supported_parameters.contains(&"tools".to_owned()));
    let none = load_with("supported_parameters = []");
    assert_eq!(
        (none.warnings.len(), none.settings.offers[0].capabilities.accepts_parameter("tools")),
        (0, false)
    );
    let misspelled =
        load_with("supported_parameters = [\"tool\", \"Temperature\", \"our_own_knob\", \"stop\"]");
    let warnings: Vec<_> = misspelled.warnings.iter().map(|w| (w.key.as_str(), w.remedy.as_str())).collect();
    assert_eq!(
        warnings,
        [
            ("models.m1.supported_parameters[0]", "Did you mean \"tools\"?"),
            ("models.m1.supported_parameters[1]", "Did you mean \"temperature\"?"),
            ("models.m1.supported_parameters[2]", "Remove it."),
        ]
    );
    assert_eq!(
        load_with("supported_parameters = [\"suffix\"]").warnings.len(),
        0,
        "a text completion takes it"
    );
    let private = load_with("supported_parameters = [\"cache_salt\", \"min_tokens\"]");
    let warnings: Vec<_> = private.warnings.iter().map(|w| w.key.as_str()).collect();
    assert_eq!(warnings, ["models.m1.supported_parameters[0]"]);
    let offer = load(&with("", "", "", "supported_parameters = [\"seeds\"]")).unwrap();
    assert_eq!(offer.warnings[0].key, "providers.p1.offers[0].supported_parameters[0]");
    let kind = |kind: &str| {
        load(
            &with("", "supported_parameters = LEFT OUT", "", "")
                .replace("supported_parameters = LEFT OUT", "")
                .replace("\"chat\"", kind),
        )
        .unwrap()
    };
    let embedding = kind("\"embedding\"");
    assert_eq!(embedding.settings.models[0].card.supported_parameters, ["encoding_format"]);
    assert!(!embedding.warnings.iter().any(|warning| warning.key.ends_with("supported_parameters")));
}

#[test]
fn a_folder_that_cannot_be_created_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = |path: &std::path::Path| format!("[storage]\npath = {path:?}\n{}", with("", "", "", ""));
    tells(&below(&file.join("a/b")), "storage.path", "is a file", "folder");
    let spool = format!("[spool]\npath = {:?}\n{}", file.join("x"), with("", "", "", ""));
    tells(&spool, "spool.path", "is a file", "folder");
    assert_eq!(load(&below(&folder.path().join("a/b/c"))).unwrap().warnings, []);
    for path in ["~/penstock", "$HOME/penstock"] {
        tells(&below(std::path::Path::new(path)), "storage.path", "is not expanded", "whole path");
    }
    // No user, including root, can create a folder there.
    let warnings = load(&below(std::path::Path::new("/proc/penstock/a"))).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.key == "storage.path"), "{warnings:?}");
}

#[test]
fn folders_of_the_gateway_must_be_separate() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = |section: &str, path: &str| {
        let storage = format!("[storage]\npath = {:?}\n", at("data"));
        format!("{storage}[{section}]\npath = {path:?}\n{}", with("", "", "", ""))
    };
    for section in ["files", "spool", "storage.export"] {
        for path in ["data", "data/store", "data/ledger/a", "data/responses", ""] {
            let separate = mistake(&text(section, &at(path)));
            assert_eq!(separate.key, format!("{section}.path"), "{path}");
        }
        assert_eq!(mistakes(&text(section, &at("data/other"))), []);
        assert_eq!(mistakes(&text(section, &at("other"))), []);
    }
    for (section, other) in
        [("files", "data/spool"), ("spool", "data/files"), ("storage.export", "data/files")]
    {
        assert_eq!(mistake(&text(section, &at(other))).key, format!("{section}.path"));
    }
    assert_eq!(mistakes(&text("files", &at("data/files"))), [], "the default may be written");
}

#[test]
fn offers_of_vectors_have_a_shape_and_scores_their_scale() {
    let offer = |kind: &str, model: &str, offer: &str| {
        let text = with("", model, "", offer).replace("\"chat\"", &format!("\"{kind}\""));
        load(&text).unwrap().settings.offers.remove(0)
    };
    let shape = |offer: &OfferSettings| offer.shape.map(|shape| (shape.name(), shape.path()));
    assert_eq!(shape(&offer("chat", "", "")), None);
    assert_eq!(shape(&offer("embedding", "", "")), Some(("openai", "/embeddings")));
    assert_eq!(shape(&offer("embedding", "", "shape = \"tei\"")), Some(("tei", "/embed")));
    assert_eq!(shape(&offer("rerank", "", "")), Some(("vllm", "/rerank")));
    assert_eq!(shape(&offer("rerank", "", "shape = \"cohere_v2\"")), Some(("cohere_v2", "/rerank")));
    assert_eq!(offer("rerank", "", "").capabilities.score_transform, RerankScoreTransform::Identity);
    let logits = offer("rerank", "score = \"sigmoid\"", "max_inputs = 32");
    assert_eq!(
        (logits.capabilities.score_transform, logits.capabilities.max_inputs),
        (RerankScoreTransform::Sigmoid, Some(32))
    );
    assert_eq!(
        offer("rerank", "score = \"sigmoid\"", "score = \"as_is\"").capabilities.score_transform,
        RerankScoreTransform::Identity
    );
    assert_eq!(offer("embedding", "", "").model.token_ids, TokenIdPolicy::Text(PublishedEncoding::Cl100k));
    assert_eq!(offer("embedding", "token_ids = \"native\"", "").model.token_ids, TokenIdPolicy::Native);
}

#[test]
fn a_base_url_is_taken_apart() {
    let base = |url: &str| {
        let text = with("", "", "", "").replace("https://api.example.eu/v1", url);
        load(&text).unwrap().settings.providers[0].base_url.clone()
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
fn eco_ranks_by_grid_and_contract() {
    let share = |contract: &str| {
        let line = format!("contractual_renewable = {{ {contract} }}");
        let location = load(&with("", "", &line, "")).unwrap().settings.providers.remove(0).location.clone();
        assert_eq!(location.grid.renewable_percent.to_string(), "27");
        location.eco_ranking_renewable_share().normalize().to_string()
    };
    assert_eq!(share("share = 1.0, evidence = \"on-site\""), "1");
    assert_eq!(share("share = 1.0, evidence = \"annual-ppa\""), "0.635");
    assert_eq!(share("share = 1.0, evidence = \"unbundled\""), "0.27");
}

#[test]
fn the_version_is_that_of_the_configuration_in_effect() {
    let version = |text: &str| load(text).unwrap().settings.version;
    let plain = version(&with("", "", "", ""));
    assert_eq!(plain.0.len(), 12);
    assert_eq!(plain, version(&with("[routing]\nattempts = 4 # the default", "", "", "")));
    assert_ne!(plain, version(&with("[routing]\nattempts = 3", "", "", "")));
}

#[test]
fn settings_match_the_file() {
    let top = "[routing]\npatience = \"0\"\ntotal = \"90s\"\n[process]\nthreads = 3\ndrain = \"0\"\n[limits]\njson_body = 1000";
    let settings =
        load(&with(top, "presets = { reasoning = { temperature = 0.6 } }", "", "")).unwrap().settings;
    assert_eq!(settings.routing.total, Duration::from_secs(90));
    assert_eq!(settings.threads, 3);
    assert_eq!(settings.drain, Duration::ZERO);
    assert_eq!(settings.limits.json_body, 1000);
    assert_eq!(settings.models[0].presets["reasoning"], [("temperature".into(), "0.6".into())]);
}
