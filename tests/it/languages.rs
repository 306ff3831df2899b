//! Languages of the console and the dashboard over real sockets: choice by the browser or by the language switch,
//! formats of numbers and days, and names that users chose, which are never translated.

use crate::harness::batch_jobs::{line, uploaded};
use crate::harness::browser::{Browser, between, holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Answer, Bench, Provider};
use penstock::console::dashboard::DASHBOARD;
use penstock::console::operators::OPERATORS;
use serde_json::json;

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let settings = "[console]\nlisten = \"127.0.0.1:0\"\n[invoice]\nseller = \"Example GmbH\"\n";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let made = running.admin().post("/admin/accounts", &json!({"id": "acme", "name": "Keys"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    (provider, running)
}

async fn get(browser: &Browser, path: &str, accepted: &str) -> Answer {
    let headers = [("cookie", browser.cookie.as_str()), ("accept-language", accepted)];
    browser.site.send("GET", path, &headers, b"").await
}

/// Path of a page, with the id of an object that exists.
fn filled(path: &str, id: &str, file: &str) -> String {
    let id = match path {
        path if path.contains("/files/") => file,
        path if path.contains("/api/schemas/") => "ChatRequest",
        path if path.contains("/api/") => "post_v1_chat_completions",
        path if path.contains("/users/") => "bob",
        _ => id,
    };
    path.replace("{id}", id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_in_the_language_of_the_browser() {
    let (_provider, running) = bench().await;
    let client = running.key(&json!({"account": "acme", "scopes": ["*"], "name": "Keys"})).await;
    let id = client.key["sk-svc-".len()..][..16].to_owned();
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
    crate::billing::entries(&running).await;
    let (ada, bob) = (holder(&running, "ada", "acme").await, signed_in(&running, "bob", "admin").await);
    let file = uploaded(&client, &line("one", "Hi")).await;
    let dashboard = DASHBOARD.pages.iter().map(|page| (&ada, filled(page.path, &id, &file)));
    let console = OPERATORS.pages.iter().map(|page| (&bob, filled(page.path, "acme", &file)));
    let pages: Vec<(&Browser, String)> = dashboard.chain(console).collect();
    assert!(pages.len() >= 18);
    for (browser, path) in pages {
        for (accepted, language, sign_out, english) in [
            ("de-AT,de;q=0.9,en;q=0.5", "de", "Abmelden", ["Sign out", "Total<", "Requests<", ">Show<"]),
            ("fr", "fr", "Se déconnecter", ["Sign out", "Usage<", "Requests<", ">Show<"]),
        ] {
            let page = get(browser, &path, accepted).await;
            let text = page.text();
            assert_eq!(page.status, 200, "{path}: {text}");
            assert!(
                text.contains(&format!("<html lang=\"{language}\">")) && text.contains(sign_out),
                "{path}"
            );
            // The API reference is not checked, because it contains the English names of the API.
            for word in english.into_iter().filter(|_| !path.contains("/api")) {
                assert!(!text.contains(word), "{path} in {language} has {word}");
            }
        }
        assert!(get(browser, &path, "nl").await.text().contains("<html lang=\"en\">"), "{path}");
    }
    let page = get(&ada, &format!("/dashboard/keys/{id}"), "de").await.text();
    assert!(page.contains("value=\"Keys\""), "a name is never translated: {page}");
    let keys = get(&ada, "/dashboard/keys", "de").await.text();
    assert!(keys.contains(">Keys</a>") && keys.contains("<h2>Schlüssel</h2>"), "{keys}");
    // 11 tokens at 1 and 7 at 2 EUR a million are 0.000025 EUR.
    let statement = get(&ada, "/dashboard/statement", "de").await.text();
    assert!(statement.contains("0,000025") && !statement.contains("0.000025"), "{statement}");
    assert!(get(&ada, "/dashboard/statement", "en").await.text().contains("0.000025"));
    let invoice = get(&ada, "/dashboard/invoice?from=2026-01-05&to=2026-01-31", "de").await.text();
    assert!(invoice.contains("05.01.2026") && invoice.contains("Rechnungssteller"), "{invoice}");
    for english in ["Carbon, ", "Embodied", "Amounts are exact"] {
        assert!(!invoice.contains(english), "{english} in {invoice}");
    }
    assert!(!statement.contains("Operational energy"), "{statement}");
    // Machine-readable formats such as CSV do not depend on the language.
    let csv = get(&ada, "/dashboard/statement.csv", "de").await.text();
    assert!(csv.starts_with("month,of,account,") && csv.contains(",0.000025,"), "{csv}");
}

/// Texts of a page with at least two lower-case words: sentences and labels. Configurations and typed texts are left out.
fn sentences(page: &str) -> Vec<String> {
    let mut page = page.to_owned();
    for (start, end) in [("<pre", "</pre>"), ("<textarea", "</textarea>"), ("<head>", "</head>")] {
        while let Some((before, rest)) = page.split_once(start) {
            page = format!("{before}{}", rest.split_once(end).unwrap().1);
        }
    }
    let is_word = |word: &&str| word.len() > 2 && word.chars().all(char::is_lowercase);
    let texts = page.split('>').skip(1).filter_map(|rest| rest.split('<').next());
    let texts = texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    texts.filter(|text| text.split(' ').filter(is_word).count() > 1).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sentence_of_a_page_is_english_in_another_language() {
    let (provider, running) = bench().await;
    let client = running.key(&json!({"account": "acme", "scopes": ["*"], "name": "Keys"})).await;
    let id = client.key["sk-svc-".len()..][..16].to_owned();
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
    provider.always(crate::harness::script::status(500));
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 503);
    let grant = json!({"account": "acme", "credits": "10"});
    let entry = running.admin().post("/admin/credits/grant", &grant).await.json()["entry"].clone();
    let correction = json!({"entry": entry, "credits": "4"});
    assert_eq!(running.admin().post("/admin/credits/correct", &correction).await.status, 201);
    let file = uploaded(&client, &line("one", "Hi")).await;
    crate::billing::entries(&running).await;
    let (ada, bob) = (holder(&running, "ada", "acme").await, signed_in(&running, "bob", "admin").await);
    let dashboard = DASHBOARD.pages.iter().map(|page| (&ada, filled(page.path, &id, &file)));
    let console = OPERATORS.pages.iter().map(|page| (&bob, filled(page.path, "acme", &file)));
    // The API reference is not checked, because its descriptions are in English.
    let pages = dashboard.chain(console).filter(|(_, path)| !path.contains("/api"));
    let usages =
        ["model", "provider", "location", "outcome"].map(|by| (&bob, format!("/console/usage?by={by}")));
    let mut checked = 0;
    for (browser, path) in pages.chain(usages) {
        let english = sentences(&get(browser, &path, "en").await.text());
        for language in ["de", "fr"] {
            let page = sentences(&get(browser, &path, language).await.text());
            let same: Vec<&String> = page.iter().filter(|text| english.contains(text)).collect();
            assert!(same.is_empty(), "{path} in {language}: {same:?}");
            checked += page.len();
        }
    }
    assert!(checked > 300, "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_switch_is_stored_in_a_cookie_and_leads_back_to_pages_of_the_site_only() {
    let (_provider, running) = bench().await;
    let mut browser = Browser::at_dashboard(&running);
    let path = "/dashboard/language";
    let back = "/dashboard/usage?by=key";
    for (given, location) in [
        (back, back),
        ("/dashboard/", "/dashboard/"),
        ("https://evil.example/dashboard/", "/dashboard/"),
        ("//evil.example", "/dashboard/"),
        ("/console/", "/dashboard/"),
        ("/dashboard/\r\nset-cookie: a=b", "/dashboard/"),
        ("", "/dashboard/"),
    ] {
        let answer = browser.post_from("same-origin", path, &[("language", "fr"), ("back", given)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(location)), "{given:?}");
        let cookie = answer.header("set-cookie").unwrap();
        assert!(
            cookie.starts_with("penstock_language=fr; Path=/dashboard; HttpOnly; SameSite=Lax"),
            "{cookie}"
        );
    }
    for (referer, location) in [
        ("http://{host}/dashboard/usage?by=key", "/dashboard/usage?by=key"),
        ("http://{host}/dashboard/keys?by=key", "/dashboard/usage"),
        ("https://evil.example/dashboard/usage?by=key", "/dashboard/usage"),
        ("http://{host}.evil.example/dashboard/usage?by=key", "/dashboard/usage"),
    ] {
        let referer = referer.replace("{host}", &browser.site.address.to_string());
        let headers = [
            ("referer", referer.as_str()),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let answer =
            browser.site.send("POST", path, &headers, b"language=de&back=%2Fdashboard%2Fusage").await;
        assert_eq!(answer.header("location"), Some(location), "{referer}");
    }
    let unknown = browser.post_from("same-origin", path, &[("language", "tlh"), ("back", back)]).await;
    assert_eq!((unknown.status, unknown.header("set-cookie")), (303, None));
    assert_eq!(browser.post_from("cross-site", path, &[("language", "fr")]).await.status, 403);
    browser.cookie = "penstock_language=fr".to_owned();
    let page = get(&browser, "/dashboard/sign-in", "de").await.text();
    assert!(page.contains("<html lang=\"fr\">") && page.contains("Mot de passe"), "{page}");
    browser.cookie = "penstock_language=xx".to_owned();
    assert!(get(&browser, "/dashboard/sign-in", "de").await.text().contains("<html lang=\"de\">"));
    let refused = browser.site.send(
        "POST",
        "/dashboard/sign-in",
        &[
            ("accept-language", "de"),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ],
        b"name=nobody&password=wrong",
    );
    assert!(refused.await.text().contains("Name und Passwort passen nicht zusammen."));
    let address = between(&page, "name=\"back\" value=\"", "\"");
    assert_eq!(address, "/dashboard/sign-in");
}
