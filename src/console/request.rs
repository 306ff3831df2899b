//! Request to a site, for a page or with a sent form: path, query, cookies and form fields. Also has the checks that
//! a form comes from the console's own pages.

use crate::proxy::endpoint::query_parameters;
use bytes::BytesMut;
use http::{Method, header};
use penstock_console::pages::percent_encode;
use penstock_console::{Language, TYPED_VALUE_PREFIX};
use penstock_core::{ApiError, ErrorCode};
use pingora_core::protocols::http::ServerSession;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::time::timeout;

/// Maximum size of a form, in bytes.
pub const MAX_FORM_BYTES: usize = 512 * 1024;
/// Maximum size of a form with a configuration, in bytes. The limit is higher than the accepted size of the
/// configuration. So a text that is refused as too long can still be shown again in its field.
pub const MAX_CONFIGURATION_FORM_BYTES: usize = 4 << 20;
/// Maximum number of fields of a form. The size limit alone is not sufficient, because a field of two bytes takes
/// many times that memory.
const MAX_FORM_FIELDS: usize = 1_000;
/// Name of the cookie with the chosen language.
pub const LANGUAGE_COOKIE: &str = "penstock_language";
/// Timeout for reading a form.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Request to the console.
#[derive(Clone, Debug, Default)]
pub struct ConsoleRequest {
    /// HTTP method of the request.
    pub method: Method,
    /// Path of the request, percent-encoded.
    pub path: String,
    /// Language of the pages: from the cookie, otherwise from the browser's `Accept-Language`.
    pub language: Language,
    /// Names and values of the query.
    pub query: Vec<(String, String)>,
    /// Names and values of the form.
    pub form: Vec<(String, String)>,
    /// Address of the client.
    pub address: String,
    /// True if the request is an automatic update of a page: it does not extend the session, since the person did
    /// nothing.
    pub is_update: bool,
    cookie: Option<String>,
    /// Names and values of all cookies.
    cookies: Vec<(String, String)>,
    fetch_site: Option<String>,
    referer: Option<String>,
    origin: Option<String>,
    host: String,
}

/// Returns a request to the console from its head, without the fields of a form. `cookie` is the name of the session
/// cookie.
pub fn request_from_head(session: &ServerSession, cookie: &str) -> ConsoleRequest {
    let head = session.req_header();
    let text = |name: header::HeaderName| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let cookies: Vec<&str> =
        head.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).collect();
    let query = query_parameters(head.uri.query().unwrap_or_default());
    ConsoleRequest {
        method: head.method.clone(),
        path: head.uri.path().to_owned(),
        language: language(&cookies, &text(header::ACCEPT_LANGUAGE).unwrap_or_default()),
        query: query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect(),
        form: Vec::new(),
        address: session.client_addr().map(ToString::to_string).unwrap_or_default(),
        is_update: text(header::HeaderName::from_static("hx-request")).is_some()
            || text(header::ACCEPT).is_some_and(|kind| kind.starts_with("text/event-stream")),
        cookie: find_session_cookie(cookies.iter().copied(), cookie),
        cookies: cookie_pairs(cookies.iter().copied())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        fetch_site: text(header::HeaderName::from_static("sec-fetch-site")),
        referer: text(header::REFERER),
        origin: text(header::ORIGIN),
        host: text(header::HOST).unwrap_or_default(),
    }
}

/// Reads the fields of a form of at most `limit` bytes.
///
/// # Errors
/// Returns 413 or 408 if the form is too large or too slow, 415 if the body is not a form, or 400 if it is cut off or
/// not UTF-8.
pub async fn read_form(session: &mut ServerSession, limit: usize) -> Result<Vec<(String, String)>, ApiError> {
    let kind = session.get_header_bytes(header::CONTENT_TYPE);
    if !kind.starts_with(b"application/x-www-form-urlencoded") {
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType));
    }
    form_fields(&read_form_text(session, limit).await?)
}

/// Returns the fields of a form.
fn form_fields(text: &str) -> Result<Vec<(String, String)>, ApiError> {
    let mut fields = query_parameters(text);
    let taken = fields.by_ref().take(MAX_FORM_FIELDS);
    let form = taken.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    if fields.next().is_none() {
        return Ok(form);
    }
    let message = format!("The form has more than {MAX_FORM_FIELDS} fields, so nothing was changed.");
    Err(ApiError::with_message(ErrorCode::TooLarge, message))
}

/// Returns the language that the cookie names; without the cookie, the preferred language of the browser.
fn language(cookies: &[&str], accepted: &str) -> Language {
    let mut pairs = cookie_pairs(cookies.iter().copied());
    let chosen = pairs.find(|(name, _)| *name == LANGUAGE_COOKIE);
    let chosen = chosen.and_then(|(_, code)| Language::from_code(code));
    chosen.unwrap_or_else(|| Language::from_accept_language(accepted))
}

/// Returns the refusal of a form that is larger than `limit` bytes.
fn form_too_large(limit: usize) -> ApiError {
    let kib = limit / 1024;
    let message = format!("The form is larger than {kib} KiB, so it was not read and nothing was changed.");
    ApiError::with_message(ErrorCode::TooLarge, message)
}

