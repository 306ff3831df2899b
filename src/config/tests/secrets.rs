//! Tests of secrets and files: given by reference, read once, never shown.

use super::super::settings::ClientCertificatePolicy;
use super::super::{ConfigSource, ResolveEnv};
use super::{load, mistake, mistakes, tells, with};
use std::fs;

const CERTIFICATE: &str = include_str!("../../../simulator/src/testdata/localhost.pem");
const KEY: &str = include_str!("../../../simulator/src/testdata/localhost.key.pem");

#[test]
fn a_secret_in_the_configuration_itself_is_refused_and_not_repeated() {
    let found = mistake(&with("", "", "api_key = \"sk-live-12345\"", ""));
    assert_eq!(found.key, "providers.p1.api_key");
    assert!(found.reason.contains("must not be in the configuration"), "{found}");
    assert!(found.remedy.contains("{ env = \"API_KEY\" }"), "{found}");
    assert!(!format!("{found} {found:?}").contains("12345"));
}

#[test]
fn an_inline_url_or_access_key_is_one_mistake() {
    let text = with("[storage]\nengine = \"postgres\"\nurl = \"postgres://u:12345@db/x\"\n", "", "", "");
    let found = mistake(&text);
    assert_eq!(found.key, "storage.url");
    assert!(!format!("{found} {found:?}").contains("12345"));
    let store = "[files.store]\nendpoint = \"https://s3.example.eu\"\nbucket = \"files\"\n\
                 access_key_id = \"AKIA12345\"\nsecret_access_key = { env = \"KEY\" }\n";
    assert_eq!(mistake(&with(store, "", "", "")).key, "files.store.access_key_id");
}

#[test]
fn a_secret_in_a_url_is_not_repeated_in_any_form() {
    for url in [
        "sk-live-12345@api.example.eu/v1",
        "u:12345@api.example.eu",
        "api.example.eu/v1?key=12345",
        "api.example.eu?key=12345",
        "ftp://api.example.eu/v1?key=12345",
    ] {
        let text = with("", "", "", "").replace("https://api.example.eu/v1", url);
        let found = mistakes(&text);
        assert!(found.iter().any(|mistake| mistake.key == "providers.p1.base_url"), "{url}: {found:?}");
        assert!(!format!("{found:?}").contains("12345"), "{url}: {found:?}");
    }
}

#[test]
fn secrets_come_from_the_environment_and_print_as_stars() {
    let loaded = load(&with("", "", "api_key = { env = \"KEY\" }", "")).unwrap();
    let key = loaded.settings.providers[0].api_key.as_ref().unwrap();
    assert_eq!(key.reveal(), "sk-provider-1");
    assert!(!format!("{loaded:?}").contains("sk-provider-1"));
    assert!(format!("{loaded:?}").contains("***"));
}

#[test]
fn missing_secrets_are_reported() {
    tells(
        &with("", "", "api_key = { env = \"NONE\" }", ""),
        "providers.p1.api_key.env",
        "NONE is not set",
        "Set it",
    );
    tells(
        &with("", "", "api_key = { file = \"/nonexistent/key\" }", ""),
        "providers.p1.api_key.file",
        "it does not exist",
        "",
    );
    tells(
        &with("", "", "api_key = {}", ""),
        "providers.p1.api_key",
        "exactly one source",
        "{ env = \"NAME\" }",
    );
    tells(
        &with("", "", "api_key = { env = \"KEY\", file = \"x\" }", ""),
        "providers.p1.api_key",
        "exactly one source",
        "",
    );
}

#[test]
fn headers_hold_no_open_secret_and_none_of_ours() {
    let headers = |line: &str| with("", "", &format!("headers = {{ {line} }}"), "");
    tells(&headers("x-api-key = \"abc\""), "providers.p1.headers.x-api-key", "carries a secret", "env");
    for ours in ["host", "proxy-connection"] {
        let at = format!("providers.p1.headers.{ours}");
        tells(&headers(&format!("{ours} = \"abc\"")), &at, "sets this header itself", "Take it out");
    }
    tells(&headers("\"a b\" = \"abc\""), "providers.p1.headers.a b", "not the name of a header", "");
    tells(&headers("x-team = \"a\\nb\""), "providers.p1.headers.x-team", "not allowed in a header", "");
    let loaded = load(&headers("X-Team = \"core\", x-token = { env = \"KEY\" }")).unwrap();
    let sent: Vec<(&str, &str)> =
        loaded.settings.providers[0].headers.iter().map(|(name, value)| (&**name, value.reveal())).collect();
    assert_eq!(sent, [("x-team", "core"), ("x-token", "sk-provider-1")]);
}

