//! Route lookup for the HTTP APIs of both listeners.
//!
//! A path pattern is literal, or has one wildcard: `{id}` matches one non-empty segment, `*` any non-empty text.

use http::Method;
use penstock_core::{ApiError, ErrorCode};

/// Entry of a route table: one method on one path.
pub trait Route {
    /// Returns the HTTP method of the route.
    fn method(&self) -> Method;

    /// Returns the path pattern of the route.
    fn path(&self) -> &'static str;
}

impl<R: Route + ?Sized> Route for &R {
    fn method(&self) -> Method {
        (**self).method()
    }

    fn path(&self) -> &'static str {
        (**self).path()
    }
}

/// Reason why no route matches.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteError {
    /// No route has this path.
    UnknownPath,
    /// Routes have this path, but only with these methods.
    MethodNotAllowed(Vec<Method>),
}

/// Finds the route of a method and a path, and the text that the wildcard matched, still percent-encoded. If several
/// patterns match, the longest one is used: `/v1/files/*/content` before `/v1/files/*`.
///
/// # Errors
/// Returns the reason if no route matches.
pub fn find_route<'p, R: Route>(
    routes: impl Iterator<Item = R> + Clone,
    method: &Method,
    path: &'p str,
) -> Result<(R, &'p str), RouteError> {
    // Most requests are for a path without a wildcard.
    let literal = |route: &R| route.path() == path && route.method() == *method;
    if let Some(route) = routes.clone().find(literal).filter(|_| !path.contains(['*', '{'])) {
        return Ok((route, ""));
    }
    let matching = || routes.clone().filter_map(|route| Some((match_pattern(route.path(), path)?, route)));
    let longest = matching().map(|(_, route)| route.path().len()).max();
    let mut allowed = Vec::new();
    for (text, route) in matching().filter(|(_, route)| Some(route.path().len()) == longest) {
        if route.method() == *method {
            return Ok((route, text));
        }
        allowed.push(route.method());
    }
    Err(if allowed.is_empty() { RouteError::UnknownPath } else { RouteError::MethodNotAllowed(allowed) })
}

/// Returns the error of a path that does not support a method. Its detail `allow` lists the methods that it supports,
/// with HEAD after GET, because a route of GET also answers HEAD.
pub fn method_not_allowed_error(method: &Method, allowed: &[Method]) -> ApiError {
    let takes = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let adds_head = !allowed.contains(&Method::HEAD);
    let allow: Vec<_> = allowed
        .iter()
        .map(|allowed| if adds_head && *allowed == Method::GET { "GET, HEAD" } else { allowed.as_str() })
        .collect();
    let allow = allow.join(", ");
    let message = format!("This path takes {takes}, not {method}.");
    ApiError::with_message(ErrorCode::MethodNotAllowed, message).with_details_member("allow", allow)
}

/// Returns the text that the wildcard of a pattern matches (empty without a wildcard); `None` if the path does not
/// match.
pub fn match_pattern<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let (segment, split) = match pattern.split_once("{id}") {
        Some(split) => (true, Some(split)),
        None => (false, pattern.split_once('*')),
    };
    let Some((before, after)) = split else { return (pattern == path).then_some("") };
    let text = path.strip_prefix(before)?.strip_suffix(after)?;
    (!text.is_empty() && (!segment || !text.contains('/'))).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct TestRoute(Method, &'static str);

    impl Route for TestRoute {
        fn method(&self) -> Method {
            self.0.clone()
        }

        fn path(&self) -> &'static str {
            self.1
        }
    }

    const ROUTES: [TestRoute; 5] = [
        TestRoute(Method::GET, "/files"),
        TestRoute(Method::GET, "/files/*"),
        TestRoute(Method::DELETE, "/files/*"),
        TestRoute(Method::GET, "/files/*/content"),
        TestRoute(Method::POST, "/keys/{id}/revoke"),
    ];

    fn found(method: &Method, path: &str) -> Result<(&'static str, String), RouteError> {
        find_route(ROUTES.iter(), method, path).map(|(route, text)| (route.path(), text.to_owned()))
    }

    #[test]
    fn the_longest_pattern_matches() {
        assert_eq!(found(&Method::GET, "/files").unwrap(), ("/files", String::new()));
        assert_eq!(found(&Method::GET, "/files/a/b").unwrap(), ("/files/*", "a/b".to_owned()));
        assert_eq!(found(&Method::GET, "/files/a/content").unwrap(), ("/files/*/content", "a".to_owned()));
        assert_eq!(found(&Method::POST, "/keys/a/revoke").unwrap().1, "a");
    }

    #[test]
    fn a_segment_is_not_empty_and_has_no_slash() {
        for path in ["/keys/a/b/revoke", "/keys//revoke", "/keys/revoke", "/files/", "/", ""] {
            assert_eq!(found(&Method::POST, path), Err(RouteError::UnknownPath), "{path}");
        }
    }

    #[test]
    fn a_pattern_is_not_a_path() {
        assert_eq!(found(&Method::GET, "/files/*").unwrap(), ("/files/*", "*".to_owned()));
        assert_eq!(found(&Method::POST, "/keys/{id}/revoke").unwrap().1, "{id}");
    }

    #[test]
    fn the_methods_of_the_longest_pattern_are_allowed() {
        let allowed = |path| found(&Method::PUT, path).unwrap_err();
        assert_eq!(allowed("/files/a"), RouteError::MethodNotAllowed(vec![Method::GET, Method::DELETE]));
        assert_eq!(allowed("/files/a/content"), RouteError::MethodNotAllowed(vec![Method::GET]));
        let refusal = method_not_allowed_error(&Method::PUT, &[Method::GET, Method::DELETE]);
        assert_eq!(refusal.message, "This path takes GET, DELETE, not PUT.");
        assert_eq!(refusal.details.get("allow").unwrap(), "GET, HEAD, DELETE");
    }
}
