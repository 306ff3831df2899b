//! The account holders' dashboard over real sockets: what a user of an account sees and can do, without any data of
//! another account.

use crate::billing::entries;
use crate::harness::batch_jobs::{self, line};
use crate::harness::browser::{Browser, PASSWORD, between, holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Client, Provider};
use penstock::console::dashboard::DASHBOARD;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const ATTACK: &str = "\"'><script>alert(1)</script>";

fn settings() -> Bench {
    Bench::new().settings("[console]\nlisten = \"127.0.0.1:0\"\nhosts = [\"account.example.eu\"]\n")
}

/// Gateway with a dashboard and the accounts `acme` and `other`.
pub async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = settings().provider("a", &provider).start().await;
    for account in ["acme", "other"] {
        let made = running.admin().post("/admin/accounts", &json!({"id": account, "name": ATTACK})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    (provider, running)
}

/// Key, file and batch of an account, with their ids.
struct Belongings {
    client: Client,
    key: String,
    file: String,
    batch: String,
}

impl Belongings {
    async fn of(running: &Running, account: &str) -> Self {
        let name = format!("{account}-name{ATTACK}");
        let wanted = json!({"account": account, "scopes": ["*"], "name": name});
        let client = running.key(&wanted).await;
        let key = client.key["sk-svc-".len()..][..16].to_owned();
        let file = batch_jobs::uploaded(&client, &line("one", "Hi")).await;
        let batch = batch_jobs::create(&client, &file).await.json();
        batch_jobs::ended(&client, &batch).await;
        let batch = batch["id"].as_str().unwrap().to_owned();
        Self { client, key, file, batch }
    }

    /// Replaces the placeholder in a path by the id of the object.
    fn fill(&self, path: &str) -> String {
        let id = match path {
            path if path.contains("/keys/") => &self.key,
            path if path.contains("/batches/") => &self.batch,
            path if path.contains("/files/") => &self.file,
            path => panic!("{path} is about an object that this test does not know"),
        };
        path.replace("{id}", id)
    }

    /// Texts of this account that must not appear on a page of another account.
    fn traces(&self, account: &str) -> [String; 4] {
        [self.key.clone(), self.file.clone(), self.batch.clone(), format!("{account}-name")]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_and_no_form_reaches_another_account() {
    let (_provider, running) = bench().await;
    let (own, other) = (Belongings::of(&running, "acme").await, Belongings::of(&running, "other").await);
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    let before = running.admin().get("/admin/keys?account=other").await.json();
    let query = format!("account=other&key={}", other.key);
    let paths = DASHBOARD.pages.iter().map(|page| page.path);
    let paths = paths.chain(DASHBOARD.downloads.iter().map(|download| download.path));
    // The reference of the API has no data of an account.
    let paths: Vec<&str> = paths.filter(|path| !path.contains("/api/")).collect();
    assert!(paths.len() >= 14);
    for path in paths {
        if path.contains("{id}") {
            let (theirs, mine) = (browser.get(&other.fill(path)).await, browser.get(&own.fill(path)).await);
            assert_eq!((theirs.status, mine.status), (404, 200), "{path}");
        }
        let filled = if path.contains("{id}") { own.fill(path) } else { path.to_owned() };
        let shown = browser.get(&format!("{filled}?{query}")).await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text());
        for trace in other.traces("other") {
            assert!(!shown.text().contains(&trace), "{path} shows {trace} of the other account");
        }
        for after in ["0", &other.key, &other.batch, &other.file] {
            let listed = browser.get(&format!("{filled}?after={after}")).await;
            // A list of batches refuses a cursor (`after`) that is not the id of a batch of the account.
            assert!([200, 400].contains(&listed.status), "{path} {after}: {}", listed.status);
            let listed = listed.text();
            assert!(!other.traces("other").iter().any(|trace| listed.contains(trace)), "{path} {after}");
        }
    }
    assert!(DASHBOARD.actions.len() >= 6);
    for action in DASHBOARD.actions {
        let form = [
            ("form_token", token.as_str()),
            ("account", "other"),
            ("name", "n"),
            ("scopes", "*"),
            ("confirmed", "yes"),
        ];
        if action.path.contains("{id}") {
            let refused = browser.post(&other.fill(action.path), &form).await;
            assert_eq!(refused.status, 404, "{}: {}", action.path, refused.text());
        } else {
            assert_eq!(browser.post(action.path, &form).await.status, 200, "{}", action.path);
        }
    }
    let after = running.admin().get("/admin/keys?account=other").await.json();
    assert_eq!(without_now(&before), without_now(&after), "no key of the other account was changed or added");
    assert_eq!(other.client.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(other.client.get(&format!("/v1/files/{}", other.file)).await.status, 200);
}

/// Returns the keys without the members that a request changes.
fn without_now(keys: &Value) -> Vec<Value> {
    let strip = |key: &Value| {
        let mut key = key.clone();
        key.as_object_mut().unwrap().retain(|name, _| !["now", "last_used"].contains(&name.as_str()));
        key
    };
    keys["data"].as_array().unwrap().iter().map(strip).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_created_limited_rotated_and_revoked_by_its_account_holder() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    let token = token.as_str();
    let fields = [
        ("form_token", token),
        ("name", ATTACK),
        ("scopes", "inference.chat, account.read"),
        ("models", "m"),
        ("requests_per_minute", "50"),
        ("budget_per_month", "12.5"),
    ];
    let created = browser.post("/dashboard/keys", &fields).await;
    assert_eq!(created.status, 200, "{}", created.text());
    let key = between(&created.text(), "<code>", "</code>");
    let client = Client { address: running.client.address, key: key.clone() };
    assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
    let id = &key["sk-svc-".len()..][..16];
    let stored = running.admin().get(&format!("/admin/keys/{id}")).await.json();
    assert_eq!(
        (&stored["account"], &stored["models"], &stored["limits"]["requests_per_minute"]),
        (&json!("acme"), &json!(["m"]), &json!(50)),
        "{stored}"
    );
    let path = format!("/dashboard/keys/{id}");
    entries(&running).await;
    for page in ["/dashboard/keys", &path, "/dashboard/usage?by=key", "/dashboard/statement"] {
        let text = browser.get(page).await.text();
        assert!(!text.contains(&key) && !text.contains(ATTACK) && !text.contains("<script>alert"), "{page}");
        assert!(text.contains("alert(1)"), "the name is shown on {page}");
    }
    for page in [format!("{path}?from=9999-12-31&to=9999-12-31"), "/dashboard/usage?to=9999-12-31".to_owned()]
    {
        assert_eq!(browser.get(&page).await.status, 200, "the last day of the calendar: {page}");
    }
    let limited =
        [("form_token", token), ("name", "ci"), ("requests_per_minute", ""), ("budget_per_day", "3")];
    assert_eq!(browser.post(&format!("{path}/limits"), &limited).await.status, 200);
    let refused =
        browser.post(&format!("{path}/limits"), &[("form_token", token), ("concurrent", "x")]).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let stored = running.admin().get(&format!("/admin/keys/{id}")).await.json();
    assert_eq!((&stored["name"], &stored["limits"]["requests_per_minute"]), (&json!("ci"), &Value::Null));
    let rotated =
        browser.post(&format!("{path}/rotate"), &[("form_token", token), ("overlap_seconds", "3600")]).await;
    let fresh = Client { key: between(&rotated.text(), "<code>", "</code>"), ..client.clone() };
    assert_ne!(fresh.key, client.key);
    for valid in [&client, &fresh] {
        assert_eq!(valid.post(CHAT, &running.ask()).await.status, 200, "both secrets are valid meanwhile");
    }
    assert_eq!(browser.confirm(&format!("{path}/revoke"), &[("form_token", token)]).await.status, 200);
    for revoked in [&client, &fresh] {
        assert_eq!(revoked.post(CHAT, &running.ask()).await.status, 401);
    }
    let log = running.admin().get(&format!("/admin/audit?target={id}")).await.json();
    let changes = log["data"].as_array().unwrap();
    let what: Vec<&str> = changes.iter().filter_map(|change| change["what"].as_str()).collect();
    assert_eq!(what, ["key.create", "key.change", "key.rotate", "key.revoke"]);
    assert!(
        changes.iter().all(|change| change["who"].as_str().unwrap().starts_with("ada from 127.")),
        "{log}"
    );
    assert!(!log.to_string().contains(&key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_and_statement_are_those_of_the_ledger() {
    let (_provider, running) = bench().await;
    let (own, other) = (Belongings::of(&running, "acme").await, Belongings::of(&running, "other").await);
    for (client, requests) in [(&own.client, 3), (&other.client, 5)] {
        for _ in 0..requests {
            assert_eq!(client.post(CHAT, &running.ask()).await.status, 200);
        }
    }
    let charged: Vec<Value> = entries(&running)
        .await
        .into_iter()
        .filter(|entry| entry["act"] == "settle" && entry["account"] == "acme")
        .collect();
    let browser = holder(&running, "ada", "acme").await;
    for by in ["model", "key", "day", "location", "outcome"] {
        let page = browser.get(&format!("/dashboard/usage?by={by}")).await;
        assert!(page.status == 200 && page.text().contains("<svg"), "{by}: {}", page.text());
    }
    let statement = browser.get("/dashboard/statement.json").await;
    assert_eq!(statement.header("content-type"), Some("application/json"));
    let statement = statement.json();
    let accounts = statement["accounts"].as_array().unwrap();
    assert_eq!((accounts.len(), &accounts[0]["account"]), (1, &json!("acme")));
    assert_eq!(accounts[0]["requests"], charged.len());
    let eur = |entry: &Value| entry["eur"].as_str().unwrap().parse::<rust_decimal::Decimal>().unwrap();
    let sum: rust_decimal::Decimal = charged.iter().map(eur).sum();
    assert_eq!(accounts[0]["eur"].as_str().unwrap(), sum.normalize().to_string());
    let csv = browser.get("/dashboard/statement.csv?decimal=%2C").await;
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let name = csv.header("content-disposition").unwrap().to_owned();
    assert!(name.starts_with("attachment; filename=\"statement-") && name.ends_with(".csv\""), "{name}");
    let text = csv.text();
    let (heading, account) = (text.lines().next().unwrap(), text.lines().nth(1).unwrap());
    let column = heading.split(';').position(|name| name == "eur").unwrap();
    assert_eq!(account.split(';').nth(column).unwrap(), sum.normalize().to_string().replace('.', ","));
    for (query, field) in
        [("decimal=x", "decimal"), ("separator=%2C&decimal=%2C", "decimal"), ("month=soon", "month")]
    {
        let refused = browser.get(&format!("/dashboard/statement.csv?{query}")).await;
        assert!(refused.status == 400 && refused.text().contains(field), "{query}: {}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_files_and_batches_are_listed_and_deleted() {
    let (_provider, running) = bench().await;
    let own = Belongings::of(&running, "acme").await;
    // A second key of the account: files belong to a key, but the dashboard lists the files of all keys of the
    // account.
    let second = Belongings::of(&running, "acme").await;
    let mut browser = holder(&running, "ada", "acme").await;
    let (files, batches) = (browser.get("/dashboard/files").await, browser.get("/dashboard/batches").await);
    for one in [&own, &second] {
        assert!(files.text().contains(&one.file) && batches.text().contains(&one.batch));
    }
    let token = browser.token("/dashboard/files").await;
    let form = [("form_token", token.as_str())];
    let deleted = browser.confirm(&format!("/dashboard/files/{}/delete", own.file), &form).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(own.client.get(&format!("/v1/files/{}", own.file)).await.status, 404);
    assert_eq!(second.client.get(&format!("/v1/files/{}", second.file)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_person_signs_in_where_the_role_belongs() {
    let (_provider, running) = bench().await;
    let ada = holder(&running, "ada", "acme").await;
    let bob = signed_in(&running, "bob", "admin").await;
    for (name, mut browser) in [("bob", Browser::at_dashboard(&running)), ("ada", Browser::new(&running))] {
        let path = format!("{}sign-in", browser.root);
        let refused = browser.post(&path, &[("name", name), ("password", PASSWORD)]).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (403, None), "{name}");
    }
    // A session of one site is not valid at the other, whatever the name of its cookie.
    for (cookie, mut browser) in
        [(&bob.cookie, Browser::at_dashboard(&running)), (&ada.cookie, Browser::new(&running))]
    {
        let id = cookie.split_once('=').unwrap().1;
        for name in ["penstock_session", "penstock_dashboard"] {
            browser.cookie = format!("{name}={id}");
            let answer = browser.get(browser.root).await;
            assert_eq!(answer.status, 303, "{name}");
            assert!(answer.header("location").unwrap().ends_with("/sign-in"));
        }
    }
    let admin = running.admin();
    for (user, field) in [
        (json!({"name": "eve", "role": "account"}), "account"),
        (json!({"name": "eve", "role": "admin", "account": "acme"}), "account"),
        (json!({"name": "eve", "role": "account", "account": "nobody"}), "account"),
    ] {
        let refused = admin.post("/admin/users", &user).await;
        assert!([400, 404].contains(&refused.status), "{user}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], field, "{user}");
    }
    for (name, role) in [("ada", "admin"), ("bob", "account")] {
        let body = json!({"role": role}).to_string();
        let refused = admin.send("PATCH", &format!("/admin/users/{name}"), &[], body.as_bytes()).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert_eq!(ada.get("/dashboard/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_listener_serves_nothing_else() {
    let (_provider, running) = bench().await;
    let browser = holder(&running, "ada", "acme").await;
    for path in [
        "/",
        "/status",
        "/metrics",
        "/admin/keys",
        "/console/",
        "/v1/models",
        "//evil.example/",
        "/dashboard",
    ] {
        let answer = browser.get(path).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/dashboard/")), "{path}");
    }
    for listener in [running.client.address, running.gateway.admin_address] {
        let elsewhere = Client { address: listener, key: running.client.key.clone() };
        let headers = [("cookie", browser.cookie.as_str())];
        assert!(elsewhere.send("GET", "/dashboard/", &headers, b"").await.status >= 400);
    }
    for (host, status) in [("account.example.eu", 200), ("evil.example", 421), ("127.0.0.1:9", 200)] {
        let headers = [("cookie", browser.cookie.as_str()), ("host", host)];
        assert_eq!(browser.site.send("GET", "/dashboard/", &headers, b"").await.status, status, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_dashboard_is_renewed_bound_and_ended() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let first = browser.cookie.clone();
    // A session id that an attacker set before the sign-in is not adopted.
    browser.cookie = format!("penstock_dashboard={}", "a".repeat(64));
    let again = browser.post("/dashboard/sign-in", &[("name", "ada"), ("password", PASSWORD)]).await;
    let cookie = again.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/dashboard"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && browser.cookie != first && !browser.cookie.contains("aaaa"));
    let (token, own) = (browser.token("/dashboard/").await, browser.cookie.clone());
    for (site, token) in [("cross-site", token.as_str()), ("same-origin", ""), ("none", &token)] {
        let form = [("form_token", token), ("name", "n")];
        assert_eq!(browser.post_from(site, "/dashboard/keys", &form).await.status, 403, "{site}");
    }
    let away = browser.get("/dashboard/sign-in?next=https://evil.example").await;
    assert!(away.status == 200 && !away.text().contains("evil.example"));
    let ended = browser.post("/dashboard/sign-out", &[("form_token", &token)]).await;
    assert_eq!(ended.header("location"), Some("/dashboard/sign-in"));
    browser.cookie = own;
    assert_eq!(browser.get("/dashboard/").await.status, 303, "the session ended on the server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_is_for_tls_only_behind_a_public_url_with_https() {
    let provider = Provider::start().await;
    let console = "[console]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://account.example.eu\"\n";
    let running = Bench::new().settings(console).provider("a", &provider).start().await;
    let mut browser = Browser::at_dashboard(&running);
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let user = json!({"name": "ada", "role": "account", "account": "acme", "password": PASSWORD});
    assert_eq!(running.admin().post("/admin/users", &user).await.status, 201);
    let answer = browser.post("/dashboard/sign-in", &[("name", "ada"), ("password", PASSWORD)]).await;
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"), "{:?}", answer.headers);
}
