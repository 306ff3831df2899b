//! Forms that change accounts and users over real sockets, and downloads of files by account holders.

use crate::billing::entries;
use crate::harness::batch_jobs::{line, uploaded};
use crate::harness::browser::{Browser, between, holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let settings = "[console]\nlisten = \"127.0.0.1:0\"\n";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    for account in ["acme", "other"] {
        running.admin().post("/admin/accounts", &json!({"id": account, "name": "Acme"})).await;
    }
    (provider, running)
}

async fn audited(running: &Running, target: &str) -> Vec<String> {
    let log = running.admin().get(&format!("/admin/audit?target={target}")).await.json();
    log["data"].as_array().unwrap().iter().map(|row| format!("{} {}", row["what"], row["change"])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_changed_suspended_and_resumed() {
    let (_provider, running) = bench().await;
    let client = running.key(&json!({"account": "acme", "scopes": ["*"]})).await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    let page = "/console/accounts/acme";
    let token = ada.token(page).await;
    let fields = [
        ("form_token", token.as_str()),
        ("name", "Acme SE"),
        ("requests_per_minute", "500"),
        ("budget_per_month", "12.5"),
    ];
    let changed = ada.post(&format!("{page}/change"), &fields).await;
    assert!(changed.status == 200 && changed.text().contains("was changed"), "{}", changed.text());
    let stored = running.admin().get("/admin/accounts/acme").await.json();
    assert_eq!((&stored["name"], &stored["limits"]["requests_per_minute"]), (&json!("Acme SE"), &json!(500)));
    assert_eq!(stored["limits"]["tokens_per_minute"], Value::Null);
    let refused = ada
        .post(&format!("{page}/change"), &[("form_token", &token), ("name", "n"), ("concurrent", "many")])
        .await;
    assert_eq!(refused.status, 400);
    let text = refused.text();
    assert!(text.contains("id=\"error-concurrent\"") && text.contains("value=\"many\""), "{text}");
    let suspended = ada.confirm(&format!("{page}/suspend"), &[("form_token", &token)]).await;
    assert!(
        suspended.text().contains("is suspended") && suspended.text().contains("/resume"),
        "{}",
        suspended.text()
    );
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 401);
    let resumed = ada.post(&format!("{page}/resume"), &[("form_token", &token)]).await;
    assert!(resumed.text().contains("is active"), "{}", resumed.text());
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
    let log = audited(&running, "acme").await;
    assert_eq!(log.iter().filter(|row| row.starts_with("\"account.change\"")).count(), 3, "{log:?}");
    let mut fin = signed_in(&running, "fin", "finance").await;
    let token = fin.token(page).await;
    for form in ["change", "suspend", "resume"] {
        let refused =
            fin.post(&format!("{page}/{form}"), &[("form_token", &token), ("confirmed", "yes")]).await;
        assert_eq!(refused.status, 403, "{form}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_confirmed_and_its_message_has_the_amount() {
    let (_provider, running) = bench().await;
    running.key(&json!({"account": "acme", "scopes": ["*"]})).await;
    let mut fin = signed_in(&running, "fin", "finance").await;
    let token = fin.token("/console/accounts/acme").await;
    let form =
        |credits| [("form_token", token.as_str()), ("id", "g1"), ("credits", credits), ("note", "gift")];
    let refused = fin.post("/console/accounts/acme/grant", &form("0.0000001")).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("value=\"0.0000001\"") && refused.text().contains("at most 6 decimals"));
    let asked = fin.post("/console/accounts/acme/grant", &form("1 000.5")).await;
    let question = fin.get(asked.header("location").unwrap()).await.text();
    assert!(question.contains("Grant 1\u{202f}000.5\u{202f}credits to the account acme?"), "{question}");
    let balance =
        || async { running.admin().get("/admin/credits?account=acme").await.json()["data"].clone() };
    let before = balance().await[0]["credits"]["balance"].as_f64();
    assert_eq!(before, Some(0.0), "nothing is granted before the confirmation");
    let granted = fin.confirm("/console/accounts/acme/grant", &form("1 000.5")).await.text();
    assert!(granted.contains("The account acme received 1000.5 credits by entry"), "{granted}");
    assert_eq!(balance().await[0]["credits"]["balance"].as_f64(), Some(1000.5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_is_corrected_with_a_reason_on_the_page_of_its_account() {
    let (_provider, running) = bench().await;
    let client = running.key(&json!({"account": "acme", "scopes": ["*"]})).await;
    let granted = json!({"account": "acme", "credits": "10"});
    let entry = running.admin().post("/admin/credits/grant", &granted).await.json()["entry"].to_string();
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
    let all = entries(&running).await;
    let charge = all.iter().find(|entry| entry["act"] == "settle").unwrap()["seq"].to_string();
    let mut fin = signed_in(&running, "fin", "finance").await;
    let page = "/console/accounts/acme";
    let token = fin.token(page).await;
    let balance = || async {
        running.admin().get("/admin/credits?account=acme").await.json()["data"][0]["credits"]["balance"]
            .as_f64()
    };
    let correct = |entry: &str, amount: &'static str, id: &'static str| {
        [
            ("form_token", token.clone()),
            ("id", id.to_owned()),
            ("entry", entry.to_owned()),
            ("credits", amount.to_owned()),
            ("wallet", "credits".to_owned()),
            ("note", "agreed".to_owned()),
        ]
    };
    let send = async |fin: &mut Browser, account: &str, form: [(&str, String); 6]| {
        let mut form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let path = format!("/console/accounts/{account}/correct");
        let question = fin.post(&path, &form).await;
        let Some(link) = question.header("location").filter(|link| link.contains("/correct?")) else {
            return (question, String::new());
        };
        let page = fin.get(link).await.text();
        form.push(("confirmed", "yes"));
        if page.contains("name=\"increase\" value=\"true\"") {
            form.push(("increase", "true"));
        }
        (fin.post(&path, &form).await, page)
    };
    let (lowered, question) = send(&mut fin, "acme", correct(&entry, "4", "one")).await;
    for shown in ["Correct the entry", "10\u{202f}credits", "4\u{202f}credits", "-6\u{202f}credits"] {
        assert!(question.contains(shown), "{shown}: {question}");
    }
    assert!(!question.contains("name=\"increase\""), "{question}");
    assert!(lowered.status == 200 && lowered.text().contains("was corrected by entry"), "{}", lowered.text());
    let (refunded, _) = send(&mut fin, "acme", correct(&charge, "0", "two")).await;
    assert_eq!(refunded.status, 200, "{}", refunded.text());
    assert_eq!(balance().await, Some(4.0), "the charge is cancelled, and the grant is 4");
    let (again, _) = send(&mut fin, "acme", correct(&entry, "5", "three")).await;
    assert_eq!(again.status, 409, "{}", again.text());
    let error = between(&again.text(), "id=\"error-entry\">", "<");
    assert!(error.contains("was corrected before") && !again.text().contains("stored version"), "{error}");
    for (account, entry, amount, field) in [
        ("other", &*entry, "1", "entry"),
        ("acme", "nonsense", "1", "entry"),
        ("acme", &*charge, "-1", "credits"),
    ] {
        let (refused, _) = send(&mut fin, account, correct(entry, amount, "four")).await;
        assert_eq!(refused.status, 400, "{account} {entry} {amount}: {}", refused.text());
        assert!(refused.text().contains(&format!("id=\"error-{field}\"")), "{}", refused.text());
    }
    assert_eq!(balance().await, Some(4.0));
    let written = entries(&running).await;
    let corrections: Vec<&Value> = written.iter().filter(|entry| entry["act"] == "correct").collect();
    assert!(
        corrections.len() == 2 && corrections.iter().all(|entry| entry["why"] == "agreed"),
        "{corrections:?}"
    );
    assert!(corrections[0]["by"].as_str().unwrap().starts_with("fin"), "{corrections:?}");
    let log = audited(&running, "acme").await;
    let grants = log.iter().filter(|row| row.starts_with("\"credits.grant\"")).count();
    let corrected: Vec<&String> = log.iter().filter(|row| row.starts_with("\"credits.correct\"")).collect();
    assert!(grants == 1 && corrected.len() == 2, "{log:?}");
    assert!(corrected[0].contains("\"credits\":[\"10\",\"4\"]"), "{corrected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_above_the_amount_of_its_entry_needs_an_explicit_consent() {
    let (_provider, running) = bench().await;
    let granted = json!({"account": "acme", "credits": "10"});
    let entry = running.admin().post("/admin/credits/grant", &granted).await.json()["entry"].clone();
    let preview =
        running.admin().get(&format!("/admin/credits/correction?entry={entry}&credits=12")).await.json();
    assert_eq!(
        preview,
        json!({"entry": entry, "account": "acme", "what": "grant", "wallet": "credits", "previous": "10",
            "new": "12", "difference": "2", "is_increase": true})
    );
    let mut body = json!({"entry": entry, "credits": "12"});
    let refused = running.admin().post("/admin/credits/correct", &body).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("credits")));
    assert!(!audited(&running, "acme").await.iter().any(|row| row.starts_with("\"credits.correct\"")));
    let fin = signed_in(&running, "fin", "finance").await;
    let question = fin
        .get(&format!("/console/accounts/acme/correct?entry={entry}&credits=12&wallet=credits"))
        .await
        .text();
    assert!(question.contains("name=\"increase\" value=\"true\""), "{question}");
    assert!(question.contains("above that of the grant"), "{question}");
    body["increase"] = json!(true);
    assert_eq!(running.admin().post("/admin/credits/correct", &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_of_a_user_is_changed_by_an_administrator() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    let vic = signed_in(&running, "vic", "viewer").await;
    holder(&running, "eve", "acme").await;
    let token = ada.token("/console/users/vic").await;
    let form = |role: &'static str| [("form_token", token.clone()), ("role", role.to_owned())];
    let send = async |ada: &mut Browser, user: &str, form: [(&str, String); 2]| {
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        ada.post(&format!("/console/users/{user}/role"), &form).await
    };
    let changed = send(&mut ada, "vic", form("operator")).await;
    assert!(changed.status == 200 && changed.text().contains("has the role operator"), "{}", changed.text());
    assert_eq!(vic.get("/console/").await.status, 303, "the sessions of the user ended");
    assert!(audited(&running, "vic").await.iter().any(|row| row.contains("\"role\":\"operator\"")));
    for (user, role, status) in
        [("ada", "viewer", 409), ("eve", "admin", 400), ("vic", "account", 400), ("vic", "king", 400)]
    {
        let refused = send(&mut ada, user, form(role)).await;
        assert_eq!(refused.status, status, "{user} {role}: {}", refused.text());
    }
    let page = ada.get("/console/users/eve").await.text();
    assert!(page.contains("Account holder") && !page.contains("value=\"admin\""), "{page}");
    assert_eq!(ada.get("/console/users/nobody").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_an_account_or_a_user_that_another_person_changed_meanwhile_is_refused() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    signed_in(&running, "vic", "viewer").await;
    let patch = async |path: &str, body: Value| {
        running.admin().send("PATCH", path, &[], body.to_string().as_bytes()).await.status
    };
    for (page, form, path, mine, other, beside) in [
        (
            "/console/accounts/acme",
            "change",
            "/admin/accounts/acme",
            ("name", "Mine"),
            json!({"limits": {"requests_per_minute": 7}}),
            ("requests_per_minute", "has 7 here now"),
        ),
        (
            "/console/users/vic",
            "role",
            "/admin/users/vic",
            ("role", "operator"),
            json!({"role": "finance"}),
            ("role", "has Finance here now"),
        ),
    ] {
        let text = ada.get(page).await.text();
        let token = between(&text, "name=\"form_token\" value=\"", "\"");
        let version = between(&text, "name=\"version\" value=\"", "\"");
        let mut known = other.clone();
        known["version"] = version.as_str().into();
        assert_eq!((patch(path, known.clone()).await, patch(path, known).await), (200, 409), "{path}");
        let fields = [("form_token", token.as_str()), ("version", &version), mine];
        let refused = ada.post(&format!("{page}/{form}"), &fields).await;
        assert_eq!(refused.status, 409, "{}", refused.text());
        let text = refused.text();
        assert!(text.contains("was changed by another request since it was read"), "{text}");
        let (field, expected) = beside;
        let error = between(&text, &format!("id=\"error-{field}\">"), "<");
        assert!(error.contains(expected), "{error}");
        let version = between(&text, "name=\"version\" value=\"", "\"");
        let fields = [("form_token", token.as_str()), ("version", &version), mine];
        assert_eq!(ada.post(&format!("{page}/{form}"), &fields).await.status, 200, "{page}");
    }
    let stored = running.admin().get("/admin/accounts/acme").await.json();
    assert_eq!((&stored["name"], &stored["limits"]["requests_per_minute"]), (&json!("Mine"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_used_is_refused_beside_its_field() {
    let (_provider, running) = bench().await;
    let mut ada = signed_in(&running, "ada", "admin").await;
    let token = ada.token("/console/users").await;
    for (path, form, field, expected) in [
        ("/console/users", [("name", "ada"), ("role", "viewer")], "name", "a user with this name already"),
        ("/console/accounts", [("id", "acme"), ("name", "x")], "id", "an account with this id already"),
    ] {
        let fields: Vec<(&str, &str)> = form.into_iter().chain([("form_token", &*token)]).collect();
        let refused = ada.post(path, &fields).await;
        assert_eq!(refused.status, 409, "{path}");
        let text = refused.text();
        let error = between(&text, &format!("id=\"error-{field}\">"), "<");
        assert!(error.contains(expected) && !text.contains("stored version"), "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_downloaded_by_its_account_holder_only() {
    let (_provider, running) = bench().await;
    let client = running.key(&json!({"account": "acme", "scopes": ["*"]})).await;
    // Larger than one piece.
    let text: String =
        (0..9_000).map(|number| line(&format!("id-{number}"), "Hi <b>there</b>") + "\n").collect();
    assert!(text.len() > 600_000);
    let file = uploaded(&client, &text).await;
    let ada = holder(&running, "ada", "acme").await;
    let answer = ada.get(&format!("/dashboard/files/{file}/content")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/jsonl")), "{file}");
    assert!(answer.header("content-disposition").unwrap().starts_with("attachment; filename=\""));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("cache-control").unwrap().contains("no-store"));
    assert!(answer.text() == text, "{} of {} bytes", answer.text().len(), text.len());
    let list = ada.get("/dashboard/files").await.text();
    assert_eq!(between(&list, "href=\"/dashboard/files/", "/content"), file);
    let other = holder(&running, "eve", "other").await;
    assert_eq!(other.get(&format!("/dashboard/files/{file}/content")).await.status, 404);
    let path = format!("/v1/files/{file}");
    assert_eq!(client.send("DELETE", &path, &[], b"").await.status, 200);
    assert_eq!(ada.get(&format!("/dashboard/files/{file}/content")).await.status, 404);
}
