//! Tests of the console's checks. The pages are tested through a whole gateway in `tests/it/console.rs`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::dashboard::DASHBOARD;
use super::operators::OPERATORS;
use super::pages::match_path;
use super::request::ConsoleRequest;
use super::session::{
    IDLE_SECONDS, MAX_AGE_SECONDS, MAX_USER_SESSIONS, has_ended, removal_predicate_for_user,
};
use super::site::ConsoleSite;
use super::throttle::SignInThrottle;
use penstock_core::ErrorCode;
use penstock_storage::sessions::SessionRecord;
use penstock_storage::users::UserRole;
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn a_form_of_another_site_is_refused() {
    let host = "127.0.0.1:9090";
    let allowed = |site: Option<&str>, origin: Option<&str>| {
        ConsoleRequest::with_origin(site, origin, host).check_origin().is_ok()
    };
    assert!(allowed(Some("same-origin"), None));
    assert!(allowed(Some("same-origin"), Some("null")));
    assert!(allowed(None, Some("http://127.0.0.1:9090")));
    for site in ["cross-site", "same-site", "none", "", "SAME-ORIGIN"] {
        assert!(!allowed(Some(site), Some("http://127.0.0.1:9090")), "{site}");
    }
    for origin in ["null", "", "http://", "http://127.0.0.1", "http://evil.example", "ftp://127.0.0.1:9090"] {
        assert!(!allowed(None, Some(origin)), "{origin}");
    }
    assert!(!allowed(None, None));
    assert!(ConsoleRequest::with_origin(None, Some("http://"), "").check_origin().is_err());
}

#[test]
fn a_form_needs_the_token_of_its_session() {
    let with = |token: &str| {
        let mut request = ConsoleRequest::default();
        request.form.push(("form_token".to_owned(), token.to_owned()));
        request
    };
    assert!(with("abc").check_form_token("abc").is_ok());
    for (given, token) in [("", "abc"), ("abd", "abc"), ("abcd", "abc"), ("", "")] {
        assert!(with(given).check_form_token(token).is_err(), "{given:?} {token:?}");
    }
    assert!(ConsoleRequest::default().check_form_token("abc").is_err());
}

#[test]
fn a_form_has_a_limited_number_of_fields() {
    let form = |count: usize| ConsoleRequest::fields_of(&"a&".repeat(count));
    assert_eq!(form(1_000).unwrap().len(), 1_000);
    for count in [1_001, 2 << 20] {
        let refusal = form(count).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::TooLarge);
        assert_eq!(refusal.message, "The form has more than 1000 fields, so nothing was changed.");
    }
}

#[test]
fn a_cookie_is_read_only_in_its_own_form() {
    let id = "0123456789abcdef".repeat(4);
    let good = format!("other=1; penstock_session={id}; x=y");
    assert_eq!(ConsoleRequest::session_cookie_of(&["a=b", &good]).as_deref(), Some(&*id));
    for bad in ["penstock_session=", "penstock_session=abc", "penstock_sessions=1", ""] {
        assert_eq!(ConsoleRequest::session_cookie_of(&[bad]), None, "{bad}");
    }
    assert_eq!(ConsoleRequest::session_cookie_of(&[&format!("penstock_session={}g", &id[1..])]), None);
}

#[test]
fn a_session_ends_after_its_idle_time_and_after_its_absolute_time() {
    let session = |created, seen| SessionRecord {
        user: "a".to_owned(),
        generation: 0,
        created,
        seen,
        form_token: String::new(),
        used_forms: Vec::new(),
    };
    let start = 1_000_000;
    assert!(!has_ended(&session(start, start), start + IDLE_SECONDS - 1));
    assert!(has_ended(&session(start, start), start + IDLE_SECONDS));
    let last = start + MAX_AGE_SECONDS - 1;
    assert!(!has_ended(&session(start, last), last));
    assert!(has_ended(&session(start, last), last + 1));
}

#[test]
fn a_person_has_a_limited_number_of_sessions() {
    let session = |user: &str| SessionRecord {
        user: user.to_owned(),
        generation: 0,
        created: 1_000,
        seen: 1_000,
        form_token: String::new(),
        used_forms: Vec::new(),
    };
    let ended = removal_predicate_for_user("eve", 1_000);
    let removed = (0..100).filter(|_| ended(&session("eve"))).count();
    assert_eq!(100 - removed, MAX_USER_SESSIONS - 1, "room for the new one");
    assert!((0..100).all(|_| !ended(&session("ada"))));
    assert!(removal_predicate_for_user("eve", 1_000 + IDLE_SECONDS)(&session("ada")));
}

