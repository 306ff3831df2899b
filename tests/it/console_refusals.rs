//! Refusals of the console and the dashboard over real sockets: methods, objects that do not exist, no confirmation
//! page for an action that would be refused, and long texts.

use crate::harness::browser::{Browser, between, holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Provider};
use serde_json::json;

const SETTINGS: &str = "[console]\nlisten = \"127.0.0.1:0\"\n[invoice]\nseller = \"Example GmbH\"\n";

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = Bench::new().settings(SETTINGS).provider("a", &provider).start().await;
    let made = running.admin().post("/admin/accounts", &json!({"id": "acme", "name": "Acme"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    (provider, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_method_that_a_path_does_not_take_is_refused_with_those_that_it_takes() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    let eve = holder(&running, "eve", "acme").await;
    for (browser, method, path, allow) in [
        (&ada, "PUT", "/console/", "GET, HEAD"),
        (&ada, "DELETE", "/console/accounts", "GET, HEAD, POST"),
        (&ada, "PATCH", "/console/accounts/acme/keys", "GET, HEAD, POST"),
        (&ada, "OPTIONS", "/console/usage.csv", "GET, HEAD"),
        (&ada, "DELETE", "/console/assets/console.css", "GET, HEAD"),
        (&ada, "PUT", "/console/configuration/check", "GET, HEAD, POST"),
        (&ada, "PUT", "/console/sign-in", "GET, HEAD, POST"),
        (&ada, "PUT", "/console/nowhere", "GET, HEAD, POST"),
        (&eve, "PUT", "/dashboard/playground", "GET, HEAD, POST"),
        (&eve, "TRACE", "/dashboard/keys/0123456789abcdef", "GET, HEAD"),
    ] {
        let refused = browser.site.send(method, path, &[("cookie", &browser.cookie)], b"").await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some(allow)), "{method} {path}");
    }
    let token = ada.token("/console/").await;
    let refused = ada.post("/console/usage", &[("form_token", &token)]).await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
    assert!(refused.text().contains("This address takes GET, HEAD, not POST."), "{}", refused.text());
    assert_eq!(ada.post("/console/nowhere", &[("form_token", &token)]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_about_an_object_that_does_not_exist_is_not_asked() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    let mut eve = holder(&running, "eve", "acme").await;
    let token = ada.token("/console/").await;
    for path in [
        "accounts/nobody/suspend",
        "accounts/nobody/correct?entry=1&credits=1",
        "accounts/nobody/invoice/issue?from=2026-01-01&to=2026-01-31",
        "accounts/nobody/invoice/credit?invoice=1",
        "keys/0123456789abcdef/revoke",
        "batches/batch_0/cancel",
        "users/nobody/disable",
        "accounts/nobody/usage",
    ] {
        let path = format!("/console/{path}");
        let asked = ada.get(&path).await;
        assert_eq!(asked.status, 404, "{path}: {}", asked.text());
        assert!(!asked.text().contains("name=\"confirmed\""), "{path}");
        let form: Vec<(String, String)> =
            path.split(['?', '&']).skip(1).filter_map(|pair| pair.split_once('=')).map(owned).collect();
        let mut fields: Vec<(&str, &str)> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
        fields.push(("form_token", &token));
        let sent = ada.post(path.split('?').next().unwrap(), &fields).await;
        assert!([404, 405].contains(&sent.status), "{path}: {} {}", sent.status, sent.text());
    }
    let token = eve.token("/dashboard/").await;
    for path in ["keys/0123456789abcdef/revoke", "batches/batch_0/cancel", "files/file-0/delete"] {
        let path = format!("/dashboard/{path}");
        assert_eq!(eve.get(&path).await.status, 404, "{path}");
        assert_eq!(eve.post(&path, &[("form_token", &token)]).await.status, 404, "{path}");
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invoice_that_cannot_be_issued_says_so_beside_the_field_instead_of_a_question() {
    let (_provider, running) = bench().await;
    let mut fin = signed_in(&running, "fin", "finance").await;
    let token = fin.token("/console/accounts/acme/invoice").await;
    let path = "/console/accounts/acme/invoice/issue";
    for (from, to, status, field, sentence) in [
        ("2026-01-01", "2026-01-31", 409, "from", "This period has no amount above 0.00 EUR"),
        ("", "2026-01-31", 400, "from", "Choose the first day of the period."),
        ("", "", 400, "from", "Choose the first day of the period."),
        ("2026-01-01", "", 400, "to", "Choose the last day of the period."),
        ("2026-02-01", "2026-01-31", 400, "to", ""),
        ("soon", "2026-01-31", 400, "from", ""),
    ] {
        let refused = fin.post(path, &[("form_token", &token), ("from", from), ("to", to)]).await;
        let link = fin.get(&format!("{path}?from={from}&to={to}")).await;
        for (way, answer) in [("sent", refused), ("link", link)] {
            let text = answer.text();
            assert_eq!(answer.status, status, "{way} {from} {to}: {text}");
            let error = between(&text, &format!("id=\"error-{field}\">"), "<");
            assert!(error.contains(sentence) && !text.contains("name=\"confirmed\""), "{way}: {error}");
            assert!(from.is_empty() || text.contains(&format!("value=\"{from}\"")), "what was typed: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_of_an_entry_that_is_corrected_already_is_no_question() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let grant = json!({"account": "acme", "credits": "10"});
    let entry = admin.post("/admin/credits/grant", &grant).await.json()["entry"].to_string();
    let preview = format!("/admin/credits/correction?entry={entry}&account=acme&credits=4");
    assert_eq!(admin.get(&preview).await.status, 200);
    let body = json!({"entry": entry.parse::<u64>().unwrap(), "credits": "7"});
    let correction = admin.post("/admin/credits/correct", &body).await.json()["entry"].to_string();
    let refused = admin.get(&preview).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (409, &json!("entry")));
    let fin = signed_in(&running, "fin", "finance").await;
    let asked = fin.get(&format!("/console/accounts/acme/correct?entry={entry}&credits=4")).await;
    assert_eq!(asked.status, 409, "{}", asked.text());
    let error = between(&asked.text(), "id=\"error-entry\">", "<");
    assert!(error.contains(&format!("was corrected before, by entry {correction}")), "{error}");
    assert!(!asked.text().contains("name=\"confirmed\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pasted_configuration_names_what_it_includes_and_a_long_one_is_kept() {
    let (_provider, running) = bench().await;
    let mut ops = signed_in(&running, "ops", "operator").await;
    let token = ops.token("/console/configuration").await;
    let path = "/console/configuration/check";
    let including = format!("include = [\"providers.d/*.toml\"]\n{}", penstock::config::DEMO_CONFIG);
    let checked = ops.post(path, &[("form_token", &token), ("text", &including)]).await;
    let text = checked.text();
    assert_eq!(checked.status, 200, "{text}");
    assert!(text.contains("The text includes providers.d/*.toml, which was not read here"), "{text}");
    let long = format!("# {}\n[listen]\n", "=\"'\n".repeat(140_000));
    assert!(long.len() > 512 * 1024);
    let refused = ops.post(path, &[("form_token", &token), ("text", &long)]).await;
    let text = refused.text();
    assert_eq!(refused.status, 413);
    assert_eq!(
        between(&text, "id=\"error-text\">", "<"),
        "Enter at most 512 KiB. What you entered is longer; it is still in the field."
    );
    assert!(text.contains("[listen]\n</textarea>"), "what was typed is kept");
    let page = ops.get("/console/configuration").await.text();
    assert!(page.contains("At most 512 KiB."), "the limit is beside the field");
    let huge = "x".repeat(5 << 20);
    let refused = ops.post(path, &[("form_token", &token), ("text", &huge)]).await;
    assert_eq!(refused.status, 413);
    assert!(
        refused.text().contains("The form is larger than 4096 KiB")
            || refused.text().contains("4\u{202f}096 KiB"),
        "{}",
        refused.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_form_is_read_only_from_a_person_who_has_signed_in() {
    let (_provider, running) = bench().await;
    let (ada, eve) = (signed_in(&running, "ada", "admin").await, holder(&running, "eve", "acme").await);
    let long = format!("text={}", "x".repeat(1 << 20));
    let form = ("content-type", "application/x-www-form-urlencoded");
    let own = ("sec-fetch-site", "same-origin");
    let (admin, dashboard) = (&ada.site, &eve.site);
    for (site, path, headers, status) in [
        (admin, "/console/configuration/check", vec![form, own], 413),
        (admin, "/console/language", vec![form, own], 413),
        (admin, "/console/language", vec![form, own, ("cookie", ada.cookie.as_str())], 303),
        (admin, "/console/language", vec![form, ("cookie", ada.cookie.as_str())], 403),
        (dashboard, "/dashboard/language", vec![form, own, ("cookie", eve.cookie.as_str())], 413),
        // The gateway answers these requests before it reads the form, so the length does not matter.
        (dashboard, "/console/language", vec![form, own], 303),
        (dashboard, "/dashboard/usage", vec![form, own], 405),
    ] {
        let answer = site.send("POST", path, &headers, long.as_bytes()).await;
        assert_eq!(answer.status, status, "{path} {headers:?}: {}", answer.text());
        assert!(status != 413 || answer.text().contains("larger than 512 KiB"), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_keys_is_found_by_its_name_in_the_playground() {
    let (provider, running) = bench().await;
    let mut ids = Vec::new();
    for number in 0..120 {
        let name = if number < 2 { "twice".to_owned() } else { format!("key {number}") };
        let made =
            running.admin().post("/admin/keys", &json!({"account": "acme", "name": name})).await.json();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let mut eve: Browser = holder(&running, "eve", "acme").await;
    let page = eve.get("/dashboard/playground").await.text();
    assert!(page.contains("<input type=\"text\" name=\"key\""), "{page}");
    let token = between(&page, "name=\"form_token\" value=\"", "\"");
    for (key, status, sentence) in [
        ("key 119", 200, "Expected cost"),
        (&*ids[77], 200, "Expected cost"),
        (" key 3 ", 200, "Expected cost"),
        ("twice", 400, "Several keys have this name"),
        ("key 120", 404, "a key of this account"),
        ("", 404, "a key of this account"),
    ] {
        let form =
            [("form_token", &*token), ("key", key), ("model", "m"), ("prompt", "Hi"), ("max_tokens", "9")];
        let answer = eve.post("/dashboard/playground", &form).await;
        assert_eq!(answer.status, status, "{key}: {}", answer.text());
        assert!(answer.text().contains(sentence), "{key}: {}", answer.text());
        assert!(answer.text().contains(&format!("value=\"{key}\"")), "{key} is kept");
    }
    assert_eq!(provider.calls(), 0, "a quote sends nothing");
}