#[test]
fn file_paths_are_relative_to_the_naming_file_and_contents_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("penstock.toml");
    let load = |text: &str| {
        fs::write(&path, text).unwrap();
        ConfigSource::File(path.clone()).load_with_env(ResolveEnv { env: &|_| None })
    };
    fs::write(folder.path().join("key"), "sk-from-file\n").unwrap();
    fs::write(folder.path().join("broken"), "a\nb\n").unwrap();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    fs::write(folder.path().join("cert.pem"), CERTIFICATE).unwrap();
    fs::write(folder.path().join("key.pem"), KEY).unwrap();

    let settings =
        load(&with("", "", "api_key = { file = \"key\" }\nca = \"cert.pem\"", "")).unwrap().settings;
    assert_eq!(settings.providers[0].api_key.as_ref().unwrap().reveal(), "sk-from-file");
    assert_eq!(settings.providers[0].ca.as_deref(), Some(&*folder.path().join("cert.pem")));
    assert_eq!(settings.storage.path, folder.path().join("data"));

    let https = |certificate: &str, key: &str| {
        let line = format!(
            "https = {{ address = \"127.0.0.1:8443\", certificate = {certificate:?}, key = {key:?} }}"
        );
        load(&with(&format!("[listen]\n{line}"), "", "", ""))
    };
    assert!(https("cert.pem", "key.pem").is_ok());
    let swapped = https("key.pem", "cert.pem").unwrap_err().mistakes;
    assert_eq!(swapped.len(), 2);
    assert!(swapped[0].reason.contains("BEGIN … CERTIFICATE"), "{}", swapped[0]);

    for (file, why) in [("broken", "a line break"), ("empty", "is empty"), ("none", "it does not exist")] {
        let report = load(&with("", "", &format!("api_key = {{ file = {file:?} }}"), "")).unwrap_err();
        assert!(report.mistakes[0].reason.contains(why), "{}", report.mistakes[0]);
    }
    let report = load(&with("[storage]\npepper = { file = \"key\" }", "", "", "")).unwrap_err();
    assert!(report.mistakes[0].reason.contains("64 hexadecimal digits"));
}

#[test]
fn clients_certificates_are_asked_for_only_where_somebody_issues_them() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, CERTIFICATE).unwrap();
    fs::write(&key, KEY).unwrap();
    let https = |more: &str| {
        let files = format!("certificate = {certificate:?}, key = {key:?}{more}");
        with(&format!("[listen]\nhttps = {{ address = \"127.0.0.1:1\", {files} }}"), "", "", "")
    };
    for policy in ["required", "optional"] {
        let text = https(&format!(", client_certificate = {policy:?}"));
        tells(&text, "listen.https.client_certificate", "none would be requested", "client_ca");
    }
    let asked = |more: &str| {
        let listen = load(&https(&format!(", client_ca = {certificate:?}{more}"))).unwrap().settings.listen;
        listen.https.unwrap().tls.client_certificate
    };
    assert_eq!(asked(""), ClientCertificatePolicy::Required);
    assert_eq!(asked(", client_certificate = \"optional\""), ClientCertificatePolicy::Optional);
    assert!(load(&https("")).is_ok());
}

/// Runs `load` on another thread, so that a read that never ends fails the test and does not block it.
fn load_in_time<T: Send + 'static>(load: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(load()));
    receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("the file is read without an end")
}

#[test]
fn pipes_and_devices_are_refused_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in [&*pipe, std::path::Path::new("/dev/zero")] {
        let https = format!("address = \"127.0.0.1:8443\", certificate = {file:?}, key = {file:?}");
        for text in [
            with("", "", &format!("api_key = {{ file = {file:?} }}"), ""),
            with("", "", &format!("ca = {file:?}"), ""),
            with("", "", &format!("headers = {{ x-token = {{ file = {file:?} }} }}"), ""),
            with("", &format!("tokenizer = {{ file = {file:?} }}"), "", ""),
            with(&format!("[grid]\nforecast = {file:?}"), "", "", ""),
            with(&format!("[storage]\npepper = {{ file = {file:?} }}"), "", "", ""),
            with(&format!("[listen]\nhttps = {{ {https} }}"), "", "", ""),
        ] {
            let found = load_in_time(move || mistakes(&text));
            let all_refused = found.iter().all(|mistake| mistake.reason.contains("must be a regular file"));
            assert!(!found.is_empty() && all_refused, "{found:#?}");
        }
        let path = folder.path().join("penstock.toml");
        fs::write(&path, with(&format!("include = [{file:?}]"), "", "", "")).unwrap();
        let source = ConfigSource::File(path);
        let report = load_in_time(move || source.load_with_env(ResolveEnv { env: &|_| None })).unwrap_err();
        assert!(report.mistakes[0].reason.contains("must be a regular file"), "{}", report.mistakes[0]);
    }
    let source = ConfigSource::File("/dev/zero".into());
    let report = load_in_time(move || source.load_with_env(ResolveEnv { env: &|_| None })).unwrap_err();
    assert!(report.mistakes[0].reason.contains("too large"), "{}", report.mistakes[0]);
}

