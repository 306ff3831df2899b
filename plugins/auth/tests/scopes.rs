//! Scopes: names, wildcards, the 403.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_auth::{KeyScope, KeyScopes};
use penstock_core::{ErrorCode, MODEL_KINDS};

#[test]
fn a_scope_allows_itself_and_files_if_it_allows_requests() {
    for granted in KeyScope::ALL {
        let scopes = KeyScopes::parse([granted.name()]).unwrap();
        for asked in KeyScope::ALL {
            let files =
                asked == KeyScope::Batches && !matches!(granted, KeyScope::Models | KeyScope::AccountRead);
            assert_eq!(scopes.allows(asked), asked == granted || files, "{granted:?} {asked:?}");
            assert_eq!(scopes.contains(asked), asked == granted, "{granted:?} {asked:?}");
        }
    }
}

#[test]
fn wildcards_allow_all_of_inference() {
    for wildcard in ["inference.*", "*"] {
        let scopes = KeyScopes::parse([wildcard]).unwrap();
        for scope in KeyScope::ALL {
            let expected = wildcard == "*" || scope != KeyScope::AccountRead;
            assert_eq!(scopes.allows(scope), expected, "{wildcard} {scope:?}");
            assert_eq!(scopes.contains(scope), expected, "{wildcard} {scope:?}");
        }
    }
    assert!(!KeyScopes::inference().allows(KeyScope::AccountRead));
}

#[test]
fn no_scopes_allow_nothing() {
    assert!(!KeyScope::ALL.into_iter().any(|scope| KeyScopes::default().allows(scope)));
}

#[test]
fn unknown_names_are_all_reported() {
    let unknown = KeyScopes::parse(["inference.chat", "inference.chess", "Inference.Chat", ""]).unwrap_err();
    assert_eq!(unknown.0, ["inference.chess", "Inference.Chat", ""]);
    assert!(unknown.to_string().contains("inference.batches"), "says what is known");
}

#[test]
fn a_stored_name_of_a_later_version_allows_nothing() {
    let scopes = KeyScopes::parse_lenient(["inference.video", "inference.audio"]);
    assert_eq!(scopes, KeyScopes::parse(["inference.audio"]).unwrap());
}

#[test]
fn names_and_scopes_are_two_forms_of_one_thing() {
    for names in [
        vec!["*"],
        vec!["inference.*"],
        vec!["inference.chat", "inference.models"],
        vec!["account.read"],
        vec![],
    ] {
        let scopes = KeyScopes::parse(&names).unwrap();
        assert_eq!(scopes.names().collect::<Vec<_>>(), names);
    }
}

#[test]
fn a_403_names_the_missing_scope() {
    let refusal = KeyScopes::parse(["inference.chat"]).unwrap().require(KeyScope::Images).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::InsufficientScope);
    assert_eq!(refusal.details["required_scope"], "inference.images");
    assert!(KeyScopes::inference().require(KeyScope::Images).is_ok());
}

#[test]
fn each_kind_of_model_needs_a_scope_that_exists() {
    for kind in MODEL_KINDS {
        let scope = KeyScope::from_name(kind.scope);
        assert!(scope.is_some_and(|scope| KeyScopes::inference().allows(scope)), "{}", kind.name);
    }
}
