//! Admin API, limited to one account. The table [`ALLOWED_ADMIN_ROUTES`] has the account scope of each request. A
//! request without a row is refused with 404. A request for an object of another account gets the same 404 as for an
//! object that does not exist.

use crate::console::session::log_and_redact_error;
use crate::console::{BackendRequest, ConsoleBackend};
use crate::http::route_table;
use async_trait::async_trait;
use http::Method;
use penstock_core::{ApiError, ErrorCode};
use serde_json::{Value, json};

/// Way in which an admin request of the dashboard is limited to the account of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccountScope {
    /// The query parameter `account` is set to the account.
    Query,
    /// The body member `account` is set to the account.
    Body,
    /// The segment `{id}` of the path must be the account's own id.
    PathId,
    /// The segment `{id}` of the path is the id of an object. The object is first read at the path that this variant
    /// contains, and must belong to the account.
    OwnedBy(&'static str),
}

/// Request that the dashboard may send.
#[derive(Clone, Copy, Debug)]
pub struct ScopedRoute {
    /// HTTP method of the admin request.
    pub method: &'static Method,
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Way in which the request is limited to the account.
    pub account_scope: RouteAccountScope,
}

const fn route(method: &'static Method, path: &'static str, account_scope: RouteAccountScope) -> ScopedRoute {
    ScopedRoute { method, path, account_scope }
}

const KEY: RouteAccountScope = RouteAccountScope::OwnedBy("/admin/keys/{id}");
const BATCH: RouteAccountScope = RouteAccountScope::OwnedBy("/admin/batches/{id}");
const FILE: RouteAccountScope = RouteAccountScope::OwnedBy("/admin/files/{id}");

/// All requests that the dashboard may send.
pub const ALLOWED_ADMIN_ROUTES: &[ScopedRoute] = &[
    route(&Method::GET, "/admin/accounts/{id}", RouteAccountScope::PathId),
    route(&Method::GET, "/admin/credits", RouteAccountScope::Query),
    route(&Method::GET, "/admin/usage", RouteAccountScope::Query),
    route(&Method::GET, "/admin/carbon", RouteAccountScope::Query),
    route(&Method::GET, "/admin/grid", RouteAccountScope::Query),
    route(&Method::GET, "/admin/statement", RouteAccountScope::Query),
    route(&Method::GET, "/admin/invoice", RouteAccountScope::Query),
    route(&Method::GET, "/admin/invoices", RouteAccountScope::Query),
    route(&Method::GET, "/admin/credit-note", RouteAccountScope::Query),
    route(&Method::GET, "/admin/credit-notes", RouteAccountScope::Query),
    route(&Method::GET, "/admin/keys", RouteAccountScope::Query),
    route(&Method::POST, "/admin/keys", RouteAccountScope::Body),
    route(&Method::GET, "/admin/keys/{id}", KEY),
    route(&Method::PATCH, "/admin/keys/{id}", KEY),
    route(&Method::POST, "/admin/keys/{id}/rotate", KEY),
    route(&Method::POST, "/admin/keys/{id}/revoke", KEY),
    route(&Method::GET, "/admin/batches", RouteAccountScope::Query),
    route(&Method::GET, "/admin/batches/{id}", BATCH),
    route(&Method::POST, "/admin/batches/{id}/cancel", BATCH),
    route(&Method::GET, "/admin/files", RouteAccountScope::Query),
    route(&Method::GET, "/admin/files/{id}", FILE),
    route(&Method::DELETE, "/admin/files/{id}", FILE),
];

impl route_table::Route for ScopedRoute {
    fn method(&self) -> Method {
        self.method.clone()
    }

    fn path(&self) -> &'static str {
        self.path
    }
}

/// Admin API of one account.
pub struct AccountBackend<'a> {
    /// Admin API of all accounts.
    pub backend: &'a dyn ConsoleBackend,
    /// Id of the account.
    pub account: &'a str,
}

#[async_trait]
impl ConsoleBackend for AccountBackend<'_> {
    async fn call(&self, mut request: BackendRequest<'_>) -> Result<Value, ApiError> {
        let (account_scope, segment) = {
            let found = route_table::find_route(ALLOWED_ADMIN_ROUTES.iter(), &request.method, &request.path);
            let (route, segment) = found.map_err(|_| ApiError::new(ErrorCode::NotFound))?;
            (route.account_scope, segment.to_owned())
        };
        match account_scope {
            RouteAccountScope::Query => {
                request.query.retain(|(name, _)| name != "account");
                request.query.push(("account".to_owned(), self.account.to_owned()));
            }
            RouteAccountScope::Body => {
                let members =
                    request.body.as_object_mut().ok_or_else(|| ApiError::new(ErrorCode::InvalidRequest))?;
                members.insert("account".to_owned(), self.account.into());
            }
            RouteAccountScope::PathId => {
                if crate::proxy::endpoint::decode_segment(&segment) != self.account {
                    return Err(ApiError::new(ErrorCode::NotFound));
                }
            }
            RouteAccountScope::OwnedBy(path) => {
                self.check_owner(path.replace("{id}", &segment), request.actor).await?
            }
        }
        self.backend.call(request).await.map_err(without_internals)
    }
}

/// Returns an error of the admin API without internal details, for an account holder. The details are written to the
/// operator's log.
fn without_internals(error: ApiError) -> ApiError {
    if error.code == ErrorCode::Internal { log_and_redact_error(&error) } else { error }
}

impl AccountBackend<'_> {
    /// Checks that the object at a path belongs to the account.
    async fn check_owner(&self, path: String, actor: &str) -> Result<(), ApiError> {
        let request = BackendRequest { method: Method::GET, path, query: Vec::new(), body: json!({}), actor };
        let is_own = |object: &Value| object.get("account").and_then(Value::as_str) == Some(self.account);
        match self.backend.call(request).await {
            Ok(object) if is_own(&object) => Ok(()),
            Err(refusal) if refusal.code != ErrorCode::NotFound => Err(without_internals(refusal)),
            // The refusal is the same for objects of other accounts and for objects that do not exist.
            Ok(_) | Err(_) => Err(ApiError::new(ErrorCode::NotFound)),
        }
    }
}
