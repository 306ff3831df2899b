//! Users of the console in every engine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::sync::Arc;

use penstock_storage::audit::ChangeDescription;
use penstock_storage::users::{UserChangeOutcome, UserRecord, UserRole, UserStore};
use penstock_storage::{Store, StoreOptions, open, open_in_memory};
use serde_json::json;

fn each_engine(case: impl Fn(Arc<dyn Store>)) {
    case(open_in_memory());
    let folder = tempfile::tempdir().unwrap();
    case(open(folder.path(), StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }).unwrap());
}

fn administrator(name: &str) -> UserRecord {
    UserRecord {
        name: name.to_owned(),
        role: UserRole::Admin,
        account: None,
        created: 7,
        password: None,
        invitation: None,
        identity: None,
        disabled: None,
        generation: 0,
    }
}

fn audited() -> ChangeDescription {
    ChangeDescription {
        at: 5,
        who: "test".to_owned(),
        what: "user.change".to_owned(),
        target: "a user".to_owned(),
        change: json!({}),
    }
}

fn demote(user: &mut UserRecord) -> Option<ChangeDescription> {
    user.role = UserRole::Viewer;
    Some(audited())
}

#[test]
fn an_administrator_stays_although_two_are_demoted_at_the_same_time() {
    each_engine(|store| {
        let users = UserStore::new(store);
        for name in ["ada", "bob"] {
            users.insert(&administrator(name), &audited()).unwrap();
        }
        // Simulates a concurrent request: bob is demoted right after this call has read that bob is an administrator.
        let is_first = Cell::new(true);
        let is_administrator = |user: &UserRecord| {
            let is_needed = user.role == UserRole::Admin;
            if user.name == "bob" && is_first.replace(false) {
                users.change("bob", demote).unwrap();
            }
            is_needed
        };
        let outcome = users.change_unless_last("ada", is_administrator, demote).unwrap();
        assert!(matches!(outcome, UserChangeOutcome::LastNeeded), "{outcome:?}");
        assert_eq!(users.get("ada").unwrap().unwrap().role, UserRole::Admin);
        assert!(!is_first.get());
    });
}