#[test]
fn failed_attempts_are_limited_by_name_and_for_all() {
    let (throttle, now) = (SignInThrottle::new(OPERATORS.attempts_per_minute), Duration::from_secs(1_000));
    for _ in 0..5 {
        throttle.acquire_attempt("eve", "10.0.0.1", now).unwrap();
    }
    assert_eq!(throttle.acquire_attempt("eve", "10.0.0.1", now).unwrap_err().code, ErrorCode::RateLimited);
    assert!(
        throttle.acquire_attempt("eve", "10.0.0.2", now).is_ok(),
        "the person at another address may sign in"
    );
    throttle.record_success("eve", "10.0.0.1", now);
    assert!(throttle.acquire_attempt("eve", "10.0.0.1", now).is_ok());
    let openid = (0..60).filter(|_| throttle.acquire_openid_attempt("10.0.0.1", now).is_ok()).count();
    assert_eq!(openid, 30, "attempts with OpenID Connect from one address");
    let refused = (0..1_000)
        .filter(|n| throttle.acquire_attempt(&format!("user{n}"), "10.0.0.3", now).is_err())
        .count();
    assert!(refused > 900, "{refused}");
    assert!(throttle.acquire_attempt("later", "10.0.0.3", now + Duration::from_secs(61)).is_ok());
}

#[test]
fn successful_attempts_do_not_use_up_the_limit_for_all() {
    let (throttle, now) = (SignInThrottle::new(OPERATORS.attempts_per_minute), Duration::from_secs(1_000));
    for n in 0..1_000 {
        let name = format!("user{n}");
        throttle.acquire_attempt(&name, "10.0.0.1", now).unwrap();
        throttle.record_success(&name, "10.0.0.1", now);
    }
    let long = "n".repeat(100_000);
    for _ in 0..5 {
        throttle.acquire_attempt(&long, "10.0.0.1", now).unwrap();
    }
    assert!(throttle.acquire_attempt(&long, "10.0.0.1", now).is_err(), "a long name has a limit too");
    assert!(throttle.acquire_attempt("eve", "10.0.0.1", now).is_ok());
}

/// Checks that paths are distinct and below the root; returns the roles of every row.
fn roles_of(site: &ConsoleSite) -> Vec<(&'static str, &'static [UserRole])> {
    let pages = site.pages.iter().map(|page| (page.path, page.roles));
    let downloads = site.downloads.iter().map(|download| (download.path, download.roles));
    let forms: Vec<_> = site.actions.iter().map(|action| (action.path, action.roles)).collect();
    let shown: Vec<_> = pages.chain(downloads).collect();
    for rows in [&shown, &forms] {
        let mut paths = BTreeSet::new();
        for (path, _) in rows.iter() {
            assert!(paths.insert(*path), "{path}");
            assert!(path.starts_with(site.root) && site.is_path_below_root(path), "{path}");
        }
    }
    shown.into_iter().chain(forms).collect()
}

#[test]
fn pages_and_forms_have_distinct_paths_and_an_administrator() {
    for (path, roles) in roles_of(&OPERATORS) {
        assert!(roles.contains(&UserRole::Admin) && !roles.contains(&UserRole::Account), "{path}");
    }
    for action in OPERATORS.actions {
        assert!(!action.roles.contains(&UserRole::Viewer), "{}", action.path);
    }
}

#[test]
fn the_dashboard_is_for_account_holders_and_the_console_for_the_others() {
    for (path, roles) in roles_of(&DASHBOARD) {
        assert_eq!(roles, [UserRole::Account], "{path}");
    }
    for role in UserRole::ALL {
        assert_ne!(DASHBOARD.roles.contains(&role), OPERATORS.roles.contains(&role), "{}", role.name());
    }
    assert!(
        !OPERATORS.is_path_below_root("/dashboard/keys") && !DASHBOARD.is_path_below_root("/console/users")
    );
    assert_ne!(OPERATORS.cookie, DASHBOARD.cookie);
}

#[test]
fn one_segment_stands_for_an_id() {
    assert_eq!(match_path("/console/accounts/{id}", "/console/accounts/a%2Fb"), Some("a%2Fb"));
    for path in ["/console/accounts/", "/console/accounts/a/b", "/console/accounts"] {
        assert_eq!(match_path("/console/accounts/{id}", path), None, "{path}");
    }
    assert_eq!(match_path("/console/", "/console/"), Some(""));
}
