//! The operators' console over real sockets: invitation, sign-in, sessions, roles, forms and their refusals; usage by
//! the public and the admin API.

use crate::billing::entries;
use crate::harness::browser::{Browser, PASSWORD, between, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Answer, Bench, Client, Provider};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invited_person_chooses_a_password_and_signs_in_and_out() {
    let (_provider, running) = bench().await;
    let mut browser = signed_in(&running, "ada", "admin").await;
    let page = browser.get("/console/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("ada (admin)"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let first = browser.cookie.clone();
    let again = browser.post("/console/sign-in", &[("name", "ada"), ("password", PASSWORD)]).await;
    assert_eq!(again.status, 303, "{}", again.text());
    let cookie = again.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/console"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert_ne!(browser.cookie, first, "a sign-in gives a new session id");
    let old = Browser { site: browser.site.clone(), root: browser.root, cookie: first };
    assert_eq!(old.get("/console/").await.header("location"), Some("/console/sign-in"));
    let token = browser.token("/console/").await;
    let (cookie, signed_out) =
        (browser.cookie.clone(), browser.post("/console/sign-out", &[("form_token", &token)]).await);
    assert_eq!(signed_out.header("location"), Some("/console/sign-in"));
    browser.cookie = cookie;
    assert_eq!(browser.get("/console/").await.status, 303, "the session ended on the server");
    let update = [("cookie", browser.cookie.as_str()), ("hx-request", "true")];
    let update = browser.site.send("GET", "/console/providers", &update, b"").await;
    assert_eq!((update.status, update.header("hx-refresh")), (200, Some("true")), "the page is loaded again");
    assert!(update.body.is_empty() && update.header("location").is_none());
    let log = running.admin().get("/admin/audit").await.json();
    let what: Vec<&str> =
        log["data"].as_array().unwrap().iter().filter_map(|row| row["what"].as_str()).collect();
    for expected in ["user.create", "user.password", "user.sign_in"] {
        assert!(what.contains(&expected), "{what:?}");
    }
    assert!(!log.to_string().contains("argon2") && !log.to_string().contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_leads_back_to_the_wanted_page() {
    let (_provider, running) = bench().await;
    let ada = signed_in(&running, "ada", "admin").await;
    let mut browser = Browser { site: ada.site.clone(), root: ada.root, cookie: String::new() };
    let asked = browser.get("/console/usage?from=2026-11-01&by=model").await;
    let sign_in = asked.header("location").unwrap().to_owned();
    assert_eq!(sign_in, "/console/sign-in?next=%2Fconsole%2Fusage%3Ffrom%3D2026-11-01%26by%3Dmodel");
    let page = browser.get(&sign_in).await.text();
    assert!(!page.contains("Your session has ended"), "{page}");
    let next = between(&page, "name=\"next\" value=\"", "\"").replace("&#38;", "&");
    let form = |next| [("name", "ada"), ("password", PASSWORD), ("next", next)];
    let refused =
        browser.post("/console/sign-in", &[("name", "ada"), ("password", "x"), ("next", &next)]).await;
    assert!(refused.text().contains("name=\"next\""), "{}", refused.text());
    let signed_in = browser.post("/console/sign-in", &form(&next)).await;
    assert_eq!(signed_in.header("location"), Some("/console/usage?from=2026-11-01&by=model"));
    for foreign in
        ["https://evil.example/console/", "//evil.example/", "/console/\\evil.example", "/console/sign-out"]
    {
        let signed_in = browser.post("/console/sign-in", &form(foreign)).await;
        assert_eq!(signed_in.header("location"), Some("/console/"), "{foreign}");
    }
    // The session of the cookie is over: a page and a form say so.
    browser.cookie = format!("penstock_session={}", "0".repeat(64));
    let page = browser.get("/console/sign-in").await.text();
    assert!(page.contains("Your session has ended. Sign in again."), "{page}");
    let lost = browser.post("/console/accounts", &[("id", "acme")]).await;
    assert_eq!(lost.header("location"), Some("/console/sign-in?lost_form=yes"));
    let page = browser.get("/console/sign-in?lost_form=yes").await.text();
    assert!(page.contains("Your session has ended, and nothing was changed."), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_password_and_an_unknown_name_get_the_same_answer_and_a_limit() {
    let (_provider, running) = bench().await;
    let mut browser = signed_in(&running, "ada", "viewer").await;
    browser.cookie.clear();
    let refused = |answer: &Answer| between(&answer.text(), "role=\"status\">", "<");
    let rejected = browser.post("/console/sign-in", &[("name", "ada"), ("password", "wrong password")]).await;
    let unknown = browser.post("/console/sign-in", &[("name", "eve"), ("password", PASSWORD)]).await;
    assert_eq!((rejected.status, unknown.status), (401, 401));
    assert_eq!(refused(&rejected), refused(&unknown));
    // The rate limit on sign-in attempts permits one more attempt every twelve seconds.
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let again =
            browser.post("/console/sign-in", &[("name", "ada"), ("password", "wrong password")]).await;
        assert_eq!(again.header("set-cookie"), None);
        statuses.push(again.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_another_site_or_another_session_changes_nothing() {
    let (_provider, running) = bench().await;
    let browser = signed_in(&running, "ada", "admin").await;
    let other = signed_in(&running, "bob", "admin").await;
    let (own, foreign) = (browser.token("/console/").await, other.token("/console/").await);
    let form = |token: &'static str| vec![("form_token", token), ("id", "acme")];
    let (own, foreign): (&'static str, &'static str) = (own.leak(), foreign.leak());
    for (site, token) in [
        ("cross-site", own),
        ("same-site", own),
        ("none", own),
        ("same-origin", foreign),
        ("same-origin", ""),
    ] {
        let refused = browser.post_from(site, "/console/accounts", &form(token)).await;
        assert_eq!(refused.status, 403, "{site}");
    }
    assert_eq!(running.admin().get("/admin/accounts/acme").await.status, 404);
    let created = browser.post_from("same-origin", "/console/accounts", &form(own)).await;
    assert_eq!((created.status, created.header("location")), (303, Some("/console/accounts")));
    assert_eq!(running.admin().get("/admin/accounts/acme").await.status, 200);
    let log = running.admin().get("/admin/audit?target=acme").await.json();
    assert!(log["data"][0]["who"].as_str().unwrap().starts_with("ada from 127.0.0.1"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_console_is_shown_once_used_and_revoked() {
    let (_provider, running) = bench().await;
    let mut browser = signed_in(&running, "ada", "admin").await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let page = "/console/accounts/acme";
    let token = browser.token(page).await;
    let attack = "<script>alert(1)</script>";
    let fields = [
        ("form_token", token.as_str()),
        ("form_id", "one"),
        ("name", attack),
        ("scopes", "inference.chat, account.read"),
    ];
    let created = browser.post(&format!("{page}/keys"), &fields).await;
    assert_eq!(created.status, 200, "{}", created.text());
    let key = between(&created.text(), "<code>", "</code>");
    let count = async || {
        let keys = running.admin().get("/admin/keys?account=acme").await.json();
        keys["data"].as_array().unwrap().len()
    };
    let again = browser.post(&format!("{page}/keys"), &fields).await;
    assert_eq!((again.status, count().await), (409, 1), "a reload creates no second key: {}", again.text());
    assert!(!again.text().contains("sk-svc-") && again.text().contains("sent already"), "{}", again.text());
    assert_eq!(browser.get(&format!("{page}/keys")).await.header("location"), Some(page));
    assert!(key.starts_with("sk-svc-") && !created.text().contains(attack), "{key}");
    assert!(!browser.get(page).await.text().contains(&key), "a key is shown once");
    let client = Client { address: running.client.address, key: key.clone() };
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let id = &key["sk-svc-".len()..][..16];
    let path = format!("/console/keys/{id}/revoke");
    assert_eq!(browser.get(&path).await.status, 200, "a link to the question");
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let revoked = browser.confirm(&path, &[("form_token", &token), ("account", "acme")]).await;
    assert!(revoked.status == 200 && revoked.text().contains("was revoked"), "{}", revoked.text());
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 401);
    let refused =
        browser.post(&format!("{page}/keys"), &[("form_token", &token), ("scopes", "nonsense")]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("nonsense"), "what was typed stays: {}", refused.text());
    let missing = browser.get("/console/accounts/nobody").await;
    assert!(missing.status == 404 && missing.text().contains("<nav"), "{}", missing.text());
    let missing = browser.get("/console/nowhere").await;
    assert!(missing.status == 404 && missing.text().contains("<nav"), "{}", missing.text());
    for form in ["sign-out", "language", "configuration/check", "configuration/reload", "keys/x/rotate"] {
        assert_eq!(browser.get(&format!("/console/{form}")).await.status, 303, "{form}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_sees_its_pages_and_no_others() {
    let (_provider, running) = bench().await;
    let pages = [
        "",
        "providers",
        "routing",
        "latency",
        "usage",
        "accounts",
        "ledger",
        "carbon",
        "batches",
        "files",
        "configuration",
        "audit",
        "users",
        "api",
    ];
    let refused: &[&str] = &[];
    let refused = |role: &str| match role {
        "admin" => refused,
        "operator" => &["accounts", "ledger", "carbon", "users"],
        "finance" => &["routing", "batches", "files", "configuration", "audit", "users"],
        _ => &["accounts", "ledger", "carbon", "configuration", "users"],
    };
    let allowed =
        |role: &str| pages.map(|page| if refused(role).contains(&page) { 403 } else { 200 }).to_vec();
    for role in ["admin", "operator", "finance", "viewer"] {
        let mut browser = signed_in(&running, role, role).await;
        let mut statuses = Vec::new();
        for page in pages {
            let answer = browser.get(&format!("/console/{page}")).await;
            statuses.push(answer.status);
            assert!(
                !answer.text().contains(" style=") && !answer.text().contains("<script>"),
                "{role} {page}"
            );
        }
        assert_eq!(statuses, allowed(role), "{role}");
        let token = browser.token("/console/").await;
        let reload = browser.post("/console/configuration/reload", &[("form_token", &token)]).await;
        assert_eq!(reload.status == 403, ["finance", "viewer"].contains(&role), "{role}: {}", reload.status);
        let invite = browser.post("/console/users", &[("form_token", &token), ("name", "eve")]).await;
        assert_eq!(invite.status == 403, role != "admin", "{role}");
    }
    let browser = signed_in(&running, "zoe", "operator").await;
    let body = json!({"disabled": "true"}).to_string();
    running.admin().send("PATCH", "/admin/users/zoe", &[], body.as_bytes()).await;
    assert_eq!(browser.get("/console/").await.status, 303, "a disabled person is signed out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_active_administrator_stays_one() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    // An invited administrator without a password cannot sign in, and so does not count as a remaining administrator.
    running.admin().post("/admin/users", &json!({"name": "cy", "role": "admin"})).await;
    let admin = running.admin();
    let change = |name: &str, body: Value| {
        let (admin, path, body) = (admin.clone(), format!("/admin/users/{name}"), body.to_string());
        async move { admin.send("PATCH", &path, &[], body.as_bytes()).await }
    };
    let token = ada.token("/console/users").await;
    let form = [("form_token", token.as_str()), ("confirmed", "yes")];
    let refused = ada.post("/console/users/ada/disable", &form).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("the last active administrator"), "{}", refused.text());
    for body in [json!({"disabled": "true"}), json!({"role": "viewer"})] {
        let refused = change("ada", body).await;
        assert_eq!(refused.status, 409, "{}", refused.text());
    }
    assert_eq!(change("ada", json!({"role": "admin", "disabled": "false"})).await.status, 200);
    signed_in(&running, "bob", "admin").await;
    // Two concurrent changes would remove both administrators; only one change succeeds.
    let both =
        tokio::join!(change("ada", json!({"disabled": "true"})), change("bob", json!({"role": "viewer"})));
    let mut statuses = [both.0.status, both.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pasted_configuration_is_validated_and_compared() {
    let (_provider, running) = bench().await;
    let mut browser = signed_in(&running, "ops", "operator").await;
    let token = browser.token("/console/configuration").await;
    let path = "/console/configuration/check";
    let rejected = browser.post(path, &[("form_token", &token), ("text", "[listen]\nhtpp = 1\n")]).await;
    assert_eq!(rejected.status, 400);
    assert!(rejected.text().contains("pasted:2") && rejected.text().contains("htpp"), "{}", rejected.text());
    let valid = browser.post(path, &[("form_token", &token), ("text", penstock::config::DEMO_CONFIG)]).await;
    assert_eq!(valid.status, 200, "{}", valid.text());
    assert!(valid.text().contains("The configuration is valid"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_and_credits_are_those_of_the_account_and_equal_to_the_ledger() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let mut clients = Vec::new();
    for (account, scopes) in
        [("acme", json!(["*"])), ("other", json!(["*"])), ("acme", json!(["inference.*"]))]
    {
        admin.post("/admin/accounts", &json!({"id": account})).await;
        let made = admin.post("/admin/keys", &json!({"account": account, "scopes": scopes})).await.json();
        let key = made["key"].as_str().unwrap().to_owned();
        clients.push(Client { address: running.client.address, key });
    }
    for (client, requests) in clients.iter().zip([3, 2, 1]) {
        for _ in 0..requests {
            assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
        }
    }
    let charged: Vec<Value> = entries(&running)
        .await
        .into_iter()
        .filter(|entry| entry["act"] == "settle" && entry["account"] == "acme")
        .collect();
    let usage = clients[0].get("/v1/usage?group_by=day,model,outcome").await;
    assert_eq!(usage.status, 200, "{}", usage.text());
    let usage = usage.json();
    assert_eq!(usage["total"]["requests"], 4);
    let sum = |name: &str| charged.iter().filter_map(|entry| entry[name].as_u64()).sum::<u64>();
    assert_eq!(usage["total"]["input_tokens"], sum("input"));
    assert_eq!(usage["total"]["output_tokens"], sum("output"));
    let eur: f64 = charged.iter().map(|entry| entry["eur"].as_str().unwrap().parse::<f64>().unwrap()).sum();
    assert!((usage["total"]["eur"].as_f64().unwrap() - eur).abs() < 1e-12, "{usage}");
    assert!(usage["total"]["carbon_g_co2_low"].as_f64() <= usage["total"]["carbon_g_co2"].as_f64());
    assert!(usage["total"]["carbon_g_co2"].as_f64() <= usage["total"]["carbon_g_co2_high"].as_f64());
    assert_eq!(usage["data"][0]["outcome"], "charged");
    let own = clients[0].get("/v1/usage?key=self&group_by=key").await.json();
    assert_eq!((own["total"]["requests"].as_u64(), own["data"].as_array().unwrap().len()), (Some(3), 1));
    let foreign = own["data"][0]["key"].as_str().unwrap();
    for key in [foreign, "0123456789abcdef", ""] {
        let refused = clients[1].get(&format!("/v1/usage?key={key}")).await;
        assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("key")), "{key}");
    }
    assert_eq!(clients[1].get("/v1/credits").await.json()["account"], "other");
    let refused = clients[2].get("/v1/usage").await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["required_scope"]),
        (403, &json!("account.read"))
    );
    for (query, field) in [
        ("from=yesterday", "from"),
        ("to=2026-02-30", "to"),
        ("from=2026-11-02&to=2026-11-01", "to"),
        ("from=2020-01-01&to=2026-01-01", "from"),
        ("group_by=fortnight", "group_by"),
        ("group_by=day,day", "group_by"),
        ("group_by=day,hour,model,key", "group_by"),
        ("group_by=day&group_by=model", "group_by"),
        ("account=acme", "account"),
        ("limit=1", "limit"),
        ("key=self&key=self", "key"),
    ] {
        let refused = clients[0].get(&format!("/v1/usage?{query}")).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (400, Some(field)),
            "{query}"
        );
    }
    for (query, field) in [
        ("foo=1", "foo"),
        ("group_by=day&group_by=model", "group_by"),
        ("account=acme&key=0123456789abcdef", "key"),
        ("account=acme&key=", "key"),
    ] {
        let refused = admin.get(&format!("/admin/usage?{query}")).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (400, Some(field)),
            "{query}"
        );
    }
    // A route without parameters has none either.
    let refused = admin.get("/admin/usage/verify?account=acme").await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("account")));
    let all = admin.get("/admin/usage?group_by=model").await.json();
    assert_eq!(all["total"]["requests"], 6);
    let check = admin.get("/admin/usage/verify").await.json();
    assert_eq!((&check["good"], &check["differences"]), (&json!(true), &json!([])), "{check}");
    let page = signed_in(&running, "fin", "finance").await.get("/console/accounts/acme").await;
    assert!(page.status == 200 && page.text().contains("<svg"), "{}", page.text());
}
