//! Tests of the restriction to one account: no request reaches an object of another account.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::scope::{ALLOWED_ADMIN_ROUTES, AccountBackend, RouteAccountScope};
use crate::console::{BackendRequest, ConsoleBackend};
use async_trait::async_trait;
use http::Method;
use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use serde_json::{Value, json};

/// Request that reached the admin API: method, path, query, body.
type SeenRequest = (Method, String, Vec<(String, String)>, Value);

/// Admin API in which every object belongs to one account.
struct OneOwner {
    owner: &'static str,
    seen: Mutex<Vec<SeenRequest>>,
}

#[async_trait]
impl ConsoleBackend for OneOwner {
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError> {
        if request.path.contains("missing") {
            return Err(ApiError::with_message(ErrorCode::NotFound, "There is no key of this id."));
        }
        if request.path.contains("credits") && self.owner == "broken" {
            return Err(ApiError::with_message(
                ErrorCode::Internal,
                "The ledger at 10.0.3.7 cannot be read.",
            ));
        }
        self.seen.lock().push((request.method, request.path, request.query, request.body));
        Ok(json!({ "account": self.owner }))
    }
}

async fn send(
    owner: &'static str,
    method: &Method,
    path: &str,
) -> (Result<Value, ApiError>, Vec<SeenRequest>) {
    let admin = OneOwner { owner, seen: Mutex::default() };
    let backend = AccountBackend { backend: &admin, account: "own" };
    let query = [("account", "other"), ("limit", "1"), ("account", "other")];
    let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let body = json!({ "account": "other", "name": "n" });
    let request = BackendRequest { method: method.clone(), path: path.to_owned(), query, body, actor: "eve" };
    let answer = backend.call(request).await;
    let seen = admin.seen.lock().clone();
    (answer, seen)
}

#[tokio::test]
async fn no_object_of_another_account_is_read_or_changed() {
    for route in ALLOWED_ADMIN_ROUTES {
        let path = route.path.replace("{id}", "other");
        let (answer, seen) = send("other", route.method, &path).await;
        let named = format!("{} {path}", route.method);
        match route.account_scope {
            RouteAccountScope::Query => {
                let accounts: Vec<&str> = seen[0]
                    .2
                    .iter()
                    .filter(|(name, _)| name == "account")
                    .map(|(_, value)| &**value)
                    .collect();
                assert_eq!(accounts, ["own"], "{named}");
                assert!(seen[0].2.contains(&("limit".to_owned(), "1".to_owned())), "{named}");
            }
            RouteAccountScope::Body => {
                assert_eq!(seen[0].3, json!({ "account": "own", "name": "n" }), "{named}")
            }
            RouteAccountScope::PathId => assert!(seen.is_empty() && answer.is_err(), "{named}"),
            RouteAccountScope::OwnedBy(_) => {
                let refused = answer.unwrap_err();
                let read: Vec<(&Method, &str)> =
                    seen.iter().map(|(method, path, ..)| (method, &**path)).collect();
                assert!(read.len() == 1 && read[0].0 == Method::GET, "{named}: {read:?}");
                let missing = route.path.replace("{id}", "missing");
                let unknown = send("other", route.method, &missing).await.0.unwrap_err();
                assert_eq!(refused.code, ErrorCode::NotFound, "{named}");
                assert_eq!((refused.code, refused.message), (unknown.code, unknown.message), "{named}");
            }
        }
    }
}

#[tokio::test]
async fn own_objects_are_read_and_changed() {
    for route in ALLOWED_ADMIN_ROUTES {
        let path = route.path.replace("{id}", "own");
        let (answer, seen) = send("own", route.method, &path).await;
        assert!(answer.is_ok(), "{} {path}", route.method);
        let (method, called, ..) = seen.last().unwrap();
        assert_eq!((method, &**called), (route.method, &*path));
    }
}

#[tokio::test]
async fn a_route_without_a_row_does_not_exist() {
    let known = |method: &Method, path: &str| {
        ALLOWED_ADMIN_ROUTES.iter().any(|route| route.method == method && route.path == path)
    };
    let mut refused = 0;
    for route in crate::admin::routes::all_routes().filter(|route| !known(route.method, route.path)) {
        let (answer, seen) = send("own", route.method, &route.path.replace("{id}", "own")).await;
        assert_eq!(answer.unwrap_err().code, ErrorCode::NotFound, "{} {}", route.method, route.path);
        assert!(seen.is_empty());
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
    for path in
        ["/status", "/admin/keys/own/../other", "/admin/accounts/own%2F..%2Fother", "/admin/accounts/"]
    {
        assert!(send("own", &Method::GET, path).await.0.is_err(), "{path}");
    }
    for route in ALLOWED_ADMIN_ROUTES {
        let is_route = crate::admin::routes::all_routes()
            .any(|admin| admin.method == route.method && admin.path == route.path);
        assert!(is_route, "{} {}", route.method, route.path);
    }
}

#[tokio::test]
async fn an_account_holder_sees_no_details_of_an_internal_error() {
    let (answer, seen) = send("broken", &Method::GET, "/admin/credits").await;
    let error = answer.unwrap_err();
    assert_eq!((seen.len(), error.code), (0, ErrorCode::Internal));
    assert!(!error.message.contains("10.0.3.7"), "{}", error.message);
}
