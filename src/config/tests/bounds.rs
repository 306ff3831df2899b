//! Values of the right type that are still invalid.

use super::{mistakes, tells, with};

#[test]
fn a_list_that_must_not_be_empty_is_not() {
    let (why, fix) = ("must not be empty", "\"chat\", \"messages\"");
    tells(&with("", "", "dialects = []", ""), "providers.p1.dialects", why, fix);
    tells(&with("", "", "", "dialects = []"), "providers.p1.offers[0].dialects", why, fix);
}

#[test]
fn an_invalid_day_is_a_mistake() {
    let from = |day: &str| with("", &format!("price_changes = [{{ from = {day:?}, price = {{}} }}]"), "", "");
    for day in ["x", "", "2027-02-30", "2027-01-011"] {
        tells(&from(day), "models.m1.price_changes[0].from", "It is not a day.", "2027-01-01");
    }
    assert_eq!(mistakes(&from("2027-01-01")), []);
}

#[test]
fn a_preset_has_only_members_of_a_request() {
    let preset = |members: &str| with("", &format!("presets = {{ reasoning = {{ {members} }} }}"), "", "");
    let key = |name: &str| format!("models.m1.presets.reasoning.{name}");
    tells(&preset("temperature = \"hot\""), &key("temperature"), "expected a number", "a request may set");
    tells(&preset("top_p = 7"), &key("top_p"), "from 0 to 1", "a request may set");
    tells(&preset("seed = 1.5"), &key("seed"), "an integer", "");
    tells(&preset("reasoning_effort = \"most\""), &key("reasoning_effort"), "another string", "");
    assert_eq!(mistakes(&preset("temperature = \"hot\", top_p = 7")).len(), 2);
    let good = "temperature = 0.6, top_p = 0.95, top_k = 20, min_p = 0, seed = 7, repetition_penalty = 1.1, \
                reasoning_effort = \"high\", verbosity = \"low\", chat_template_kwargs = { enable_thinking = true }";
    assert_eq!(mistakes(&preset(good)), []);
}

#[test]
fn limits_admit_a_request() {
    for (key, least) in
        [("head", "1KiB"), ("target", "64B"), ("json_body", "512B"), ("response_buffer", "1KiB")]
    {
        let limit = |size: &str| with(&format!("[limits]\n{key} = {size:?}"), "", "", "");
        tells(&limit("0B"), &format!("limits.{key}"), &format!("at least {least}"), least);
        tells(&limit("1B"), &format!("limits.{key}"), &format!("at least {least}"), least);
        assert_eq!(mistakes(&limit(least)), []);
    }
}

#[test]
fn an_initial_value_above_its_maximum_is_rejected() {
    let breaker = |lines: &str| with(&format!("[routing.breaker]\n{lines}"), "", "", "");
    let key = "routing.breaker.rest";
    tells(&breaker("rest = \"2m\"\nrest_max = \"1m\""), key, "longer than `rest_max`, 1m", "lengthen");
    assert_eq!(mistakes(&breaker("rest = \"1m\"\nrest_max = \"1m\"")), []);
    let batches = with("[batches]\nretry_first = \"2s\"\nretry_most = \"1s\"", "", "", "");
    tells(&batches, "batches.retry_first", "longer than `retry_most`, 1s", "Shorten");
}

#[test]
fn an_offer_has_no_longer_window_than_its_model() {
    let offer = |length: u32| with("", "", "", &format!("context_length = {length}"));
    tells(&offer(8193), "providers.p1.offers[0].context_length", "own window, 8192", "model's block");
    assert_eq!(mistakes(&offer(8192)), []);
}

#[test]
fn a_batch_line_is_as_long_as_one_that_can_be_read() {
    let line = |size: &str| with(&format!("[batches]\nline = {size:?}"), "", "", "");
    tells(&line("1023B"), "batches.line", "at least 1KiB", "1KiB");
    tells(&line("268435457B"), "batches.line", "at most 256MiB", "256MiB");
    for size in ["1KiB", "256MiB"] {
        assert_eq!(mistakes(&line(size)), [], "{size}");
    }
}

#[test]
fn there_are_no_more_listeners_than_an_upgrade_hands_over() {
    let addresses =
        |ip: &str, count: u8| (1..=count).map(|n| format!("\"{ip}.{n}:1\"")).collect::<Vec<_>>().join(",");
    let listen = |http: u8, dashboard: u8| {
        let lines = [addresses("127.0.0", http), addresses("127.0.1", dashboard)];
        with(&format!("[listen]\nhttp = [{}]\n[console]\nlisten = [{}]", lines[0], lines[1]), "", "", "")
    };
    // One more is the admin listener.
    assert_eq!(mistakes(&listen(60, 3)), []);
    tells(&listen(61, 3), "listen.http", "has 65 listeners, and at most 64", "fewer addresses");
    tells(&listen(1, 250), "console.listen", "has 252 listeners, and at most 64", "fewer addresses");
}
