//! Management of accounts and keys over the admin listener: atomic, audited, and in force from the next request on.

use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, sse, text};
use crate::harness::{Answer, Bench, Client, Provider, within};
use penstock::auth::key_cache::KeyCache;
use penstock_storage::audit::AuditLog;
use penstock_storage::keys::{KeyDigest, PreviousSecret};
use penstock_storage::{StoreTable, Transaction};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

async fn patch(admin: &Client, path: &str, body: &Value) -> Answer {
    admin.send("PATCH", path, &[], body.to_string().as_bytes()).await
}

fn client(running: &Running, made: &Value) -> (Client, String) {
    let key = made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let path = format!("/admin/keys/{}", made["id"].as_str().unwrap());
    (Client { address: running.client.address, key }, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_made_listed_changed_and_suspended() {
    let (provider, running) = bench().await;
    let admin = running.admin();
    let wanted = json!({"id": "acme", "name": "ACME GmbH", "limits": {"tokens_per_minute": 9_000, "budget_per_month": 12.5}});
    let made = admin.post("/admin/accounts", &wanted).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let shown = admin.get("/admin/accounts/acme").await.json();
    assert_eq!((&shown["name"], &shown["state"]), (&json!("ACME GmbH"), &json!("active")));
    assert_eq!(shown["limits"]["budget_per_month"], "12.5");
    assert_eq!(shown["limits"]["requests_per_minute"], Value::Null);
    let again = admin.post("/admin/accounts", &json!({"id": "acme"})).await;
    assert_eq!((again.status, again.json()["error"]["param"].as_str()), (409, Some("id")));
    let list = admin.get("/admin/accounts").await.json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["acme", "default"]);
    let changed = patch(
        &admin,
        "/admin/accounts/acme",
        &json!({"name": "ACME", "limits": {"tokens_per_minute": null, "concurrent": 3}}),
    )
    .await
    .json();
    assert_eq!((&changed["name"], &changed["limits"]["tokens_per_minute"]), (&json!("ACME"), &Value::Null));
    assert_eq!(
        (&changed["limits"]["concurrent"], &changed["limits"]["budget_per_month"]),
        (&json!(3), &json!("12.5"))
    );
    assert_eq!(patch(&admin, "/admin/accounts/nobody", &json!({"name": "x"})).await.status, 404);
    let made = admin.post("/admin/keys", &json!({"account": "acme"})).await.json();
    let (key, _) = client(&running, &made);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(patch(&admin, "/admin/accounts/acme", &json!({"state": "suspended"})).await.status, 200);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 401);
    assert_eq!(running.chat().await.status, 200, "other accounts go on");
    assert_eq!(patch(&admin, "/admin/accounts/acme", &json!({"state": "active"})).await.status, 200);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(provider.calls(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspending_an_account_ends_the_streams_of_its_keys_with_an_error() {
    let (provider, running) = bench().await;
    let admin = running.admin();
    admin.post("/admin/accounts", &json!({"id": "acme"})).await;
    let (key, _) = client(&running, &admin.post("/admin/keys", &json!({"account": "acme"})).await.json());
    provider.then(vec![sse(), text("Begun"), ScriptStep::Hang]);
    let mut open = key.stream_until(CHAT, &running.ask_stream(), "Begun").await;
    patch(&admin, "/admin/accounts/acme", &json!({"state": "suspended"})).await;
    let answer = within("the stream to be cut", open.finish()).await;
    assert!(answer.text().contains("AUTH_1001"), "{}", answer.text());
    provider.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_permissions_of_a_key_apply_to_the_next_request() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let (key, path) = client(&running, &admin.post("/admin/keys", &json!({"name": "first"})).await.json());
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    let changed =
        patch(&admin, &path, &json!({"name": "second", "scopes": ["inference.models"]})).await.json();
    assert_eq!((&changed["name"], &changed["scopes"]), (&json!("second"), &json!(["inference.models"])));
    let refused = key.post(CHAT, &running.ask()).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["required_scope"]),
        (403, &json!("inference.chat"))
    );
    let changed = patch(&admin, &path, &json!({"scopes": null, "models": ["other"]})).await.json();
    assert_eq!(changed["warnings"], json!(["models: other matches no model of the catalogue."]));
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 403);
    patch(&admin, &path, &json!({"models": null})).await;
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    let now = running.gateway.app.clock.unix_seconds();
    let changed = patch(&admin, &path, &json!({"expires": now + 1_000})).await.json();
    assert_eq!(changed["expires"], now + 1_000);
    assert!(admin.get(&path).await.json()["last_used"].as_u64().unwrap() <= now + 60);
    assert_eq!(patch(&admin, "/admin/keys/0123456789abcdef", &json!({"name": "x"})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_has_two_secrets_for_a_while() {
    let (provider, running) = bench().await;
    let admin = running.admin();
    let wanted = json!({"limits": {"requests_per_minute": 400}});
    let (old, path) = client(&running, &admin.post("/admin/keys", &wanted).await.json());
    assert_eq!(old.post(CHAT, &running.ask()).await.status, 200);
    let rotated = admin.post(&format!("{path}/rotate"), &json!({"overlap_seconds": 3_600})).await.json();
    let (new, same) = client(&running, &rotated);
    assert_eq!((same, &rotated["limits"]["requests_per_minute"]), (path.clone(), &json!(400)));
    assert_ne!(new.key, old.key);
    let now = running.gateway.app.clock.unix_seconds();
    assert!((now + 3_500..=now + 3_600).contains(&rotated["previous_good_until"].as_u64().unwrap()));
    for key in [&old, &new] {
        assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    }
    // The limits belong to the key, so the old and the new secret share them.
    assert_eq!(new.post(CHAT, &running.ask()).await.header("x-ratelimit-limit-requests"), Some("400"));
    let grant = running.gateway.app.key_cache.find_principal(rotated["id"].as_str().unwrap()).unwrap();
    assert_eq!(grant.limiter().admitted_request_count(), 4);
    // After a rotation without an overlap, both earlier secrets are invalid at once.
    let (newest, _) =
        client(&running, &admin.post(&format!("{path}/rotate"), &json!({"overlap_seconds": 0})).await.json());
    for key in [&old, &new] {
        assert_eq!(key.post(CHAT, &running.ask()).await.status, 401);
    }
    assert_eq!(newest.post(CHAT, &running.ask()).await.status, 200);
    let refused = admin.post(&format!("{path}/rotate"), &json!({"overlap_seconds": 604_801})).await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("overlap_seconds")));
    admin.post(&format!("{path}/revoke"), &json!({})).await;
    assert_eq!(admin.post(&format!("{path}/rotate"), &json!({})).await.status, 409);
    assert_eq!(provider.calls(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_names_its_field_and_changes_nothing() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    admin.post("/admin/accounts", &json!({"id": "acme"})).await;
    let (_, path) = client(&running, &admin.post("/admin/keys", &json!({"name": "kept"})).await.json());
    let before = (admin.get("/admin/keys").await.text(), admin.get("/admin/accounts").await.text());
    let entries = AuditLog::new(running.gateway.app.stores.store.clone()).last_entry_number().unwrap();
    let past = running.gateway.app.clock.unix_seconds() - 1;
    let limits = |limit: Value| json!({ "limits": limit });
    let both = [
        (limits(json!({"requests_per_minute": 0})), "limits.requests_per_minute"),
        (limits(json!({"requests_per_minute": -5})), "limits.requests_per_minute"),
        (limits(json!({"tokens_per_minute": 1.5})), "limits.tokens_per_minute"),
        (limits(json!({"tokens_per_minute": "many"})), "limits.tokens_per_minute"),
        (limits(json!({"concurrent": 0})), "limits.concurrent"),
        (limits(json!({"budget_per_day": 0})), "limits.budget_per_day"),
        (limits(json!({"budget_per_day": "-1"})), "limits.budget_per_day"),
        (limits(json!({"budget_per_month": "1.0000001"})), "limits.budget_per_month"),
        (limits(json!({"budget_per_month": 0.000_000_1})), "limits.budget_per_month"),
        (limits(json!({"budget_per_month": "99999999999999"})), "limits.budget_per_month"),
        (limits(json!({"budget_per_month": true})), "limits.budget_per_month"),
        (limits(json!({"requests_per_hour": 5})), "limits.requests_per_hour"),
        (limits(json!(5)), "limits"),
        (json!({"name": 5}), "name"),
        (json!({"name": "two\nlines"}), "name"),
        (json!({"name": "x".repeat(201)}), "name"),
        (json!({"colour": "blue"}), "colour"),
    ];
    let keys = [
        (json!({"scopes": ["inference.chess"]}), "scopes"),
        (json!({"scopes": "inference.chat"}), "scopes"),
        (json!({"models": [5]}), "models"),
        (json!({"models": ["two\nlines"]}), "models"),
        (json!({"models": vec!["x".repeat(200); 100]}), "models"),
        (json!({"expires": past}), "expires"),
        (json!({"expires": "tomorrow"}), "expires"),
        (json!({"expires": -1}), "expires"),
    ];
    for (body, field) in both.iter().chain(&keys) {
        for answer in [admin.post("/admin/keys", body).await, patch(&admin, &path, body).await] {
            assert_eq!(
                (answer.status, answer.json()["error"]["param"].as_str()),
                (400, Some(*field)),
                "{body}"
            );
        }
    }
    for (body, field) in &both {
        let mut new = body.clone();
        new["id"] = json!("fresh");
        let answers =
            [admin.post("/admin/accounts", &new).await, patch(&admin, "/admin/accounts/acme", body).await];
        for answer in answers {
            assert_eq!(
                (answer.status, answer.json()["error"]["param"].as_str()),
                (400, Some(*field)),
                "{body}"
            );
        }
    }
    let others = [
        ("/admin/keys", json!({"account": "nobody"}), "account"),
        ("/admin/accounts", json!({"name": "no id"}), "id"),
        ("/admin/accounts", json!({"id": "has space"}), "id"),
        ("/admin/accounts", json!({"id": ""}), "id"),
    ];
    for (path, body, field) in others {
        let answer = admin.post(path, &body).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some(field)), "{body}");
    }
    let state = patch(&admin, "/admin/accounts/acme", &json!({"state": "happy"})).await;
    assert_eq!((state.status, state.json()["error"]["param"].as_str()), (400, Some("state")));
    for (path, field) in
        [("/admin/keys?limit=0", "limit"), ("/admin/keys?page=2", "page"), ("/admin/audit?after=x", "after")]
    {
        let answer = admin.get(path).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some(field)), "{path}");
    }
    assert_eq!(admin.send("POST", "/admin/keys", &[], b"{").await.status, 400);
    assert_eq!(admin.send("DELETE", &path, &[], b"").await.status, 405);
    let after = (admin.get("/admin/keys").await.text(), admin.get("/admin/accounts").await.text());
    assert_eq!(before, after, "nothing was done, not even half");
    assert_eq!(AuditLog::new(running.gateway.app.stores.store.clone()).last_entry_number().unwrap(), entries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_admin_tokens_have_a_separate_rate_limit() {
    let (_provider, running) = bench().await;
    let unauthorized = Client { address: running.gateway.admin_address, key: "guess".to_owned() };
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(unauthorized.get("/admin/keys").await);
    }
    assert!(answers[..10].iter().all(|answer| answer.status == 401));
    let limited = answers.iter().find(|answer| answer.status == 429).expect("40 in a row are too many");
    assert!((1..=6).contains(&limited.header("retry-after").unwrap().parse::<u64>().unwrap()));
    assert_eq!(running.admin().get("/admin/keys").await.status, 200, "the right one is never kept waiting");
    assert!(answers.iter().all(|answer| !answer.text().contains(&*running.gateway.app.stores.admin_token)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_audited_with_actor_and_subject_and_without_secrets() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    admin.post("/admin/accounts", &json!({"id": "acme", "name": "ACME"})).await;
    let named = [("x-penstock-actor", "cli:alice")];
    let made = admin.send("POST", "/admin/keys", &named, br#"{"account":"acme","name":"CI"}"#).await.json();
    let (key, path) = client(&running, &made);
    let id = made["id"].as_str().unwrap();
    patch(&admin, &path, &json!({"limits": {"requests_per_minute": 7}})).await;
    patch(&admin, &path, &json!({"limits": {"requests_per_minute": 7}})).await;
    let rotated = admin.post(&format!("{path}/rotate"), &json!({})).await.json();
    admin.post(&format!("{path}/revoke"), &json!({})).await;
    admin.post(&format!("{path}/revoke"), &json!({})).await;
    let log = admin.get(&format!("/admin/audit?target={id}")).await;
    let audit = log.json();
    let entries = audit["data"].as_array().unwrap();
    let what: Vec<_> = entries.iter().map(|entry| entry["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["key.create", "key.change", "key.rotate", "key.revoke"], "{audit}");
    assert!(entries[0]["who"].as_str().unwrap().starts_with("cli:alice from 127.0.0.1"));
    assert!(entries[1]["who"].as_str().unwrap().starts_with("admin from 127.0.0.1"));
    assert_eq!(entries[1]["change"], json!({"limits": {"requests_per_minute": [null, 7]}}));
    let secret = &key.key[23..];
    for hidden in [secret, &rotated["key"].as_str().unwrap()[23..], "digest", &running.admin().key] {
        assert!(!log.text().contains(hidden));
    }
    let all = admin.get("/admin/audit").await.json();
    let whole: Vec<_> = all["data"].as_array().unwrap().iter().map(|entry| entry["what"].clone()).collect();
    assert_eq!(whole[..2], ["account.create", "key.create"], "the default account and the key of the test");
    let verified = admin.get("/admin/audit/verify").await.json();
    assert_eq!((&verified["good"], verified["entries"].as_u64()), (&json!(true), Some(whole.len() as u64)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_once_leave_memory_and_store_the_same() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let (_, path) = client(&running, &admin.post("/admin/keys", &json!({})).await.json());
    let tasks: Vec<_> = (1..=24)
        .map(|most| {
            let (admin, path) = (admin.clone(), path.clone());
            let change = json!({"limits": {"requests_per_minute": most}});
            tokio::spawn(async move { patch(&admin, &path, &change).await.status })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let shown = admin.get(&path).await.json();
    let written = shown["limits"]["requests_per_minute"].as_u64().unwrap();
    assert_eq!(
        shown["now"]["requests_left"].as_u64(),
        Some(written),
        "the keyring has what was written last"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_match_nothing_are_reported() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    admin.post("/admin/accounts", &json!({"id": "empty", "limits": {"requests_per_minute": 5}})).await;
    admin.post("/admin/accounts", &json!({"id": "acme", "limits": {"requests_per_minute": 5}})).await;
    let wanted = json!({"account": "acme", "models": ["m", "gone"], "limits": {"requests_per_minute": 9}});
    let made = admin.post("/admin/keys", &wanted).await.json();
    assert_eq!(made["warnings"].as_array().map(Vec::len), Some(2), "{made}");
    let without_inference = async |scope: &str| {
        let wanted = json!({"account": "acme", "scopes": [scope], "limits": {"tokens_per_minute": 9}});
        admin.post("/admin/keys", &wanted).await.json()
    };
    let lists = without_inference("inference.models").await;
    let reads = without_inference("account.read").await;
    for made in [&lists, &reads] {
        assert!(
            made["warnings"][0].as_str().unwrap().starts_with("tokens_per_minute match nothing"),
            "{made}"
        );
    }
    let (key, _) = client(&running, &made);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    let found = admin.get("/admin/unmatched").await.json();
    let of = |kind: &str, id: &str| {
        let one = found["data"].as_array().unwrap().iter().find(|one| one[kind] == id);
        one.map_or_else(String::new, |one| one["warnings"].to_string())
    };
    assert!(of("account", "empty").contains("no key belongs to this account"), "{found}");
    assert!(of("account", "empty").contains("no request"), "{found}");
    assert_eq!(of("account", "acme"), "", "a request has met its limit");
    let id = made["id"].as_str().unwrap();
    assert!(of("key", id).contains("gone") && of("key", id).contains("never reached"), "{found}");
    assert!(!of("key", id).contains("no request"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_come_in_pages_and_the_document_describes_every_route() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    for name in ["a", "b", "c"] {
        admin.post("/admin/keys", &json!({ "name": name })).await;
    }
    let first = admin.get("/admin/keys?limit=2&account=default").await.json();
    assert_eq!((first["data"].as_array().unwrap().len(), &first["has_more"]), (2, &json!(true)));
    let next = first["next"].as_str().unwrap();
    let second = admin.get(&format!("/admin/keys?limit=2&after={next}")).await.json();
    assert_eq!((second["data"].as_array().unwrap().len(), &second["has_more"]), (2, &json!(false)));
    let anyone = Client { address: running.gateway.admin_address, key: String::new() };
    let document = anyone.get("/admin/openapi.json").await;
    assert_eq!(document.status, 200);
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{id}", "0123456789abcdef");
            let answer = admin.send(&method.to_uppercase(), &path, &[], b"{}").await;
            assert!(answer.status != 405 && answer.status != 500, "{method} {path}: {}", answer.text());
            let open = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(
                anyone.send(&method.to_uppercase(), &path, &[], b"{}").await.status == 200,
                open,
                "{path}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_over_is_good_no_more() {
    let (_provider, running) = bench().await;
    let made = running.admin().post("/admin/keys", &json!({})).await.json();
    let (key, _) = client(&running, &made);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 200);
    let app = &running.gateway.app;
    let mut record = app.stores.keys.get(made["id"].as_str().unwrap()).unwrap().unwrap();
    record.expires = Some(app.clock.unix_seconds());
    app.key_cache.set_key(&record);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 401);
    // The previous secret of a rotated key also expires.
    record.expires = None;
    record.previous = Some(PreviousSecret { digest: record.digest, until: app.clock.unix_seconds() });
    record.digest = KeyDigest([0; 32]);
    app.key_cache.set_key(&record);
    assert_eq!(key.post(CHAT, &running.ask()).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_earlier_versions_work_and_their_accounts_are_made() {
    let (_provider, running) = bench().await;
    let app = running.gateway.app.clone();
    let loaded = tokio::task::spawn_blocking(move || {
        // A row as the first version wrote it, for an account that was never created.
        let row = r#"{"v":1,"id":"0000000000000001","digest":"abababababababababababababababababababababababababababababababab","name":"n","account":"le gacy","scopes":["*"],"limits":{"requests_per_minute":5},"created":5}"#;
        app.stores.store.apply(Transaction::new().put(StoreTable::Keys, *b"0000000000000001", row)).unwrap();
        let ring = KeyCache::load(&app.stores, app.clock).unwrap();
        let account = app.stores.accounts.get("le gacy").unwrap().unwrap();
        (ring.find_principal("0000000000000001").unwrap(), account)
    });
    let (grant, account) = loaded.await.unwrap();
    let now = running.gateway.app.clock.steady_now();
    assert_eq!((&*grant.account.id, account.name.as_str()), ("le gacy", "le gacy"));
    assert_eq!(grant.limiter().current_status(now).2.requests.unwrap().limit, 5);
    assert_eq!(running.admin().get("/admin/accounts/le%20gacy").await.status, 200);
}
