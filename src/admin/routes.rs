//! What the admin listener answers to the holder of its token: every route once, for the listener, for the command
//! line on a store, and for the OpenAPI document. A new one is a row of the file that does it.

use super::request::{Asked, Done, Told};
use super::{
    accounts, adjustments, audit, batches, credits, dangling_references, files, keys, reload, status,
};
use crate::billing::Ledger;
use crate::config::ConfigSource;
use crate::state::House;
use crate::storage::stores::Vault;
use http::Method;
use penstock_contract::{Code, Refusal};
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;

/// One method on one path.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// What generated clients call it.
    pub name: &'static str,
    /// Its method.
    pub method: &'static Method,
    /// Its path; `{id}` stands for one segment.
    pub path: &'static str,
    /// One line for the document.
    pub summary: &'static str,
    /// Parameters of its query.
    pub query: &'static [&'static str],
    /// Its body, if it has one.
    pub body: Option<Body>,
    /// The status of a good answer, and its schema.
    pub answer: (u16, fn() -> Value),
    /// What it does.
    pub work: Work,
}

/// What a request may hold.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// Its members: no others are taken.
    pub members: &'static [&'static str],
    /// Those that may not be missing.
    pub needed: &'static [&'static str],
    /// There has to be a body.
    pub required: bool,
}

impl Route {
    const fn new(
        method: &'static Method,
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: Work,
    ) -> Self {
        Self { name, method, path, summary, query: &[], body: None, answer: (200, || Value::Null), work }
    }

    /// A question.
    pub(super) const fn get(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: Work,
    ) -> Self {
        Self::new(&Method::GET, path, name, summary, work)
    }

    /// Something is made or done.
    pub(super) const fn post(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: Work,
    ) -> Self {
        Self::new(&Method::POST, path, name, summary, work)
    }

    /// Something is deleted.
    pub(super) const fn delete(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: Work,
    ) -> Self {
        Self::new(&Method::DELETE, path, name, summary, work)
    }

    /// Something is changed.
    pub(super) const fn patch(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        work: Work,
    ) -> Self {
        Self::new(&Method::PATCH, path, name, summary, work)
    }

    /// With these parameters.
    pub(super) const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    /// With a body of these members.
    pub(super) const fn body(
        mut self,
        members: &'static [&'static str],
        needed: &'static [&'static str],
    ) -> Self {
        self.body = Some(Body { members, needed, required: true });
        self
    }

    /// With a body of these members, or without.
    pub(super) const fn may_hold(mut self, members: &'static [&'static str]) -> Self {
        self.body = Some(Body { members, needed: &[], required: false });
        self
    }

    /// What a good answer is.
    pub(super) const fn answers(mut self, status: u16, schema: fn() -> Value) -> Self {
        self.answer = (status, schema);
        self
    }
}

/// What is done with accounts, keys and the audit log, and what may be known of them; blocks.
pub type OnStore = fn(&Vault, &Asked) -> Result<Done, Refusal>;
/// What is done with the ledger.
pub type OnLedger = for<'a> fn(&'a Vault, &'a Arc<Ledger>, &'a Asked) -> Working<'a, Told>;
/// What is asked of a gateway that runs.
pub type OnHouse = for<'a> fn(&'a Arc<House>, &'a ConfigSource, &'a Asked) -> Working<'a, Value>;
/// Work that is waited for.
pub type Working<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// What a route does, by what it takes to do it.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// The store, with or without a gateway.
    Store(OnStore),
    /// The ledger, with or without a gateway.
    Ledger(OnLedger),
    /// A gateway that runs.
    House(OnHouse),
}

/// Every route that needs the admin token.
pub fn all() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().copied().flatten()
}

const ROUTES: &[&[Route]] = &[
    accounts::ROUTES,
    keys::ROUTES,
    audit::ROUTES,
    dangling_references::ROUTES,
    credits::ROUTES,
    adjustments::ROUTES,
    batches::ROUTES,
    files::ROUTES,
    reload::ROUTES,
    status::ROUTES,
];

/// The route of a method and a path, and what `{id}` stands for.
///
/// # Errors
/// Nothing at this path, or not with this method.
pub fn find(method: &Method, path: &str) -> Result<(&'static Route, String), Refusal> {
    let mut allowed = Vec::new();
    for route in all() {
        let Some(id) = matches(route.path, path) else { continue };
        if route.method == method {
            return Ok((route, crate::proxy::endpoint::decoded(id).into_owned()));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        return Err(Refusal::new(Code::NotFound));
    }
    let allow = allowed.join(", ");
    let message = format!("This path takes {allow}, not {method}.");
    Err(Refusal::because(Code::MethodNotAllowed, message).with("allow", allow))
}

fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, after)) = pattern.split_once("{id}") else { return (pattern == path).then_some("") };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_method_and_path() {
        for route in all() {
            let path = route.path.replace("{id}", "one%2Ftwo");
            let (found, id) = find(route.method, &path).unwrap();
            assert_eq!(found.name, route.name, "{path}");
            assert_eq!(id.is_empty(), !route.path.contains("{id}"));
            assert!(id.is_empty() || id == "one/two");
        }
    }

    #[test]
    fn a_wrong_method_names_the_right_ones_and_a_wrong_path_nothing() {
        let refusal = find(&Method::DELETE, "/admin/keys/0123456789abcdef").unwrap_err();
        assert_eq!(refusal.details.get("allow").unwrap(), "GET, PATCH");
        for path in ["/admin", "/admin/keys/", "/admin/keys//revoke", "/admin/keys/a/b", "/admin/nothing"] {
            assert_eq!(find(&Method::GET, path).unwrap_err().code, Code::NotFound, "{path}");
        }
    }
}
