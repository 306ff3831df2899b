//! Sign-in by OpenID Connect over real sockets: with a scripted OpenID provider, at the console and the dashboard,
//! and with every refusal.

use crate::harness::browser::{Browser, between, signed_in};
use crate::harness::certificates::TestCertificate;
use crate::harness::gateway::Running;
use crate::harness::openid_provider::{OpenIdServer, TokenScript};
use crate::harness::{Answer, Bench, Provider};
use penstock::config::{ResolveEnv, load_text};
use serde_json::{Value, json};

async fn bench(settings: &str) -> (Provider, Running) {
    let provider = Provider::start().await;
    let text = format!("[console]\nlisten = \"127.0.0.1:0\"\n{settings}");
    let running = Bench::new().settings(&text).provider("a", &provider).start().await;
    (provider, running)
}

fn cookies(answer: &Answer) -> Vec<&str> {
    let fields = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    fields.map(|(_, value)| value.as_str()).collect()
}

/// Returns the first part of a cookie, as the browser sends it back.
fn pair(cookie: &str) -> &str {
    cookie.split(';').next().unwrap()
}

/// Starts a sign-in; returns the path to which the provider redirects back, and the cookie of the sign-in.
async fn begin(browser: &Browser, openid: &OpenIdServer, query: &str) -> (String, String) {
    let begun = browser.get(&format!("{}sign-in/openid{query}", browser.root)).await;
    assert_eq!(begun.status, 303, "{}", begun.text());
    let cookie = cookies(&begun)[0].to_owned();
    for part in ["HttpOnly", "SameSite=Lax", "Max-Age=600", "/sign-in/openid"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    (openid.authorize(begun.header("location").unwrap()), pair(&cookie).to_owned())
}

/// Signs in the user whose claims the provider has; the browser keeps the session's cookie.
async fn sign_in(browser: &mut Browser, openid: &OpenIdServer, query: &str) -> Answer {
    let (path, cookie) = begin(browser, openid, query).await;
    // The session's cookie is `Strict`, so the browser does not send it here.
    let answer = browser.site.send("GET", &path, &[("cookie", &cookie)], b"").await;
    let set = cookies(&answer);
    assert!(set.iter().any(|cookie| cookie.contains("_openid=;") && cookie.contains("Max-Age=0")), "{set:?}");
    if let Some(session) = set.iter().find(|cookie| cookie.contains("SameSite=Strict")) {
        browser.cookie = pair(session).to_owned();
    }
    answer
}

fn reason(answer: &Answer) -> String {
    between(&answer.text(), "role=\"status\">", "<")
}

async fn audit(running: &Running) -> Vec<Value> {
    running.admin().get("/admin/audit").await.json()["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_with_the_role_of_the_claims() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["other", "penstock-admin"]}));
    let mut browser = Browser::new(&running);
    let page = browser.get("/console/sign-in").await.text();
    assert!(page.contains("Sign in with Example ID") && page.contains("name=\"password\""), "{page}");
    let answer = sign_in(&mut browser, &openid, "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // The next request comes from a page of this site, so the browser sends the `Strict` cookie.
    assert!(
        answer.text().contains("http-equiv=\"refresh\" content=\"0; url=/console/\""),
        "{}",
        answer.text()
    );
    assert!(browser.get("/console/").await.text().contains("ada (admin)"));
    let log = audit(&running).await;
    let own: Vec<&Value> = log.iter().filter(|row| row["target"] == "ada").collect();
    assert_eq!(
        own.iter().map(|row| row["what"].as_str().unwrap()).collect::<Vec<_>>(),
        ["user.create", "user.sign_in"]
    );
    assert!(own.iter().all(|row| row["who"].as_str().unwrap().starts_with("ada from 127.0.0.1")), "{own:?}");
    let users = running.admin().get("/admin/users").await.json();
    assert_eq!(users["data"][0]["state"], "active", "{users}");

    // Another sign-in creates a new session and ends the previous one; the role is taken from the new claims.
    let first = browser.cookie.clone();
    openid.person(json!({"sub": "1", "preferred_username": "renamed", "roles": "penstock-viewer"}));
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    assert_ne!(browser.cookie, first);
    assert!(browser.get("/console/").await.text().contains("ada (viewer)"));
    let old = Browser { site: browser.site.clone(), root: browser.root, cookie: first };
    assert_eq!(old.get("/console/").await.status, 303);

    // If the claims no longer contain a role, the next sign-in is refused and ends the session.
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": []}));
    let before = browser.cookie.clone();
    let refused = sign_in(&mut browser, &openid, "").await;
    assert_eq!(refused.status, 403);
    assert!(reason(&refused).contains("no role"), "{}", reason(&refused));
    // Persons whom the provider has verified are not limited, because many may share an address.
    for _ in 0..40 {
        assert_eq!(sign_in(&mut browser, &openid, "").await.status, 403);
    }
    assert_eq!(browser.cookie, before);
    assert_eq!(browser.get("/console/").await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_is_worded_and_signs_nobody_in() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["penstock-admin"]}));
    let mut browser = Browser::new(&running);
    let scripts = [
        (TokenScript::OtherNonce, 401, "another sign-in"),
        (TokenScript::OtherAudience, 401, "another application"),
        (TokenScript::OtherIssuer, 401, "another issuer"),
        (TokenScript::Expired, 401, "expired"),
    ];
    check_scripts(&mut browser, &openid, &scripts).await;
    assert!(audit(&running).await.iter().all(|row| row["target"] != "ada"));
    openid.script(TokenScript::Good);
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200, "a success clears the failed attempts");
    browser.cookie.clear();
    let scripts = [
        (TokenScript::Unsigned, 401, "not signed"),
        (TokenScript::OtherKey, 401, "signature"),
        (TokenScript::NoToken, 401, "no ID token"),
        (TokenScript::Huge, 503, "does not answer as it should"),
    ];
    check_scripts(&mut browser, &openid, &scripts).await;
    openid.script(TokenScript::Good);
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    browser.cookie.clear();
    let scripts = [
        (TokenScript::Status(500), 503, "answers with an error"),
        (TokenScript::Status(302), 503, "answers with an error"),
        (TokenScript::Broken, 503, "does not answer as it should"),
    ];
    check_scripts(&mut browser, &openid, &scripts).await;
    for _ in 0..30 {
        sign_in(&mut browser, &openid, "").await;
    }
    let limited = sign_in(&mut browser, &openid, "").await;
    assert_eq!((limited.status, reason(&limited).contains("too many attempts")), (429, true));
}

