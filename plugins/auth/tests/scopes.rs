//! Scopes: names, wildcards, the 403.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_auth::{Scope, Scopes};
use penstock_contract::Code;

#[test]
fn a_scope_allows_itself_and_files_if_it_allows_requests() {
    for granted in Scope::ALL {
        let scopes = Scopes::parse([granted.name()]).unwrap();
        for asked in Scope::ALL {
            let files = asked == Scope::Batches && granted != Scope::Models;
            assert_eq!(scopes.allows(asked), asked == granted || files, "{granted:?} {asked:?}");
            assert_eq!(scopes.holds(asked), asked == granted, "{granted:?} {asked:?}");
        }
    }
}

#[test]
fn wildcards_allow_all_of_inference() {
    for wildcard in ["inference.*", "*"] {
        let scopes = Scopes::parse([wildcard]).unwrap();
        assert!(
            Scope::ALL.into_iter().all(|scope| scopes.allows(scope) && scopes.holds(scope)),
            "{wildcard}"
        );
    }
    assert!(Scope::ALL.into_iter().all(|scope| Scopes::inference().allows(scope)));
}

#[test]
fn no_scopes_allow_nothing() {
    assert!(!Scope::ALL.into_iter().any(|scope| Scopes::default().allows(scope)));
}

#[test]
fn unknown_names_are_all_told() {
    let unknown = Scopes::parse(["inference.chat", "inference.chess", "Inference.Chat", ""]).unwrap_err();
    assert_eq!(unknown.0, ["inference.chess", "Inference.Chat", ""]);
    assert!(unknown.to_string().contains("inference.batches"), "says what is known");
}

#[test]
fn a_stored_name_of_a_later_version_allows_nothing() {
    let scopes = Scopes::lenient(["inference.video", "inference.audio"]);
    assert_eq!(scopes, Scopes::parse(["inference.audio"]).unwrap());
}

#[test]
fn names_and_scopes_are_two_forms_of_one_thing() {
    for names in [vec!["*"], vec!["inference.*"], vec!["inference.chat", "inference.models"], vec![]] {
        let scopes = Scopes::parse(&names).unwrap();
        assert_eq!(scopes.names().collect::<Vec<_>>(), names);
    }
}

#[test]
fn a_403_names_the_missing_scope() {
    let refusal = Scopes::parse(["inference.chat"]).unwrap().require(Scope::Images).unwrap_err();
    assert_eq!(refusal.code, Code::InsufficientScope);
    assert_eq!(refusal.details["required_scope"], "inference.images");
    assert!(Scopes::inference().require(Scope::Images).is_ok());
}
