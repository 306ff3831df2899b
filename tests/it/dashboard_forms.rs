//! Refused forms of the dashboard over real sockets: the reason is shown at its field, in the language of the page.
//! Conflicts with changes that another person made meanwhile are refused.

use crate::dashboard::bench;
use crate::harness::browser::{Browser, PASSWORD, between, holder};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_key_that_another_person_changed_meanwhile_is_refused() {
    let (_provider, running) = bench().await;
    let key = running.key(&json!({"account": "acme", "name": "ci"})).await.key;
    let id = &key["sk-svc-".len()..][..16];
    let (page, path) = (format!("/dashboard/keys/{id}"), format!("/admin/keys/{id}"));
    let mut ada = holder(&running, "ada", "acme").await;
    let text = ada.get(&page).await.text();
    let token = between(&text, "name=\"form_token\" value=\"", "\"");
    let version = between(&text, "name=\"version\" value=\"", "\"");
    let change =
        async |body: Value| running.admin().send("PATCH", &path, &[], body.to_string().as_bytes()).await;
    let other = json!({"limits": {"requests_per_minute": 7}, "version": version});
    assert_eq!(change(other.clone()).await.status, 200);
    assert_eq!(change(other).await.status, 409, "the version was replaced");
    let mut form = vec![("form_token", token.as_str()), ("name", "mine"), ("tokens_per_minute", "900")];
    form.push(("version", &version));
    let refused = ada.post(&format!("{page}/limits"), &form).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let text = refused.text();
    for (field, typed, stored) in [
        ("name", "mine", "has ci here"),
        ("requests_per_minute", "", "has 7 here"),
        ("tokens_per_minute", "900", "empty now"),
    ] {
        let beside = between(&text, &format!("name=\"{field}\" value=\"{typed}\""), "</label>");
        assert!(beside.contains(stored), "{field}: {beside}");
    }
    let stored = running.admin().get(&path).await.json();
    assert_eq!((&stored["name"], &stored["limits"]["requests_per_minute"]), (&json!("ci"), &json!(7)));
    // The form on the page of the refusal contains the current version of the object.
    let version = between(&text, "name=\"version\" value=\"", "\"");
    form.pop();
    form.push(("version", &version));
    assert_eq!(ada.post(&format!("{page}/limits"), &form).await.status, 200);
    assert_eq!(running.admin().get(&path).await.json()["name"], "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_is_explained_beside_its_field() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    for (field, value) in [
        ("scopes", "nonsense"),
        ("requests_per_minute", "many"),
        ("budget_per_day", "-1"),
        ("last_day", "soon"),
    ] {
        let mut form = vec![("form_token", token.as_str()), ("name", "typed before"), (field, value)];
        form.push(("scopes", "inference.*"));
        let refused = browser.post("/dashboard/keys", &form).await;
        assert_eq!(refused.status, 400, "{field}");
        let text = refused.text();
        let beside = between(&text, &format!("name=\"{field}\" value=\"{value}\""), "</label>");
        assert!(beside.contains("class=\"error\"") && text.contains("typed before"), "{field}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_in_the_language_of_the_page_and_names_no_member_of_the_api() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    browser.cookie.push_str("; penstock_language=de");
    for (field, value, expected) in [
        ("name", "", "Geben Sie einen Namen ein."),
        ("scopes", "", "mindestens eine Berechtigung"),
        ("scopes", "nonsense", "Die Berechtigung nonsense gibt es nicht."),
        ("models", "nothing", "Das Modell nothing gibt es nicht."),
        ("last_day", "2020-01-01", "einen Tag, der noch nicht vorbei ist"),
        (
            "requests_per_minute",
            "0",
            "eine ganze Zahl von 1 bis 1\u{202f}000\u{202f}000\u{202f}000\u{202f}000",
        ),
        ("concurrent", "1.5", "eine ganze Zahl von 1 bis"),
        ("budget_per_day", "viel", "einen Betrag in Credits"),
        ("budget_per_month", "0", "mehr als 0 Credits"),
        ("budget_per_month", "0,0000001", "höchstens sechs Dezimalstellen"),
    ] {
        let defaults = [("name", "kept"), ("scopes", "inference.*")];
        let mut form: Vec<(&str, &str)> =
            defaults.into_iter().filter(|(name, _)| *name != field).chain([(field, value)]).collect();
        form.push(("form_token", &token));
        let refused = browser.post("/dashboard/keys", &form).await;
        assert_eq!(refused.status, 400, "{field}");
        let beside = between(&refused.text(), &format!("id=\"error-{field}\">"), "<");
        assert!(beside.contains(expected), "{field}: {beside}");
        assert!(refused.text().contains("Bitte korrigieren Sie das markierte Feld."), "{field}");
        for english in [" has to be ", "expected", "Enter "] {
            assert!(!refused.text().contains(english), "{field}: {english}");
        }
    }
    let form = [
        ("form_token", token.as_str()),
        ("name", "ci"),
        ("scopes", "inference.*"),
        ("budget_per_day", "2,5"),
    ];
    assert_eq!(browser.post("/dashboard/keys", &form).await.status, 200);
    let keys = running.admin().get("/admin/keys?account=acme").await.json();
    assert_eq!(keys["data"][0]["limits"]["budget_per_day"], "2.5", "{keys}");
    let month = browser.get("/dashboard/statement?month=13").await;
    assert!(month.text().contains("Geben Sie einen Monat wie 2026-11 ein."), "{}", month.text());
    let usage = browser.get("/dashboard/usage").await.text();
    assert!(
        !usage.contains("name=\"from\" value=\"\"") && !usage.contains("name=\"to\" value=\"\""),
        "{usage}"
    );
    for query in ["from=2026-01-05", "to=2026-01-05"] {
        let invoice = browser.get(&format!("/dashboard/invoice?{query}")).await;
        assert!(!invoice.text().contains("class=\"error\""), "{query}");
    }
    let rejected = browser.post("/dashboard/sign-in", &[("name", "ada.l"), ("password", "wrong")]).await;
    assert!(rejected.text().contains("value=\"ada.l\""), "the typed name stays: {}", rejected.text());
    assert!(rejected.text().contains("id=\"error-password\""), "the reason is at the field");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_sign_in_or_invitation_marks_every_field_and_keeps_no_password() {
    let (_provider, running) = bench().await;
    let mut browser = Browser::at_dashboard(&running);
    let marked =
        |page: &str| ["name", "password", "again"].map(|name| page.contains(&format!("id=\"error-{name}\"")));
    for (name, password, expected) in [
        ("", "", [true, true, false]),
        ("ada.l", "", [false, true, false]),
        ("", "a typed password", [true, false, false]),
    ] {
        let refused = browser.post("/dashboard/sign-in", &[("name", name), ("password", password)]).await;
        assert_eq!(refused.status, 400);
        let page = refused.text();
        assert_eq!(marked(&page), expected, "{page}");
        assert!(page.contains(&format!("value=\"{name}\"")) && !page.contains("a typed password"), "{page}");
    }
    let invite = json!({"name": "bob", "role": "account", "account": "acme"});
    let invited = running.admin().post("/admin/users", &invite).await.json();
    let path = format!("/dashboard/invitation/{}", invited["invitation"].as_str().unwrap());
    for (password, again, expected) in [
        ("too short", "other", [false, true, true]),
        ("too short", "too short", [false, true, false]),
        (PASSWORD, "other", [false, false, true]),
    ] {
        let refused = browser.post(&path, &[("password", password), ("again", again)]).await;
        assert_eq!(refused.status, 400);
        let page = refused.text();
        assert_eq!(marked(&page), expected, "{page}");
        assert!(!page.contains("too short") && !page.contains(PASSWORD), "{page}");
    }
    assert_eq!(browser.post(&path, &[("password", PASSWORD), ("again", PASSWORD)]).await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_invalid_fields_are_marked_and_a_choice_of_the_language_keeps_what_was_typed() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    let typed = [
        ("name", "typed <before>"),
        ("scopes", "inference.*"),
        ("requests_per_minute", "many"),
        ("budget_per_day", "-1"),
        ("last_day", "soon"),
    ];
    let form = [&[("form_token", token.as_str())], &typed[..]].concat();
    let refused = browser.post("/dashboard/keys", &form).await;
    assert_eq!(refused.status, 400);
    let text = refused.text();
    for field in ["requests_per_minute", "budget_per_day", "last_day"] {
        assert!(text.contains(&format!("id=\"error-{field}\"")), "{field}: {text}");
    }
    assert!(text.contains("Please correct the marked fields."), "{text}");
    assert!(text.contains("name=\"restore\" value=\"/dashboard/keys\""), "{text}");
    assert!(text.contains("name=\"typed_requests_per_minute\" value=\"many\""), "{text}");
    let names: Vec<String> = typed.iter().map(|(name, _)| format!("typed_{name}")).collect();
    let mut switch = vec![("language", "de"), ("back", "/dashboard/keys"), ("restore", "/dashboard/keys")];
    switch.extend(names.iter().map(String::as_str).zip(typed.iter().map(|(_, value)| *value)));
    let shown = browser.post("/dashboard/language", &switch).await;
    assert_eq!(shown.status, 200);
    let text = shown.text();
    assert!(text.contains("lang=\"de\"") && text.contains("Neuer Schlüssel"), "{text}");
    assert!(text.contains("name=\"name\" value=\"typed &#60;before&#62;\""), "{text}");
    assert!(text.contains("name=\"requests_per_minute\" value=\"many\""), "{text}");
    assert!(shown.header("set-cookie").is_some_and(|cookie| cookie.contains("=de;")));
    let keys = running.admin().get("/admin/keys?account=acme").await.json();
    assert_eq!(keys["data"].as_array().unwrap().len(), 0, "the choice of a language changes nothing: {keys}");
}
