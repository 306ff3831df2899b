//! Every mistake has its message.

use super::{load, mistake, mistakes, tells, with};
use penstock_footprint::country::eu_member_state_name;

#[test]
fn a_good_configuration_has_no_mistake_and_no_warning() {
    let loaded = load(&with("", "", "", "")).unwrap();
    assert_eq!(loaded.warnings, []);
}

#[test]
fn all_mistakes_are_reported_at_once_with_file_and_line() {
    let text = "\
[listen]
htp = \"127.0.0.1:1\"
[limits]
body = 5
[[providers]]
id = \"zrh\"
country = \"CH\"
base_url = \"api.x.ch\"
api_key = \"sk-secret\"
[[providers.offers]]
model = \"lama\"
[[models]]
id = \"llama\"
kind = \"chats\"
context_length = 8192
aliases = [\"llama\"]
";
    let found = mistakes(text);
    let keys: Vec<(Option<usize>, &str)> = found.iter().map(|m| (m.line, m.key.as_str())).collect();
    assert_eq!(
        keys,
        [
            (Some(2), "listen.htp"),
            (Some(4), "limits.body"),
            (Some(5), "providers.zrh.operator"),
            (Some(5), "providers.zrh.city"),
            (Some(7), "providers.zrh.country"),
            (Some(8), "providers.zrh.base_url"),
            (Some(9), "providers.zrh.api_key"),
            (Some(11), "providers.zrh.offers[0].model"),
            (Some(14), "models.llama.kind"),
            (Some(16), "models.llama.aliases[0]"),
        ]
    );
    assert!(found.iter().all(|m| m.file == "penstock.toml"));
}

#[test]
fn a_mistake_reads_as_file_line_key_value_reason_and_remedy() {
    let text = with("[log]\nlevel = \"verbose\"", "", "", "");
    assert_eq!(
        mistake(&text).to_string(),
        "penstock.toml:3: log.level = \"verbose\"\n    It is not one of the choices.\n    \
         Write one of \"error\", \"warn\", \"info\", \"debug\"."
    );
}

#[test]
fn exactly_the_27_member_states_are_countries() {
    let mut accepted = 0;
    for a in 'A'..='Z' {
        for b in 'A'..='Z' {
            let code = format!("{a}{b}");
            let text = with("", "", "", "").replace("\"FR\"", &format!("{code:?}"));
            let good = load(&text).is_ok();
            assert_eq!(good, eu_member_state_name(&code).is_some(), "{code}");
            accepted += usize::from(good);
        }
    }
    assert_eq!(accepted, 27);
}

#[test]
fn a_country_outside_the_union_is_refused_by_name() {
    let country = |code: &str| with("", "", "", "").replace("\"FR\"", &format!("{code:?}"));
    let key = "providers.p1.country";
    tells(&country("CH"), key, "Switzerland is not a member state", "one of AT BE");
    tells(&country("GB"), key, "The United Kingdom is not a member state", "one of AT BE");
    tells(&country("US"), key, "The United States is not", "Take the provider out");
    tells(&country("XX"), key, "It is not the code of a member state", "one of AT BE");
    tells(&country("fr"), key, "France is written in two capitals", "\"FR\"");
    tells(&country("EL"), key, "Greece is `GR`", "\"GR\"");
    tells(&country("Germany"), key, "Germany is `DE`", "\"DE\"");
    tells(&country(""), key, "It is not the code", "");
}

#[test]
fn unknown_keys_are_reported_with_a_suggestion() {
    tells(&with("[listen]\nhtpp = \"x\"", "", "", ""), "listen.htpp", "no such key", "Did you mean `http`?");
    tells(&with("[lisen]\nx = 1", "", "", ""), "lisen", "no such key", "Did you mean `listen`?");
    tells(&with("", "", "zzz = 1", ""), "providers.p1.zzz", "no such key", "base_url");
    tells(&with("", "", "", "modle = 1"), "providers.p1.offers[0].modle", "no such key", "`model`");
}

#[test]
fn an_unknown_key_does_not_tell_its_value_which_may_be_a_secret() {
    let found = mistake(&with("", "", "api_kye = \"sk-secret-1\"", ""));
    assert!(!format!("{found} {found:?}").contains("sk-secret-1"));
}

#[test]
fn missing_keys_are_reported_with_an_example() {
    let text = with("", "", "", "").replace("base_url = \"https://api.example.eu/v1\"\n", "");
    tells(&text, "providers.p1.base_url", "It is missing.", "base_url = \"https://api.example.eu/v1\"");
    let text = with("", "", "", "").replace("id = \"m1\"\n", "").replace("model = \"m1\"", "");
    assert!(
        mistakes(&text).iter().any(|m| m.key == "models[0].id" && m.reason.starts_with("It is missing."))
    );
}

#[test]
fn numbers_out_of_range_tell_the_range() {
    tells(&with("[routing]\nattempts = 0", "", "", ""), "routing.attempts", "from 1 to 16", "attempts = 4");
    tells(&with("", "", "", "").replace("pue = 1.2", "pue = 0.9"), "providers.p1.pue", "from 1 to 5", "1.16");
    tells(
        &with("[billing]\neur_per_credit = 0", "", "", ""),
        "billing.eur_per_credit",
        "more than 0",
        "0.01",
    );
    tells(&with("", "created = 99999999999999999999", "", ""), "models.m1.created", "too large", "");
    tells(
        &with("", "price = { input = -1 }", "", "").replace("price = { input = 0.1, output = 0.2 }\n", ""),
        "models.m1.price.input",
        "at least 0",
        "",
    );
}

#[test]
fn dangling_names_are_reported_with_a_suggestion() {
    let offers = with("", "", "", "").replace("model = \"m1\"", "model = \"m2\"");
    tells(&offers, "providers.p1.offers[0].model", "no model with this id", "Did you mean \"m1\"?");
    let alias = with("", "aliases = [\"claude\"]", "", "").replace("model = \"m1\"", "model = \"claude\"");
    tells(&alias, "providers.p1.offers[0].model", "no model with this id", "an alias; write the id, \"m1\"");
    tells(&with("", "fallbacks = [\"other-model\"]", "", ""), "models.m1.fallbacks[0]", "no model", "m1");
}

#[test]
fn names_stand_for_one_thing() {
    let twice = with("", "", "", "") + "[[models]]\nid = \"m1\"\nkind = \"chat\"\ncontext_length = 1\n";
    tells(&twice, "models.m1.id", "`models.m1.id` at penstock.toml:15 has this name already", "Take it out");
    tells(
        &with("", "aliases = [\"x\", \"x\"]", "", ""),
        "models.m1.aliases[1]",
        "aliases[0]` at penstock.toml:",
        "",
    );
    tells(&with("", "aliases = [\"x:eco\"]", "", ""), "models.m1.aliases[0]", "read as a flavor", "");
    tells(
        &with("", "", "", "[[providers.offers]]\nmodel = \"m1\""),
        "providers.p1.offers[1].model",
        "already",
        "",
    );
    let provider = "[[providers]]\nid = \"p1\"\noperator = \"Q\"\ncountry = \"DE\"\ncity = \"B\"\npue = 1.1\n\
                    base_url = \"https://b.example.eu\"\n[[providers.offers]]\nmodel = \"m1\"\n";
    tells(
        &(with("", "", "", "") + provider),
        "providers.p1.id",
        "a provider of this name already",
        "its own id",
    );
}

#[test]
fn fallbacks_end_and_do_the_same_work() {
    tells(&with("", "fallbacks = [\"m1\"]", "", ""), "models.m1.fallbacks[0]", "be its own fallback", "");
    let second = |more: &str| format!("[[models]]\nid = \"m2\"\ncontext_length = 9\n{more}\n");
    let circle = with("", "fallbacks = [\"m2\"]", "", "") + &second("kind = \"chat\"\nfallbacks = [\"m1\"]");
    assert!(mistakes(&circle).iter().all(|m| m.reason.contains("a cycle")));
    assert_eq!(mistakes(&circle).len(), 2);
    let kinds = with("", "fallbacks = [\"m2\"]", "", "") + &second("kind = \"embedding\"");
    tells(&kinds, "models.m1.fallbacks[0]", "for embedding, and this one is for chat", "same kind");
}

#[test]
fn a_shape_is_one_of_its_kinds() {
    tells(
        &with("", "", "", "shape = \"openai\""),
        "providers.p1.offers[0].shape",
        "uses dialects",
        "Remove `shape`",
    );
    let rerank = |shape: &str| with("", "", "", shape).replace("\"chat\"", "\"rerank\"");
    tells(
        &rerank("shape = \"cohere\""),
        "providers.p1.offers[0].shape",
        "no such shape for rerank",
        "cohere_v1",
    );
    tells(
        &rerank("shape = \"openai\""),
        "providers.p1.offers[0].shape",
        "no such shape for rerank",
        "vllm, jina",
    );
    assert!(mistakes(&rerank("shape = \"tei\"")).is_empty());
}

#[test]
fn listeners_have_addresses_and_ports_of_their_own() {
    let listen = |lines: &str| with(&format!("[listen]\n{lines}"), "", "", "");
    tells(&listen("http = \"localhost:8080\""), "listen.http", "not an IP address", "\"127.0.0.1:8080\"");
    tells(&listen("http = \"::1\""), "listen.http", "not an IP address", "Add the port");
    tells(&listen("http = []"), "listen.http", "no listener", "https");
    tells(
        &listen("http = \"0.0.0.0:9090\""),
        "listen.admin",
        "`listen.http` listens on 0.0.0.0:9090",
        "port of its own",
    );
    tells(&listen("http = [\"127.0.0.1:1\", \"127.0.0.1:1\"]"), "listen.http[1]", "`listen.http[0]`", "");
    assert!(load(&listen("http = [\"127.0.0.1:1\", \"127.0.0.2:1\"]")).is_ok());
    assert!(load(&listen("http = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"")).is_ok());
    let simulated = "[[simulated]]\nname = \"s\"\naddress = \"0.0.0.0:7\"\n";
    tells(&(with("", "", "", "") + simulated), "simulated.s.address", "this machine only", "127.0.0.1:7");
}

#[test]
fn base_urls_are_whole_and_hold_no_secret() {
    let base = |url: &str| with("", "", "", "").replace("https://api.example.eu/v1", url);
    let key = "providers.p1.base_url";
    tells(&base("api.example.eu/v1"), key, "does not start with", "https://api.example.eu/v1");
    tells(&base("ftp://api.example.eu"), key, "does not start with", "");
    tells(&base("https://api.example.eu/v1?a=b"), key, "query", "headers");
    tells(&base("https://api.example.eu/v1/chat/completions/"), key, "path is too long", "/v1");
    tells(&base("https://api.example.eu:99999/"), key, "port", "");
    tells(&base("https://api.example.eu:0/"), key, "port", "");
    tells(&base("https://"), key, "neither a name nor an address", "");
    tells(&base("https://1.2.3.400/"), key, "neither a name nor an address", "");
    tells(&base("https://münchen.eu/"), key, "not allowed in a URL", "ASCII");
    tells(&base("https://a.eu/../v1"), key, "simplest form", "");
    let found = mistake(&base("https://user:hunter2@api.example.eu/v1"));
    assert!(
        found.reason.contains("an exposed secret") && !format!("{found:?}").contains("hunter2"),
        "{found}"
    );
}

#[test]
fn invalid_toml_is_reported_with_every_bad_line() {
    let found = mistakes("[listen\nhttp = 1\nadmin = \n[x]\ny = \"\n");
    assert!(found.len() >= 2, "{found:#?}");
    assert!(found.iter().all(|m| m.reason.starts_with("This is not TOML") && m.line.is_some()));
    assert_eq!(mistakes("a = 1\na = 2\n").len(), 1);
}

#[test]
fn presets_fill_in_sampling_only() {
    let preset = |members: &str| with("", &format!("presets = {{ reasoning = {{ {members} }} }}"), "", "");
    tells(&preset("temprature = 1"), "models.m1.presets.reasoning.temprature", "sampling", "`temperature`");
    tells(&preset("stream = true"), "models.m1.presets.reasoning.stream", "sampling", "top_p");
    tells(
        &with("", "presets = { fast = {} }", "", ""),
        "models.m1.presets.fast",
        "no such key",
        "non_reasoning",
    );
}

#[test]
fn offers_speak_their_providers_dialects_and_models_fit_their_window() {
    let text = with("", "", "", "dialects = [\"messages\"]");
    tells(&text, "providers.p1.offers[0].dialects", "does not support messages", "Add it");
    tells(&with("", "max_output = 9000", "", ""), "models.m1.max_output", "the context window, 8192", "");
    tells(
        &with("", "energy = { active_params_b = 8, total_params_b = 4 }", "", ""),
        "models.m1.energy.total_params_b",
        "at least active_params_b",
        "",
    );
    tells(
        &with("", "billing = \"energy\"", "", ""),
        "providers.p1.offers[0]",
        "its energy use is unknown",
        "energy",
    );
}

#[test]
fn the_same_pattern_of_two_models_is_a_mistake_and_an_overlap_is_a_warning() {
    let two = |one: &str, other: &str| {
        with("", &format!("aliases = [{one}]"), "", "")
            + &format!(
                "[[models]]\nid = \"m2\"\nkind = \"chat\"\ncontext_length = 8192\naliases = [{other}]\n\
                 fallbacks = [\"m1\"]\nprice = {{ input = 0.1, output = 0.2 }}\n"
            )
    };
    tells(
        &two("\"*Sonnet*\"", "\"**sonnet*\""),
        "models.m2.aliases[0]",
        "has this name already",
        "Take it out",
    );
    let warnings = |one: &str, other: &str| {
        let warnings = load(&two(one, other)).unwrap().warnings;
        warnings.into_iter().filter(|warning| warning.key.contains("aliases")).collect::<Vec<_>>()
    };
    let found = warnings("\"claude-*\"", "\"*sonnet*\"");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].key, "models.m2.aliases[0]");
    assert!(found[0].reason.contains("\"claude-*\" of `m1`, which takes precedence"), "{}", found[0]);
    assert_eq!(
        warnings("\"*opus*\", \"*haiku*\"", "\"*sonnet*\", \"gpt-*\"").len(),
        2,
        "gpt-opus, gpt-haiku"
    );
    assert!(warnings("\"*opus*\", \"claude-*\"", "\"*sonnet*\", \"gpt-*\"").len() < 4);
}

#[test]
fn a_default_model_is_there_and_does_the_work() {
    tells(
        &with("[default_models]\ncount_tokens = \"m2\"", "", "", ""),
        "default_models.count_tokens",
        "no model with this id",
        "\"m1\"",
    );
    tells(
        &with("[default_models]\nimages = \"m1\"", "", "", ""),
        "default_models.images",
        "a model for chat",
        "a model for image",
    );
    tells(
        &with("[default_models]\nmoderations = \"m1\"", "", "", ""),
        "default_models.moderations",
        "a model for chat",
        "a model for moderation",
    );
    let settings = load(&with("[default_models]\ncount_tokens = \"m1\"", "", "", "")).unwrap().settings;
    assert_eq!(settings.default_models.count_tokens.as_deref(), Some("m1"));
}

/// A similar name is suggested only for the first unknown names: to compare all of them with all models would take
/// quadratic time.
#[test]
fn thousands_of_unknown_models_are_all_reported() {
    let offers = |of: std::ops::Range<usize>| {
        of.map(|at| format!("[[providers.offers]]\nmodel = \"x{at}\"\n")).collect::<String>()
    };
    let found = mistakes(&with("", "", "", &offers(0..2_000)));
    assert_eq!(found.len(), 2_000);
    assert!(found.iter().all(|mistake| mistake.reason == "The catalogue has no model with this id."));
}

#[test]
fn a_remedy_for_a_public_url_names_no_setting_of_providers() {
    for url in [
        "https://a.example.eu/?x=1",
        "https://a.example.eu#x",
        "https://u:p@a.example.eu",
        "ftp://a",
        "https://",
    ] {
        for section in ["listen", "console"] {
            let text = with(&format!("[{section}]\npublic_url = \"{url}\""), "", "", "");
            let found = mistakes(&text);
            let found = found.iter().find(|found| found.key.ends_with("public_url")).unwrap().to_string();
            assert!(
                found.ends_with("Write only scheme and host, such as \"https://api.example.eu\"."),
                "{found}"
            );
            assert!(!found.contains("headers") && !found.contains("api_key"), "{found}");
        }
    }
}

#[test]
fn a_provider_that_is_the_gateway_itself_is_a_mistake() {
    let text = |listen: &str, base: &str| {
        with(&format!("[listen]\n{listen}"), "", "", "").replace("https://api.example.eu", base)
    };
    for (listen, base) in [
        ("http = \"127.0.0.1:8080\"", "http://127.0.0.1:8080"),
        ("http = \"127.0.0.1:8080\"", "http://localhost:8080"),
        ("http = \"0.0.0.0:8080\"", "http://127.0.0.1:8080"),
        ("http = [\"127.0.0.1:8081\", \"[::]:8080\"]", "http://[::1]:8080"),
        ("http = \"10.0.0.1:8080\"", "http://10.0.0.1:8080"),
        ("http = \"127.0.0.1:8081\"\nadmin = \"127.0.0.1:8080\"", "http://localhost:8080"),
    ] {
        tells(&text(listen, base), "providers.p1.base_url", "gateway itself", "address of the provider");
    }
    for (listen, base) in [
        ("http = \"127.0.0.1:8080\"", "http://127.0.0.1:8081"),
        ("http = \"10.0.0.1:8080\"", "http://127.0.0.1:8080"),
        ("http = \"0.0.0.0:8080\"", "http://api.example.eu:8080"),
    ] {
        assert_eq!(mistakes(&text(listen, base)), [], "{listen} {base}");
    }
}
