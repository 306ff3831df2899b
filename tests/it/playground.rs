//! The dashboard's playground over real sockets: quote, answer, charge, limits, refusals; nothing of a prompt is
//! stored.

use crate::billing::entries;
use crate::harness::browser::{Browser, between, holder};
use crate::harness::gateway::Running;
use crate::harness::process::{Home, SECRET, catalogue};
use crate::harness::script::{completion, held, json_answer, status};
use crate::harness::{Answer, Bench, Client, Provider, until};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const PATH: &str = "/dashboard/playground";
const CHAT: &str = "/v1/chat/completions";
const ATTACK: &str = "\"'></textarea><script>alert(1)</script>";

async fn bench(settings: &str) -> (Provider, Running) {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &completion(ATTACK)));
    let settings = format!("[console]\nlisten = \"127.0.0.1:0\"\n{settings}");
    let running = Bench::new().settings(&settings).provider("a", &provider).start().await;
    for account in ["acme", "other"] {
        let made = running.admin().post("/admin/accounts", &json!({"id": account})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    (provider, running)
}

/// Key of an account, and its public id.
async fn key(running: &Running, account: &str, members: Value) -> (Client, String) {
    let mut wanted = json!({"account": account, "scopes": ["*"], "name": "page"});
    wanted.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let client = running.key(&wanted).await;
    let id = client.key["sk-svc-".len()..][..16].to_owned();
    (client, id)
}

/// Sends the form of the page.
async fn send(browser: &mut Browser, fields: &[(&str, &str)]) -> Answer {
    let token = browser.token(PATH).await;
    let mut form = vec![("form_token", token.as_str())];
    for (name, default) in [("model", "m"), ("prompt", "Hi"), ("max_tokens", "100")] {
        let given = fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        form.push((name, given.unwrap_or(default)));
    }
    form.extend(fields.iter().filter(|(name, _)| !["model", "prompt", "max_tokens"].contains(name)));
    let quoted = browser.post(PATH, &form).await;
    if quoted.status != 200 || fields.contains(&("action", "quote")) {
        return quoted;
    }
    // The form is sent again with the digest of the quote; only then the gateway sends the request.
    let digest = quoted_digest(&quoted);
    form.push(("quoted", &digest));
    browser.post(PATH, &form).await
}

/// Digest of the request whose quote is on a page.
fn quoted_digest(page: &Answer) -> String {
    between(&page.text(), "name=\"quoted\" value=\"", "\"")
}

/// Value that a tile of the page shows.
fn tile(page: &Answer, label: &str) -> String {
    // The exact value is in the title.
    let value = between(&page.text(), &format!("<dt>{label}</dt><dd><span class=\"value\""), "</span>");
    value.rsplit_once('>').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_the_page_is_charged_once_like_any_other_of_its_key() {
    let (provider, running) = bench("").await;
    let (client, id) = key(&running, "acme", json!({})).await;
    let mut browser = holder(&running, "ada", "acme").await;
    let prompt = format!("Tell me {ATTACK}");
    let quoted = send(&mut browser, &[("key", &id), ("prompt", &prompt), ("action", "quote")]).await;
    assert_eq!((quoted.status, provider.calls()), (200, 0), "{}", quoted.text());
    for label in ["Expected cost", "Cost at most", "Energy", "Carbon, location-based", "Water", "Provider"] {
        assert!(!tile(&quoted, label).is_empty(), "{label}");
    }
    assert!(entries(&running).await.iter().all(|entry| entry["act"] != "settle"), "a quote is no charge");
    let asked = send(&mut browser, &[("key", &id), ("prompt", &prompt)]).await;
    assert_eq!((asked.status, provider.calls()), (200, 1), "{}", asked.text());
    let text = asked.text();
    assert!(!text.contains(ATTACK) && !text.contains("<script>alert"), "{text}");
    // The prompt occurs twice, because the form of the language switch repeats it.
    assert_eq!(text.matches("alert(1)").count(), 3, "the answer and the prompt are shown: {text}");
    assert!(!text.contains("name=\"quoted\""), "another request has a quote of its own");
    assert!(!text.contains(&client.key), "the secret is on no page");
    let sent = provider.last().json();
    assert_eq!((&sent["messages"][0]["content"], &sent["max_tokens"]), (&json!(prompt), &json!(100)));
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let all = entries(&running).await;
    let settled: Vec<&Value> = all.iter().filter(|entry| entry["act"] == "settle").collect();
    assert_eq!(settled.len(), 2, "one of the page and one of the client");
    for name in ["account", "key", "model", "provider", "output", "terms"] {
        assert_eq!(settled[0][name], settled[1][name], "{name}");
    }
    assert_eq!((&settled[0]["key"], &settled[0]["account"]), (&json!(id), &json!("acme")));
    let eur: f64 = settled[0]["eur"].as_str().unwrap().parse().unwrap();
    let shown = tile(&asked, "Cost").split_whitespace().next().unwrap().parse::<f64>().unwrap();
    assert!((shown - eur).abs() <= eur * 0.006, "the page shows {shown}, the ledger has {eur}");
    let reserved = all.iter().filter(|entry| entry["act"] == "reserve").count();
    assert_eq!(reserved, 2, "credits were reserved for both: {all:?}");
    let listed = running.admin().get(&format!("/admin/keys/{id}")).await.json();
    assert!(listed["last_used"].as_u64().is_some(), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_shown_beside_the_form_which_keeps_what_was_typed() {
    let (provider, running) = bench("[billing]\ncredit = \"prepaid\"\n").await;
    let (_, poor) = key(&running, "acme", json!({})).await;
    let mut browser = holder(&running, "ada", "acme").await;
    let refused = send(&mut browser, &[("key", &poor), ("prompt", "typed before")]).await;
    assert_eq!(refused.status, 402, "{}", refused.text());
    assert!(refused.text().contains("balance") && refused.text().contains(">typed before</textarea>"));
    let grant = json!({"account": "acme", "credits": 100});
    assert_eq!(running.admin().post("/admin/credits/grant", &grant).await.status, 201);
    let (_, narrow) = key(&running, "acme", json!({"scopes": ["inference.embeddings"]})).await;
    let (_, tight) = key(&running, "acme", json!({"limits": {"budget_per_day": "0.000001"}})).await;
    let (_, revoked) = key(&running, "acme", json!({})).await;
    let (_, foreign) = key(&running, "other", json!({})).await;
    let (_, slow) = key(&running, "acme", json!({"limits": {"requests_per_minute": 1}})).await;
    let gone = running.admin().post(&format!("/admin/keys/{revoked}/revoke"), &json!({})).await;
    assert_eq!(gone.status, 200);
    let long = "x".repeat(20_000);
    for (fields, status, sentence) in [
        (vec![("key", poor.as_str()), ("model", "nothing")], 404, "There is no model nothing"),
        (vec![("key", &poor), ("flavor", "sour")], 404, "has no flavor"),
        (vec![("key", &poor), ("max_tokens", "many")], 400, "whole number from 1 to 2\u{202f}048"),
        (vec![("key", &poor), ("max_tokens", "2049")], 400, "whole number from 1 to 2\u{202f}048"),
        (vec![("key", &poor), ("prompt", " ")], 400, "bytes of text"),
        (vec![("key", &poor), ("prompt", &long)], 400, "bytes of text"),
        (vec![("key", &narrow)], 403, "scope"),
        (vec![("key", &tight)], 402, "budget"),
        (vec![("key", &revoked)], 401, "revoked"),
        (vec![("key", &foreign)], 404, "key of this account"),
        (vec![("key", "0000000000000000")], 404, "key of this account"),
        (vec![("key", "")], 404, "key of this account"),
    ] {
        for action in ["send", "quote"] {
            let limits = status == 402;
            if action == "quote" && limits {
                continue;
            }
            let mut fields = fields.clone();
            fields.push(("action", action));
            let refused = send(&mut browser, &fields).await;
            assert_eq!(refused.status, status, "{fields:?}: {}", refused.text());
            let text = refused.text();
            assert!(text.contains(sentence) && text.contains("<textarea"), "{fields:?}: {text}");
        }
    }
    assert_eq!(provider.calls(), 0);
    assert_eq!(send(&mut browser, &[("key", &slow)]).await.status, 200);
    assert_eq!(send(&mut browser, &[("key", &slow)]).await.status, 429, "the limits of the key apply");
    provider.always(status(503));
    assert_eq!(send(&mut browser, &[("key", &poor)]).await.status, 503);
    let settled = entries(&running).await.into_iter().filter(|entry| entry["act"] == "settle").count();
    assert_eq!(settled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_another_site_or_session_asks_nothing() {
    let (provider, running) = bench("").await;
    let (_, id) = key(&running, "acme", json!({})).await;
    let ada = holder(&running, "ada", "acme").await;
    let (own, foreign) =
        (ada.token(PATH).await, holder(&running, "eve", "other").await.token("/dashboard/keys").await);
    for (site, token) in
        [("cross-site", &own), ("same-site", &own), ("none", &own), ("same-origin", &foreign)]
    {
        let form = [
            ("form_token", token.as_str()),
            ("key", &id),
            ("model", "m"),
            ("prompt", "Hi"),
            ("max_tokens", "9"),
        ];
        let refused = ada.post_from(site, PATH, &form).await;
        assert_eq!(refused.status, 403, "{site}");
    }
    let mut nobody = Browser::at_dashboard(&running);
    let answer = nobody.post(PATH, &[("form_token", &own), ("key", &id), ("prompt", "Hi")]).await;
    assert_eq!((answer.status, provider.calls()), (303, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_request_of_a_person_who_leaves_is_cancelled_and_not_charged() {
    let (provider, running) = bench("").await;
    let (_, id) = key(&running, "acme", json!({})).await;
    let browser = holder(&running, "ada", "acme").await;
    provider.always(held(&Arc::new(Notify::new()), "late"));
    let token = browser.token(PATH).await;
    let form =
        [("form_token", token.as_str()), ("key", &id), ("model", "m"), ("prompt", "Hi"), ("max_tokens", "9")];
    let digest = quoted_digest(&browser.post_from("same-origin", PATH, &form).await);
    assert_eq!(provider.calls(), 0);
    let other = [&form[..4], &[("max_tokens", "8"), ("quoted", digest.as_str())]].concat();
    let quoted = browser.post_from("same-origin", PATH, &other).await;
    assert!(quoted.text().contains("Expected cost") && provider.calls() == 0, "{}", quoted.text());
    let form = [&form[..], &[("quoted", digest.as_str())]].concat();
    tokio::select! {
        answer = browser.post_from("same-origin", PATH, &form) => panic!("answered with {}", answer.status),
        () = provider.until_calls(1) => {}
    }
    provider.until_left(1).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    assert!(entries(&running).await.iter().all(|entry| entry["act"] != "settle"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_and_answer_are_in_no_log_and_no_file() {
    let provider = Provider::start().await;
    let (prompt, answer) = ("planted-in-the-prompt-7f3a", "planted-in-the-answer-9c41");
    provider.always(json_answer(200, &completion(answer)));
    let home = Home::new();
    let lines = format!("[log]\nlevel = \"debug\"\n{}", catalogue(&provider, ""));
    home.write(&lines);
    let listen = crate::harness::process::address();
    let text = std::fs::read_to_string(home.config()).unwrap();
    std::fs::write(home.config(), format!("{text}\n[console]\nlisten = \"{listen}\"\n")).unwrap();
    let process = home.run().await;
    let (client, _) = home.key();
    let id = client.key["sk-svc-".len()..][..16].to_owned();
    let mut browser = Browser {
        site: Client { address: listen, key: String::new() },
        root: "/dashboard/",
        cookie: String::new(),
    };
    let invited = home.command(&["users", "invite", "ada", "--role", "account", "--account", "default"]);
    let link = String::from_utf8(invited.stdout).unwrap();
    let path = format!("/dashboard/invitation/{}", link.trim().rsplit('/').next().unwrap());
    let password = crate::harness::browser::PASSWORD;
    assert_eq!(browser.post(&path, &[("password", password), ("again", password)]).await.status, 303);
    let shown = send(&mut browser, &[("key", &id), ("prompt", prompt)]).await;
    assert!(shown.status == 200 && shown.text().contains(answer), "{}", shown.text());
    process.wait_for_line(&id).await;
    let mut open = vec![home.path().to_owned()];
    let mut files = vec![("log".to_owned(), process.output().into_bytes())];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => open.push(entry),
                false => files.push((entry.display().to_string(), std::fs::read(&entry).unwrap())),
            }
        }
    }
    assert!(files.len() > 3 && !SECRET.is_empty());
    for (name, bytes) in files {
        for planted in [prompt, answer] {
            let found = bytes.windows(planted.len()).any(|window| window == planted.as_bytes());
            assert!(!found, "{planted} is in {name}");
        }
    }
}
