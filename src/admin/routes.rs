//! Routes of the admin listener that need the admin token. The listener, the CLI when it opens a store itself, and
//! the OpenAPI document use the same list. To add a route, add a row to `ROUTES` in the file that implements the
//! route.

use super::request::{AdminRequest, AdminResponse, KeyChangeResponse, LedgerReply};
use super::{
    JSON, accounts, adjustments, audit, batches, carbon, corrections, credit_notes, credits,
    dangling_references, files, grid, invoice, issued_invoices, keys, latency, ledger_export, reload,
    routing, status, usage, users,
};
use crate::billing::Ledger;
use crate::config::ConfigLoader;
use crate::http::query_names::check_query_names;
use crate::http::route_table::{self, Route, RouteError};
use crate::state::AppState;
use crate::storage::stores::OpenStorage;
use http::Method;
use penstock_core::{ApiError, ErrorCode};
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;

/// Admin route: one method on one path.
#[derive(Clone, Copy, Debug)]
pub struct AdminRoute {
    /// Operation id for generated clients.
    pub name: &'static str,
    /// HTTP method of the route.
    pub method: &'static Method,
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Summary for the OpenAPI document, one line.
    pub summary: &'static str,
    /// Names of the query parameters that the route accepts.
    pub query: &'static [&'static str],
    /// Request body, if there is one.
    pub body: Option<BodySchema>,
    /// Status and schema of a successful response.
    pub answer: (u16, fn() -> Value),
    /// Media type of a successful response.
    pub media_type: &'static str,
    /// Function that handles requests to the route.
    pub handler: RouteHandler,
}

/// Schema of a request body.
#[derive(Clone, Copy, Debug)]
pub struct BodySchema {
    /// Allowed members; others are refused.
    pub members: &'static [&'static str],
    /// Members that a request body must have.
    pub required_members: &'static [&'static str],
    /// True if an empty body is refused.
    pub required: bool,
}

impl Route for AdminRoute {
    fn method(&self) -> Method {
        self.method.clone()
    }

    fn path(&self) -> &'static str {
        self.path
    }
}

impl AdminRoute {
    const fn new(
        method: &'static Method,
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: RouteHandler,
    ) -> Self {
        Self {
            name,
            method,
            path,
            summary,
            query: &[],
            body: None,
            answer: (200, || Value::Null),
            media_type: JSON,
            handler,
        }
    }

    /// Creates a route with the method GET.
    pub(super) const fn get(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: RouteHandler,
    ) -> Self {
        Self::new(&Method::GET, path, name, summary, work)
    }

    /// Creates a route with the method POST, which creates an object or triggers an action.
    pub(super) const fn post(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: RouteHandler,
    ) -> Self {
        Self::new(&Method::POST, path, name, summary, work)
    }

    /// Creates a route with the method DELETE.
    pub(super) const fn delete(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: RouteHandler,
    ) -> Self {
        Self::new(&Method::DELETE, path, name, summary, work)
    }

    /// Creates a route with the method PATCH, which changes an object.
    pub(super) const fn patch(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: RouteHandler,
    ) -> Self {
        Self::new(&Method::PATCH, path, name, summary, work)
    }

    /// Checks the names of a request's query parameters.
    ///
    /// # Errors
    /// Returns 400 with a parameter that the route does not have, or that is there twice.
    pub fn check_query(&self, query: &[(String, String)]) -> Result<(), ApiError> {
        check_query_names(query.iter().map(|(name, _)| name.as_str()), self.query)
    }

    /// Sets the names of the query parameters that the route accepts.
    pub(super) const fn with_query_parameters(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    /// Adds a required body with these members; it must have those in `needed`.
    pub(super) const fn with_body(
        mut self,
        members: &'static [&'static str],
        needed: &'static [&'static str],
    ) -> Self {
        self.body = Some(BodySchema { members, required_members: needed, required: true });
        self
    }

    /// Adds an optional body with these members.
    pub(super) const fn with_optional_body(mut self, members: &'static [&'static str]) -> Self {
        self.body = Some(BodySchema { members, required_members: &[], required: false });
        self
    }

    /// Sets the media type of a successful response, which is JSON by default.
    pub(super) const fn with_media_type(mut self, media_type: &'static str) -> Self {
        self.media_type = media_type;
        self
    }

    /// Sets the status and schema of a successful response.
    pub(super) const fn with_response(mut self, status: u16, schema: fn() -> Value) -> Self {
        self.answer = (status, schema);
        self
    }
}

