//! Messages that name the right element, the right reason and what to write.

use super::super::{ConfigSource, ResolveEnv};
use super::{load, mistakes, tells, with};
use std::fs;

#[test]
fn an_invalid_element_does_not_shift_the_index_of_the_next_ones() {
    let text = with("", "aliases = [\"good\", \"not good\", \"other\", \"m1\"]", "", "");
    let found = mistakes(&text);
    let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["models.m1.aliases[1]", "models.m1.aliases[3]"]);
    let offers = "model = \"m1\"\nname = 5\n[[providers.offers]]\nmodle = \"m1\"\n[[providers.offers]]\nmodel = \"m2\"";
    let found = mistakes(&with("", "", "", "").replace("model = \"m1\"", offers));
    assert!(found.iter().any(|found| found.key == "providers.p1.offers[2].model"), "{found:?}");
}

#[test]
fn an_element_of_an_included_file_is_counted_after_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let offers = "[[models]]\nkind = \"chat\"\ncontext_length = 10\n";
    for name in ["a.toml", "b.toml"] {
        fs::write(folder.path().join(name), offers).unwrap();
    }
    let path = folder.path().join("gw.toml");
    fs::write(&path, "include = [\"a.toml\", \"b.toml\"]\n").unwrap();
    let report = ConfigSource::File(path).load_with_env(ResolveEnv { env: &|_| None }).unwrap_err();
    let missing = report.mistakes.iter().filter(|found| found.reason.starts_with("It is missing"));
    let keys: Vec<&str> = missing.map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["models[0].id", "models[1].id"], "{:?}", report.mistakes);
}

#[test]
fn a_value_beyond_the_range_is_not_called_malformed() {
    tells(&with("[ledger]\nahead = \"400d\"", "", "", ""), "ledger.ahead", "at most 366d", "ahead = ");
    tells(&with("[ledger]\nahead = \"400w\"", "", "", ""), "ledger.ahead", "not a duration", "ahead = ");
    let size = |text: &str| with(&format!("[limits]\njson_body = \"{text}\""), "", "", "");
    tells(&size("99999999999999GiB"), "limits.json_body", "too large", "json_body = ");
    tells(&size("99999999999999999999"), "limits.json_body", "too large", "json_body = ");
    for malformed in ["GiB", "", "1.5GiB", "-1B"] {
        tells(&size(malformed), "limits.json_body", "not a size", "json_body = ");
    }
}

#[test]
fn a_scheme_in_capitals_is_named() {
    for url in ["HTTPS://api.example.eu/v1", "Http://127.0.0.1/v1"] {
        let text = with("", "", "", "").replace("https://api.example.eu/v1", url);
        tells(&text, "providers.p1.base_url", "in lower case", "`https://`");
    }
}

#[test]
fn a_repeated_key_is_named() {
    let found = mistakes("[log]\nlevel = \"info\"\nlevel = \"warn\"\n");
    assert!(matches!(&found[..], [one] if one.key == "level" && one.line == Some(3)), "{found:?}");
    assert!(found[0].reason.contains("duplicate key") && found[0].remedy.contains("keep one"), "{found:?}");
}

#[test]
fn each_of_these_mistakes_tells_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let secret = format!("api_key = {{ file = {none:?} }}");
    tells(&with("", "", &secret, ""), "providers.p1.api_key.file", "does not exist", "Write the path");
    tells(
        &with("", "", &format!("ca = {none:?}"), ""),
        "providers.p1.ca",
        "does not exist",
        "Write the path",
    );
    let tokenizer = format!("tokenizer = {{ file = {none:?} }}");
    tells(&with("", &tokenizer, "", ""), "models.m1.tokenizer.file", "does not exist", "Write the path");
    let alias = with("", "aliases = [\"fast:eco\"]", "", "");
    tells(&alias, "models.m1.aliases[0]", "read as a flavor", "Take `:eco` off");
    let energy = with("", "energy = { active_params_b = 8.0, total_params_b = 4.0 }", "", "");
    tells(&energy, "models.m1.energy.total_params_b", "active_params_b", "Write the figure");
    let path = folder.path().join("gw.toml");
    fs::write(&path, "include = [\"none.toml\"]\n").unwrap();
    let report = ConfigSource::File(path).load_with_env(ResolveEnv { env: &|_| None }).unwrap_err();
    assert!(
        report.mistakes.iter().any(|found| found.key == "include" && !found.remedy.is_empty()),
        "{report:?}"
    );
}

#[test]
fn a_secret_file_of_an_editor_or_of_a_shell_is_read_or_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let text = with("", "", &format!("api_key = {{ file = {path:?} }}"), "");
    let read = |contents: &str| {
        fs::write(&path, contents).unwrap();
        load(&text).map(|loaded| {
            let key = loaded.settings.providers[0].api_key.as_ref().unwrap().reveal().to_owned();
            (key, loaded.warnings)
        })
    };
    assert_eq!(read("\u{feff}sk-1\r\n").unwrap(), ("sk-1".to_owned(), Vec::new()));
    for quoted in ["\"sk-1\"\n", "'sk-1'"] {
        let (key, warnings) = read(quoted).unwrap();
        assert_eq!(key, quoted.trim());
        assert!(matches!(&warnings[..], [one] if one.key == "providers.p1.api_key"), "{warnings:?}");
        assert!(warnings[0].reason.contains("quotation marks") && !format!("{warnings:?}").contains("sk-1"));
    }
    for whole in ["\"", "\"sk-1", "sk-1'", "s\"k\"1"] {
        assert!(read(whole).unwrap().1.is_empty(), "{whole}");
    }
    for refused in ["sk-é", "sk\u{feff}-1", "sk-\u{2013}1"] {
        let report = read(refused).unwrap_err();
        assert!(matches!(&report.mistakes[..], [one] if one.reason.contains("not ASCII")), "{report:?}");
        assert!(!format!("{report:?}").contains(refused));
    }
}

#[test]
fn the_text_for_the_log_has_no_address_of_a_provider() {
    let text = with("[log]\nlevel = \"verbose\"", "", "", "");
    for (from, to) in [
        ("https://api.example.eu/v1", "https://hidden.example.eu:99999/v1"),
        ("pue = 1.2", "pue = 1.2\nimage_hosts = [\"https://hidden.example.eu/path\"]"),
        ("pue = 1.2", "pue = 1.2\nhealth = { path = \"https://hidden.example.eu/models\" }"),
    ] {
        let report = load(&text.replace(from, to)).unwrap_err();
        let (shown, logged) = (report.format_mistakes("x"), report.format_mistakes_for_log("x"));
        assert!(shown.contains("hidden.example.eu"), "{shown}");
        assert!(!logged.contains("hidden") && logged.contains(" = ***\n"), "{logged}");
        assert!(
            logged.contains("log.level = \"verbose\"")
                && logged.ends_with("2 mistakes in the configuration: x.")
        );
    }
}