#[test]
fn images_are_counted_by_the_rule_as_the_sample_writes_it() {
    let images = |rule: &str| {
        with("", &format!("[models.tokenizer]\nbuiltin = \"gpt-oss\"\nimages = {{ {rule} }}"), "", "")
    };
    let sample = include_str!("../../../conf/penstock.toml");
    let line = sample.lines().find_map(|line| line.strip_prefix("#images = { rule")).unwrap();
    for rule in [
        &format!("rule{}", line.trim_end_matches('}')),
        "rule = \"fixed\", tokens = 256",
        "rule = \"rows\", px = 16, longest = 1024",
        "rule = \"tiles\", px = 448, tokens = 256, max = 12",
        "rule = \"fixed\", tokens = 256, placeholder = \"<image>\", unknown = 300",
    ] {
        assert_eq!(mistakes(&images(rule)), [], "{rule}");
    }
    let key = "models.m1.tokenizer.images";
    tells(&images("rule = \"fixed\", tokns = 256"), key, "unknown field `tokns`", "patches");
    tells(&images("rule = \"fixed\", tokens = 1, unknown = \"x\""), key, "not a rule", "patches");
    tells(&images("px = 28"), key, "missing field `rule`", "patches");
}

#[test]
fn tokenizers_are_compiled_before_a_request_meets_them() {
    let tokenizer = |line: &str| with("", &format!("tokenizer = {{ {line} }}"), "", "");
    assert!(load(&tokenizer("builtin = \"gpt-oss\"")).unwrap().settings.models[0].tokenizer.is_some());
    tells(
        &tokenizer("builtin = \"gpt-os\""),
        "models.m1.tokenizer.builtin",
        "no built-in tokenizer",
        "gpt-oss",
    );
    tells(&tokenizer("file = \"/nonexistent.json\""), "models.m1.tokenizer.file", "it does not exist", "");
    tells(&tokenizer("chat_template = \"x\""), "models.m1.tokenizer", "exactly one source", "builtin");
    tells(
        &tokenizer("builtin = \"gpt-oss\", images = { rule = \"x\" }"),
        "models.m1.tokenizer.images",
        "not a rule",
        "patches",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::write(&file, "{}").unwrap();
    tells(&tokenizer(&format!("file = {file:?}")), "models.m1.tokenizer", "cannot be used", "estimated");
}

#[test]
fn no_message_repeats_what_may_be_a_secret() {
    let url = |base: &str| with("", "", "", "").replace("https://api.example.eu/v1", base);
    let listen = |lines: &str| with(&format!("[listen]\n{lines}"), "", "", "");
    for text in [
        with("", "", "headers = \"Authorization: Bearer hush1\"", ""),
        with("", "", "headers = [\"Authorization: Bearer hush1\"]", ""),
        with("", "", "headers = { x-signature = 7001, x-other = \"hush1ü\" }", ""),
        with("", "", "api_key = { env = \"sk-hush1\" }", ""),
        with("", "", "api_key = [\"hush1\"]", ""),
        with("", "", "image_hosts = [\"https://user:hush1@images.example.eu\"]", ""),
        url("https://user:hush1@api.example.eu/v1"),
        url("user:hush1@api.example.eu/v1"),
        url("https://api.example.eu/v1?key=hush1"),
        listen("public_url = \"https://user:hush1@api.example.eu\""),
        listen("public_url = \"https://api.example.eu?token=hush1\""),
        listen("cors = [\"https://user:hush1@app.example.eu\", \"https://app.example.eu?hush1\"]"),
        listen("http = \"https://user:hush1@app.example.eu\""),
        listen("hosts = [\"https://user:hush1@app.example.eu\"]"),
    ] {
        let found = mistakes(&text);
        let shown = format!("{found:?} {}", found.iter().map(ToString::to_string).collect::<String>());
        assert!(!found.is_empty(), "{text}");
        assert!(!shown.contains("hush1") && !shown.contains("7001"), "{shown}");
    }
}

#[test]
fn a_header_is_set_once() {
    let headers = |line: &str| with("", "", &format!("headers = {{ {line} }}"), "");
    tells(&headers("X-Team = \"a\", x-team = \"b\""), "providers.p1.headers.x-team", "set already", "one of");
}

#[test]
fn an_unencrypted_image_host_is_no_place_of_the_key() {
    let loaded = load(&with("", "", "image_hosts = [\"http://images.example.eu\"]", "")).unwrap();
    let warnings = loaded.warnings.iter().filter(|warning| warning.key.contains("image_hosts"));
    let shown = warnings.map(ToString::to_string).collect::<String>();
    assert!(shown.contains("Images cross the network") && !shown.contains("the key"), "{shown}");
}