/// Handler of requests that need the store only; blocks.
pub type StoreHandler = fn(&OpenStorage, &AdminRequest) -> Result<AdminResponse, ApiError>;
/// Handler of requests that change keys or accounts in the store; blocks.
pub type KeyChangeHandler = fn(&OpenStorage, &AdminRequest) -> Result<KeyChangeResponse, ApiError>;
/// Handler of requests that need the ledger.
pub type LedgerHandler =
    for<'a> fn(&'a OpenStorage, &'a Arc<Ledger>, &'a AdminRequest) -> HandlerFuture<'a, LedgerReply>;
/// Handler of requests that need a running gateway.
pub type RuntimeHandler =
    for<'a> fn(&'a Arc<AppState>, &'a ConfigLoader, &'a AdminRequest) -> HandlerFuture<'a, Value>;
/// Future that the handler of an admin request returns.
pub type HandlerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

/// Handler of a route, by the resources it needs.
#[derive(Clone, Copy, Debug)]
pub enum RouteHandler {
    /// Handler that needs the store only, with or without a gateway.
    Store(StoreHandler),
    /// Handler that needs the store only and changes keys or accounts, one at a time.
    KeyChange(KeyChangeHandler),
    /// Handler that needs the ledger, with or without a gateway.
    Ledger(LedgerHandler),
    /// Handler that needs a running gateway.
    Runtime(RuntimeHandler),
}

/// Iterates over all routes that need the admin token.
pub fn all_routes() -> impl Iterator<Item = &'static AdminRoute> + Clone {
    ROUTES.iter().copied().flatten()
}

const ROUTES: &[&[AdminRoute]] = &[
    accounts::ROUTES,
    keys::ROUTES,
    audit::ROUTES,
    dangling_references::ROUTES,
    credits::ROUTES,
    adjustments::ROUTES,
    corrections::ROUTES,
    invoice::ROUTES,
    issued_invoices::ROUTES,
    credit_notes::ROUTES,
    usage::ROUTES,
    users::ROUTES,
    batches::ROUTES,
    files::ROUTES,
    reload::ROUTES,
    status::ROUTES,
    grid::ROUTES,
    routing::ROUTES,
    latency::ROUTES,
    carbon::ROUTES,
    ledger_export::ROUTES,
];

/// Finds the route of a method and a path, and the decoded segment for `{id}`, which is empty for a route without an
/// id. HEAD uses the route of GET.
///
/// # Errors
/// Returns 404 if there is no route with this path, or 405 if there is one, but not with this method.
pub fn find(method: &Method, path: &str) -> Result<(&'static AdminRoute, String), ApiError> {
    let served = if *method == Method::HEAD { &Method::GET } else { method };
    match route_table::find_route(all_routes(), served, path) {
        Ok((route, id)) => Ok((route, crate::proxy::endpoint::decode_segment(id).into_owned())),
        Err(RouteError::UnknownPath) => Err(ApiError::new(ErrorCode::NotFound)),
        Err(RouteError::MethodNotAllowed(allowed)) => {
            Err(route_table::method_not_allowed_error(method, &allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_method_and_path() {
        for route in all_routes() {
            let path = route.path.replace("{id}", "one%2Ftwo");
            let (found, id) = find(route.method, &path).unwrap();
            assert_eq!(found.name, route.name, "{path}");
            let head = find(&Method::HEAD, &path).map(|(found, _)| found.method);
            assert!(head.is_ok_and(|method| method == Method::GET) || *route.method != Method::GET, "{path}");
            assert_eq!(id.is_empty(), !route.path.contains("{id}"));
            assert!(id.is_empty() || id == "one/two");
        }
    }

    #[test]
    fn an_unsupported_method_names_the_supported_ones_and_an_unknown_path_none() {
        let refusal = find(&Method::DELETE, "/admin/keys/0123456789abcdef").unwrap_err();
        assert_eq!(refusal.details.get("allow").unwrap(), "GET, HEAD, PATCH");
        let refusal = find(&Method::HEAD, "/admin/reload").unwrap_err();
        assert_eq!(refusal.message, "This path takes POST, not HEAD.");
        for path in ["/admin", "/admin/keys/", "/admin/keys//revoke", "/admin/keys/a/b", "/admin/nothing"] {
            assert_eq!(find(&Method::GET, path).unwrap_err().code, ErrorCode::NotFound, "{path}");
        }
    }
}
