//! The gateway binary as operators use it: messages, start and exit status.

use crate::harness::certificates::TestCertificate;
use crate::harness::process::{Home, address, catalogue, complaint, ended, penstock};
use crate::harness::script::{ScriptStep, done, finish, role, sse, text};
use crate::harness::{Client, Provider, until, within};
use serde_json::{Value, json};
use std::process::Output;
use std::sync::Arc;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
}

/// Asserts exit status 1 and returns the output.
fn refused(output: &Output) -> String {
    ended_with(1, output)
}

/// Asserts the exit status of a configuration with mistakes, `EX_CONFIG`; returns the output.
fn mistaken(output: &Output) -> String {
    ended_with(78, output)
}

fn ended_with(code: i32, output: &Output) -> String {
    let stderr = complaint(output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("RUST_BACKTRACE"), "{stderr}");
    stderr
}

/// Returns a provider's block in which these lines replace the valid one.
fn block(country: &str, lines: &str) -> String {
    format!(
        "[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 1000\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"{country}\"\ncity = \"C\"\n\
         base_url = \"http://127.0.0.1:9/v1\"\n{lines}\n"
    )
}

const OFFER: &str = "[[providers.offers]]\nmodel = \"m\"";

#[test]
fn check_tells_all_mistakes_at_once() {
    let home = Home::new();
    let lines =
        "api_key = { env = \"PENSTOCK_IT_UNSET\" }\ncolour = \"red\"\n[[providers.offers]]\nmodel = \"mm\"";
    home.write(&block("US", lines));
    let stderr = mistaken(&home.command(&["check"]));
    for word in ["penstock.toml:", "country", "colour", "PENSTOCK_IT_UNSET", "\"mm\"", "4 mistakes"] {
        assert!(stderr.contains(word), "{word} is missing in\n{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_token_that_can_be_guessed_ends_the_start() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let token = home.storage().join("admin.token");
    std::fs::create_dir_all(home.storage()).unwrap();
    for written in ["", " \n\n", "changeme"] {
        std::fs::write(&token, written).unwrap();
        for command in ["run", "check"] {
            let stderr = mistaken(&home.command(&[command]));
            assert!(stderr.contains(token.to_str().unwrap()), "{stderr}");
            assert!(stderr.contains("at least 32") && stderr.contains("Delete the file"), "{stderr}");
        }
    }
    std::fs::remove_file(&token).unwrap();
    assert!(home.command(&["check"]).status.success());
}

#[test]
fn each_mistake_alone_is_one_clear_sentence_and_nothing_starts() {
    let cases = [
        (block("US", OFFER), "country", "European Union"),
        (block("FR", &format!("pu = 1.2\n{OFFER}")), "pu", "pue"),
        (block("FR", "[[providers.offers]]\nmodel = \"n\""), "offers[0].model", "no model"),
        (block("FR", &format!("api_key = {{ env = \"PENSTOCK_IT_UNSET\" }}\n{OFFER}")), "api_key", "not set"),
        (block("FR", &format!("api_key = {{ file = \"none\" }}\n{OFFER}")), "api_key", "none"),
    ];
    for (config, key, why) in cases {
        let home = Home::new();
        home.write(&config);
        for command in ["check", "run"] {
            let stderr = mistaken(&home.command(&[command]));
            let (stderr_lowercase, why_low) = (stderr.to_lowercase(), why.to_lowercase());
            assert!(
                stderr.contains(key) && stderr_lowercase.contains(&why_low),
                "{key} and {why} in\n{stderr}"
            );
            assert!(stderr.contains("One mistake in the configuration"), "{stderr}");
        }
        assert!(!home.storage().exists(), "nothing was started");
    }
}

#[test]
fn every_certificate_with_another_ones_key_is_a_mistake_of_the_configuration() {
    let (one, other) = (TestCertificate::make(), TestCertificate::make());
    let home = Home::new();
    let client = format!("client_certificate = {:?}\nclient_key = {:?}\n{OFFER}", one.chain, other.key);
    home.write(&block("FR", &client));
    let https = format!(
        "[listen]\nhttps = {{ address = \"{}\", certificate = {:?}, key = {:?} }}",
        address(),
        other.chain,
        one.key
    );
    let text = std::fs::read_to_string(home.config()).unwrap().replacen("[listen]", &https, 1);
    std::fs::write(home.config(), text).unwrap();
    for command in ["check", "run"] {
        let stderr = mistaken(&home.command(&[command]));
        for word in ["listen.https.key = ", "providers.a.client_key = ", "does not belong", "2 mistakes"] {
            assert!(stderr.contains(word), "{word} is missing in\n{stderr}");
        }
    }
    assert!(!home.storage().exists(), "nothing was started");
}

#[test]
fn the_systemd_unit_does_not_restart_an_invalid_configuration() {
    let unit = include_str!("../../conf/systemd/penstock.service");
    assert!(unit.contains("\nRestartPreventExitStatus=78\n"), "{unit}");
    assert!(!unit.contains("\nExecStartPre="), "its exit status is none of the main process");
}

#[test]
fn check_lists_the_contents_of_a_valid_configuration() {
    let home = Home::new();
    home.write(&block("FR", OFFER));
    let good = home.command(&["check"]);
    assert!(good.status.success(), "{}", complaint(&good));
    let stdout = String::from_utf8(good.stdout).unwrap();
    assert!(stdout.contains("is valid") && stdout.contains("C, France"), "{stdout}");
    assert!(!home.storage().exists());
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_named() {
    assert!(mistaken(&ended(&["run", "--config", "/none/such.toml"])).contains("/none/such.toml"));
    let home = Home::new();
    home.write("[[models]\n");
    let stderr = mistaken(&home.command(&["check"]));
    assert!(stderr.contains("penstock.toml:7"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_and_a_held_store_are_one_sentence_each() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let stderr = refused(&home.command(&["run"]));
    assert_eq!(stderr.trim(), format!("listen.http: {} is already in use by another process.", home.http));
    let other = home.path().join("other.toml");
    let written = std::fs::read_to_string(home.config()).unwrap();
    let moved = written
        .replace(&home.http.to_string(), &address().to_string())
        .replace(&home.admin.to_string(), &address().to_string());
    std::fs::write(&other, moved).unwrap();
    let stderr = refused(&ended(&["run", "--config", other.to_str().unwrap()]));
    assert!(stderr.contains("is open in another process") && stderr.trim().lines().count() == 1, "{stderr}");
    assert_eq!(home.admin().get("/readyz").await.status, 200, "the first is not disturbed");
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_made_while_it_runs_works_at_once_and_not_after_its_revocation() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let _running = home.run().await;
    let (client, id) = home.key();
    let answer = client.post(CHAT, &ask()).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("a")));
    let listed = home.command(&["keys", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&id) && !listed.contains(&client.key), "{listed}");
    assert!(home.command(&["keys", "revoke", &id]).status.success());
    assert_eq!(client.post(CHAT, &ask()).await.status, 401);
    let models = String::from_utf8(home.command(&["models"]).stdout).unwrap();
    assert!(models.contains('m'), "{models}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hangup_swaps_a_good_configuration_in_and_keeps_the_old_one_otherwise() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let home = Home::new();
    home.write(&catalogue(&first, ""));
    let running = home.run().await;
    let (client, _) = home.key();
    home.write(&catalogue(&second, "").replace("\"FR\"", "\"US\""));
    running.signal("HUP");
    running.wait_for_line("reload_refused").await;
    assert_eq!(client.post(CHAT, &ask()).await.status, 200);
    assert_eq!((first.calls(), second.calls()), (1, 0));
    let reloaded = home.command(&["reload"]);
    assert!(refused(&reloaded).contains("country"), "{}", complaint(&reloaded));
    home.write(&catalogue(&second, ""));
    running.signal("HUP");
    running.wait_for_line("\"reloaded\"").await;
    assert_eq!(client.post(CHAT, &ask()).await.status, 200);
    assert_eq!((first.calls(), second.calls()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_need_a_restart_are_reported_at_each_reload() {
    let provider = Provider::start().await;
    let home = Home::new();
    let threads = |count: u8| format!("[process]\nthreads = {count}\n{}", catalogue(&provider, ""));
    home.write(&threads(1));
    let running = home.run().await;
    home.write(&threads(2));
    let text = std::fs::read_to_string(home.config()).unwrap();
    let moved = text.replace(&format!("http = \"{}\"", home.http), &format!("http = \"{}\"", address()));
    std::fs::write(home.config(), &moved).unwrap();
    for _ in 0..2 {
        let reloaded = home.command(&["reload"]);
        let warned = complaint(&reloaded);
        assert!(reloaded.status.success(), "{warned}");
        assert!(warned.contains("listen.http, process.threads take effect at the next start"), "{warned}");
    }
    std::fs::write(home.config(), text).unwrap();
    home.write(&threads(1));
    let reloaded = home.command(&["reload"]);
    assert!(reloaded.status.success() && complaint(&reloaded).is_empty(), "{}", complaint(&reloaded));
    until("all lines", || running.output().matches("\"reloaded\"").count() == 3).await;
    assert_eq!(running.output().matches("reload_needs_restart").count(), 2, "{}", running.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_does_or_names_all_that_is_new() {
    let provider = Provider::start().await;
    let home = Home::new();
    let secret = home.path().join("secret");
    std::fs::write(&secret, "one").unwrap();
    let watched = format!("api_key = {{ file = \"{}\" }}", secret.display());
    let catalogue = catalogue(&provider, &watched);
    home.write(&format!("[process]\nwatch = \"0s\"\n[log]\nlevel = \"error\"\n{catalogue}"));
    let running = home.run().await;
    let (client, _) = home.key();
    assert_eq!(client.post(CHAT, &ask()).await.status, 200);
    let pepper = home.path().join("pepper");
    std::fs::write(&pepper, "01234567".repeat(8)).unwrap();
    home.write(&format!(
        "pepper = {{ file = \"{}\" }}\n[storage.export]\npath = \"elsewhere\"\n[spool]\nmemory = \"1MiB\"\ndisk = \"2GiB\"\n[ledger]\nahead = \"2d\"\n\
         [process]\nwatch = \"50ms\"\ncore_dumps = true\n[log]\nlevel = \"info\"\nformat = \"text\"\n{catalogue}",
        pepper.display()
    ));
    let reloaded = home.command(&["reload"]);
    let named = "storage.pepper, storage.export.path, spool.memory, spool.disk, ledger.ahead, process.core_dumps take effect";
    assert!(complaint(&reloaded).contains(named), "{}", complaint(&reloaded));
    // After the reload, requests are logged, and in text format.
    assert_eq!(client.post(CHAT, &ask()).await.status, 200);
    running.wait_for_line("event=request").await;
    assert!(!running.output().contains("\"event\":\"request\""), "{}", running.output());
    let reloads = || running.output().matches("event=reloaded").count();
    let before = reloads();
    let mut change = 0;
    let mut changed = || {
        change += 1;
        std::fs::write(&secret, change.to_string()).unwrap();
        reloads() > before
    };
    until("a changed file to be seen", &mut changed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_warnings_are_logged_and_returned_to_the_caller() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let odd = "[[models]]\nid = \"lonely\"\nkind = \"chat\"\ncontext_length = 1000\n";
    home.write(&format!("{odd}{}", catalogue(&provider, "")));
    let reloaded = home.command(&["reload"]);
    let warned = complaint(&reloaded);
    assert!(reloaded.status.success() && warned.starts_with("warning: "), "{warned}");
    assert!(
        warned.contains("penstock.toml:7: models.lonely") && warned.contains("No provider offers"),
        "{warned}"
    );
    running.wait_for_line("config_warning").await;
    let log = running.output();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}\n{log}")))
        .collect();
    let event = lines.iter().find(|line| line["event"] == "config_warning" && line["key"] == "models.lonely");
    let event = event.unwrap_or_else(|| panic!("no event names the model: {log}"));
    assert_eq!((&event["level"], &event["line"]), (&json!("warn"), &json!("7")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminate_lets_an_open_stream_end_and_exits_with_zero() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    let mut script = vec![sse(), role(), text("One "), ScriptStep::Wait(go.clone()), text("two")];
    script.extend([finish("stop"), done(), ScriptStep::End]);
    provider.always(script);
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let mut running = home.run().await;
    let (client, _) = home.key();
    let mut streamed = ask();
    streamed["stream"] = json!(true);
    let mut open = client.stream_until(CHAT, &streamed, "One ").await;
    running.signal("TERM");
    within("the listener to close", async {
        while tokio::net::TcpStream::connect(home.http).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(running.ended().is_none(), "it waits for the stream");
    go.notify_one();
    let answer = within("the end", open.finish()).await;
    assert_eq!(answer.streamed_text(), "One two");
    penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    assert_eq!(running.until_ended().await.code(), Some(0), "{}", running.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_keys_still_work_and_revoked_ones_do_not() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let (active, _) = home.key();
    let (gone, id) = home.key();
    assert!(home.command(&["keys", "revoke", &id]).status.success());
    let (late, _) = home.key();
    running.kill().await;
    let (offline, _) = home.key();
    let again = home.run().await;
    for client in [&active, &late, &offline] {
        assert_eq!(client.post(CHAT, &ask()).await.status, 200, "{}", again.output());
    }
    assert_eq!(gone.post(CHAT, &ask()).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_is_a_server_of_its_own() {
    let address = address();
    let listen = address.to_string();
    let mut child = penstock(&["simulate", "--listen", &listen, "--first-token", "0"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the simulated provider", || std::net::TcpStream::connect(address).is_ok()).await;
    let answer = Client { address, key: String::new() }.post(CHAT, &ask()).await;
    assert!(answer.text().contains("simulated"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_warns_of_unknown_names_in_keys() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let made = home.command(&["keys", "create", "--model", "m", "--model", "gone"]);
    assert!(made.status.success(), "{}", complaint(&made));
    let id = String::from_utf8(made.stdout).unwrap()["sk-svc-".len()..][..16].to_owned();
    let checked = home.command(&["check"]);
    let stderr = complaint(&checked);
    assert!(checked.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("warning: Key {id}: models: gone matches no model")), "{stderr}");
    // A running gateway has the store open: the output names the command that can check the keys.
    let running = home.run().await;
    let checked = home.command(&["check"]);
    assert!(checked.status.success() && complaint(&checked).contains("penstock accounts check"));
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_has_a_line_when_requested() {
    let provider = Provider::start().await;
    for (level, is_logged) in [("debug", true), ("info", false)] {
        let home = Home::new();
        home.write(&format!("[log]\nlevel = \"{level}\"\n{}", catalogue(&provider, "")));
        let running = home.run().await;
        let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
        assert_eq!(home.key().0.post("/v1/chat/completions", &ask).await.status, 200);
        running.wait_for_line("\"event\":\"request\"").await;
        let log = running.output();
        let line = log.lines().find(|line| line.contains("\"event\":\"attempt\""));
        assert_eq!(line.is_some(), is_logged, "{log}");
        for member in
            line.iter().flat_map(|_| ["\"provider\":\"a\"", "\"model\":\"m\"", "\"outcome\":\"ok\""])
        {
            assert!(line.unwrap_or_default().contains(member), "{line:?}");
        }
    }
}