async fn read_form_text(session: &mut ServerSession, limit: usize) -> Result<String, ApiError> {
    let read = async {
        let mut body = BytesMut::new();
        let cut = |_| ApiError::with_message(ErrorCode::InvalidRequest, "The form ended before its length.");
        while let Some(piece) = session.read_request_body().await.map_err(cut)? {
            if body.len() + piece.len() > limit {
                return Err(form_too_large(limit));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    };
    let body = timeout(READ_TIMEOUT, read).await.map_err(|_| ApiError::new(ErrorCode::RequestTimeout))??;
    String::from_utf8(body.into())
        .map_err(|_| ApiError::with_message(ErrorCode::InvalidRequest, "The form is not UTF-8."))
}

fn cookie_pairs<'a>(fields: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (&'a str, &'a str)> {
    fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// Returns the value of the session's cookie: 64 hexadecimal digits; `None` if there is no such cookie, or its value
/// has another form.
fn find_session_cookie<'a>(fields: impl Iterator<Item = &'a str>, cookie: &str) -> Option<String> {
    let (_, value) = cookie_pairs(fields).find(|(name, _)| *name == cookie)?;
    let plain = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| value.to_owned())
}

impl ConsoleRequest {
    /// Returns the session id in the cookie; `None` without a cookie of the right form.
    pub fn session_id(&self) -> Option<String> {
        self.cookie.clone()
    }

    /// Returns the value of the cookie with this name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns host and port under which the browser reaches the site; the listener has checked that the name is a
    /// known one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns path and query of the request.
    pub fn path_and_query(&self) -> String {
        let pairs = self
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }

    /// Returns path and query of the page that sent the request, if it is a page of this listener.
    pub fn referring_page(&self) -> Option<&str> {
        let referer = self.referer.as_deref()?;
        let rest = referer.strip_prefix("http://").or_else(|| referer.strip_prefix("https://"))?;
        rest.strip_prefix(self.host.as_str()).filter(|page| page.starts_with('/'))
    }

    /// Returns the value of a form field; empty if it is absent.
    pub fn form_field(&self, name: &str) -> &str {
        self.form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Returns the value of a form field or, for a link to a form, of the query parameter of this name; empty if both
    /// are absent.
    pub fn form_or_query_value(&self, name: &str) -> &str {
        Some(self.form_field(name))
            .filter(|value| !value.is_empty())
            .or_else(|| self.query_parameter(name))
            .unwrap_or_default()
    }

    /// Returns the value of a query parameter, if it is not empty.
    pub fn query_parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }

    /// Returns a GET request for the page whose form was open when the person switched the language, with the values
    /// typed into it. The path is in the field `restore`, the values are in fields `typed_…`; `None` if `restore` is
    /// empty.
    pub fn request_before_language_switch(&self, language: Language) -> Option<Self> {
        let path = Some(self.form_field("restore")).filter(|path| !path.is_empty())?.to_owned();
        let typed = self.form.iter().filter_map(|(name, value)| {
            Some((name.strip_prefix(TYPED_VALUE_PREFIX)?.to_owned(), value.clone()))
        });
        Some(Self {
            method: Method::GET,
            path,
            language,
            form: typed.collect(),
            query: Vec::new(),
            ..self.clone()
        })
    }

    /// Checks that a form comes from a page of this listener. Browsers send `Sec-Fetch-Site` to HTTPS and loopback
    /// addresses, and `Origin` to other addresses.
    ///
    /// # Errors
    /// Returns 403 if the form comes from elsewhere.
    pub fn check_origin(&self) -> Result<(), ApiError> {
        let is_own = match (&self.fetch_site, &self.origin) {
            (Some(site), _) => site == "same-origin",
            (None, Some(origin)) => {
                let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
                host.is_some_and(|host| !host.is_empty() && host == self.host)
            }
            (None, None) => false,
        };
        if is_own {
            return Ok(());
        }
        let message = "This form was sent by another site, so nothing was changed.";
        Err(ApiError::with_message(ErrorCode::InsufficientScope, message))
    }

    /// Checks the token that every form of the session contains.
    ///
    /// # Errors
    /// Returns 403 if the token is missing or differs.
    pub fn check_form_token(&self, token: &str) -> Result<(), ApiError> {
        let given = self.form_field("form_token");
        if !token.is_empty() && bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
            return Ok(());
        }
        let message = "This form is of another session, so nothing was changed; go back and reload the page.";
        Err(ApiError::with_message(ErrorCode::InsufficientScope, message))
    }

    /// Creates a request with these `Sec-Fetch-Site`, `Origin` and `Host` headers, for tests.
    #[cfg(test)]
    pub fn with_origin(fetch_site: Option<&str>, origin: Option<&str>, host: &str) -> Self {
        Self {
            fetch_site: fetch_site.map(str::to_owned),
            origin: origin.map(str::to_owned),
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the fields of a form, for tests.
    #[cfg(test)]
    pub fn fields_of(text: &str) -> Result<Vec<(String, String)>, ApiError> {
        form_fields(text)
    }

    /// Returns the operators' session id from `Cookie` headers, for tests.
    #[cfg(test)]
    pub fn session_cookie_of(fields: &[&str]) -> Option<String> {
        find_session_cookie(fields.iter().copied(), "penstock_session")
    }
}