async fn check_scripts(browser: &mut Browser, openid: &OpenIdServer, scripts: &[(TokenScript, u16, &str)]) {
    for (script, status, words) in scripts {
        openid.script(*script);
        let refused = sign_in(browser, openid, "").await;
        assert_eq!(refused.status, *status, "{script:?}: {}", refused.text());
        assert!(reason(&refused).contains(words), "{script:?}: {}", reason(&refused));
        assert!(browser.cookie.is_empty(), "{script:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_of_the_browser_and_the_request_and_is_accepted_once() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["penstock-admin"]}));
    let browser = Browser::new(&running);
    let (path, cookie) = begin(&browser, &openid, "").await;
    let (other_path, other_cookie) = begin(&browser, &openid, "").await;
    let get =
        async |path: &str, cookie: &str| browser.site.send("GET", path, &[("cookie", cookie)], b"").await;
    for (path, cookie) in [
        (path.as_str(), ""),
        (&path, other_cookie.as_str()),
        (&other_path, &cookie),
        ("/console/sign-in/openid/return", &cookie),
        ("/console/sign-in/openid/return?code=code-0&state=", &cookie),
        (&path, &format!("{cookie}A")),
        // A cookie of the console is not valid at the dashboard.
        (&path, &cookie.replace("penstock_session", "penstock_dashboard")),
    ] {
        let refused = get(path, cookie).await;
        assert_eq!(refused.status, 400, "{path} {cookie}");
        assert!(reason(&refused).contains("not begun in this browser"));
    }
    let issuer = get(&format!("{path}&iss=https%3A%2F%2Fevil.example"), &cookie).await;
    assert_eq!((issuer.status, reason(&issuer).contains("another issuer")), (401, true));
    let denied = get(&path.replace("code=", "error=access_denied&x="), &cookie).await;
    assert_eq!((denied.status, reason(&denied).contains("did not sign you in")), (401, true));
    assert!(!denied.text().contains("access_denied"));
    assert_eq!(get(&path, &cookie).await.status, 200);
    let replayed = get(&path, &cookie).await;
    assert_eq!(replayed.status, 401);
    assert!(reason(&replayed).contains("used before"), "{}", reason(&replayed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_holders_come_by_a_claim_or_an_invitation() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    let admin = running.admin();
    admin.post("/admin/accounts", &json!({"id": "acme"})).await;
    let mut browser = Browser::at_dashboard(&running);
    for (claims, words) in [
        (json!({"sub": "2", "preferred_username": "eve", "roles": ["penstock-account"]}), "names no account"),
        (
            json!({"sub": "2", "preferred_username": "eve", "roles": ["penstock-account"], "account": "x"}),
            "does not exist",
        ),
        (
            json!({"sub": "2", "preferred_username": "e v e", "roles": ["penstock-account"], "account": "acme"}),
            "no name",
        ),
        (
            json!({"sub": "3", "preferred_username": "ops", "roles": ["penstock-operator"]}),
            "operators' console",
        ),
    ] {
        openid.person(claims);
        let refused = sign_in(&mut browser, &openid, "").await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(reason(&refused).replace("&#39;", "'").contains(words), "{}", reason(&refused));
    }
    openid.person(
        json!({"sub": "2", "preferred_username": "eve", "roles": ["penstock-account"], "account": "acme"}),
    );
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    assert!(browser.get("/dashboard/").await.text().contains("eve (account)"));

    // A user whose claims have no role, but who has an invitation.
    let invited = json!({"name": "zoe", "role": "account", "account": "acme"});
    let token = admin.post("/admin/users", &invited).await.json()["invitation"].as_str().unwrap().to_owned();
    let page = browser.get(&format!("/dashboard/invitation/{token}")).await.text();
    let query = format!("?invitation={token}");
    assert!(page.contains(&format!("/dashboard/sign-in/openid{query}")), "{page}");
    openid.person(json!({"sub": "4"}));
    let mut guest = Browser::at_dashboard(&running);
    assert_eq!(sign_in(&mut guest, &openid, "").await.status, 403);
    assert_eq!(sign_in(&mut guest, &openid, &query).await.status, 200);
    assert!(guest.get("/dashboard/").await.text().contains("zoe (account)"));
    let used = sign_in(&mut Browser::at_dashboard(&running), &openid, &query).await;
    assert_eq!((used.status, reason(&used).contains("You are the user zoe already")), (409, true));
    openid.person(json!({"sub": "5"}));
    let used = sign_in(&mut Browser::at_dashboard(&running), &openid, &query).await;
    assert_eq!((used.status, reason(&used).contains("was used or has expired")), (409, true));
    // From then on the invited user signs in without the invitation, with the same role, whatever role the claims
    // contain.
    openid.person(json!({"sub": "4", "roles": ["penstock-admin"]}));
    assert_eq!(sign_in(&mut guest, &openid, "").await.status, 200);
    assert!(guest.get("/dashboard/").await.text().contains("zoe (account)"));

    // After the sign-out, the page links to the logout page of the provider, which ends the provider's own session.
    let token = guest.token("/dashboard/").await;
    let out = guest.post("/dashboard/sign-out", &[("form_token", &token)]).await;
    assert_eq!(out.status, 200);
    let link = format!("{}/logout?client_id=penstock&amp;post_logout_redirect_uri=", openid.issuer);
    assert!(out.text().replace("&#38;", "&amp;").contains(&link), "{}", out.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_the_claims_takes_no_other_users_name() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    let _local = signed_in(&running, "ada", "viewer").await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["penstock-admin"]}));
    let mut browser = Browser::new(&running);
    let refused = sign_in(&mut browser, &openid, "").await;
    assert_eq!(refused.status, 409);
    assert!(reason(&refused).contains("belongs to another user"));
    openid.person(json!({"sub": "1", "preferred_username": "ada2", "roles": ["penstock-admin"]}));
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    openid.person(json!({"sub": "9", "preferred_username": "ada2", "roles": ["penstock-admin"]}));
    assert_eq!(sign_in(&mut Browser::new(&running), &openid, "").await.status, 409);
    let _other_admin = signed_in(&running, "bob", "admin").await;
    let body = json!({"disabled": "true"}).to_string();
    running.admin().send("PATCH", "/admin/users/ada2", &[], body.as_bytes()).await;
    openid.person(json!({"sub": "1", "roles": ["penstock-admin"]}));
    let refused = sign_in(&mut browser, &openid, "").await;
    assert_eq!((refused.status, reason(&refused).contains("disabled")), (403, true));
    assert_eq!(browser.get("/console/").await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_keys_are_read_and_a_provider_that_is_away_is_named() {
    let openid = OpenIdServer::start().await;
    let (_provider, running) = bench(&openid.settings()).await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["penstock-admin"]}));
    let mut browser = Browser::new(&running);
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    openid.rotate("second");
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200, "the new key is read");
    openid.rotate("third");
    let refused = sign_in(&mut browser, &openid, "").await;
    assert_eq!(refused.status, 401, "keys are not read for every token");
    assert!(reason(&refused).contains("unknown key"));
    let (path, cookie) = begin(&browser, &openid, "").await;
    drop(openid);
    let away = browser.site.send("GET", &path, &[("cookie", &cookie)], b"").await;
    assert_eq!(away.status, 503);
    assert!(reason(&away).contains("does not answer"));
    let nobody = OpenIdServer::start().await;
    let settings = nobody.settings();
    drop(nobody);
    let (_provider, running) = bench(&settings).await;
    let away = Browser::new(&running).get("/console/sign-in/openid").await;
    assert_eq!((away.status, reason(&away).contains("does not answer")), (503, true));
    assert_eq!(Browser::new(&running).get("/console/sign-in").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_under_a_private_root_is_verified_by_it() {
    let certified = TestCertificate::make();
    let openid = OpenIdServer::start_tls(&certified).await;
    openid.person(json!({"sub": "1", "preferred_username": "ada", "roles": ["penstock-admin"]}));
    let (_provider, running) = bench(&format!("{}ca = {:?}\n", openid.settings(), certified.root)).await;
    let mut browser = Browser::new(&running);
    assert_eq!(sign_in(&mut browser, &openid, "").await.status, 200);
    let other = TestCertificate::make();
    let (_provider, running) = bench(&format!("{}ca = {:?}\n", openid.settings(), other.root)).await;
    assert_eq!(Browser::new(&running).get("/console/sign-in/openid").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_provider_nothing_of_it_exists() {
    let (_provider, running) = bench("").await;
    let browser = Browser::new(&running);
    assert!(!browser.get("/console/sign-in").await.text().contains("openid"));
    for path in ["sign-in/openid", "sign-in/openid/return?code=a&state=b"] {
        assert_eq!(browser.get(&format!("/console/{path}")).await.status, 404, "{path}");
    }
}

#[test]
fn mistakes_in_the_settings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mistakes = |lines: &str| -> Vec<String> {
        let base = "[console.oidc]\nissuer = \"https://login.example.eu\"\nclient_id = \"penstock\"\n";
        let text = Bench::new().settings(&format!("{base}{lines}\n")).toml(folder.path());
        let text = if lines.starts_with("issuer") {
            text.replace("issuer = \"https://login.example.eu\"\n", "")
        } else {
            text
        };
        let env = |name: &str| (name == "SECRET").then(|| "s3cret".to_owned());
        match load_text("test.toml", &text, ResolveEnv { env: &env }) {
            Ok(_) => Vec::new(),
            Err(report) => report.mistakes.iter().map(ToString::to_string).collect(),
        }
    };
    assert_eq!(mistakes("client_secret = { env = \"SECRET\" }"), Vec::<String>::new());
    assert_eq!(mistakes("issuer = \"http://localhost:9000\""), Vec::<String>::new());
    for (lines, key) in [
        ("issuer = \"http://login.example.eu\"", "console.oidc.issuer"),
        ("issuer = \"https://a:b@login.example.eu\"", "console.oidc.issuer"),
        ("client_secret = { env = \"OTHER\" }", "console.oidc.client_secret"),
        ("ca = \"missing.pem\"", "console.oidc.ca"),
        ("scopes = [\"profile email\"]", "console.oidc.scopes"),
        ("operators_url = \"https://ops.example.eu/console\"", "console.oidc.operators_url"),
        ("roles = { admin = [\"staff\"], viewer = [\"staff\"] }", "console.oidc.roles.viewer"),
        ("roles = { admin = [\"\"] }", "console.oidc.roles.admin"),
        ("nonsense = 1", "nonsense"),
    ] {
        let found = mistakes(lines);
        assert!(found.len() == 1 && found[0].contains(key), "{lines}: {found:?}");
        assert!(!found[0].contains("a:b") && !found[0].contains("s3cret"), "{found:?}");
    }
}
