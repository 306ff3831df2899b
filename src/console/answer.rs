//! Answers of the console, and the headers that all of them have.

use super::site::ConsoleSite;
use penstock_console::{Block, NoticeKind, Page};
use penstock_core::{ApiError, ErrorCode};

/// Policy of every page: files of this listener, nothing inline, no frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer.
pub const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";

/// Answer of the console.
#[derive(Debug)]
pub struct ConsoleAnswer {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: &'static str,
    /// Value of `cache-control`.
    pub cache: &'static str,
    /// Value of `location`.
    pub location: Option<String>,
    /// Values of `set-cookie`.
    pub cookies: Vec<String>,
    /// Name under which a browser saves the body, if it is no page.
    pub file_name: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

impl ConsoleAnswer {
    /// Creates a file to save. Its name has no quotes.
    #[must_use]
    pub fn file(kind: &'static str, file_name: String, body: Vec<u8>) -> Self {
        Self {
            status: 200,
            kind,
            cache: "no-store",
            location: None,
            cookies: Vec::new(),
            file_name: Some(file_name),
            body,
        }
    }

    /// Adds a cookie.
    #[must_use]
    pub fn with_cookie(mut self, cookie: String) -> Self {
        self.cookies.push(cookie);
        self
    }
}

/// Page with its status.
pub fn page(status: u16, page: &Page) -> ConsoleAnswer {
    let body = page.to_html().into_bytes();
    ConsoleAnswer {
        status,
        kind: HTML,
        cache: "no-store",
        location: None,
        cookies: Vec::new(),
        file_name: None,
        body,
    }
}

/// Redirect with GET to a path of the site.
pub fn redirect(path: &str) -> ConsoleAnswer {
    let location = Some(path.to_owned());
    ConsoleAnswer {
        status: 303,
        kind: HTML,
        cache: "no-store",
        location,
        cookies: Vec::new(),
        file_name: None,
        body: Vec::new(),
    }
}

/// Page that opens the first page of the site by itself, with a link for browsers that do not.
pub fn opening(site: &ConsoleSite, provider: &str) -> ConsoleAnswer {
    let link = (site.root.to_owned(), format!("Continue to the {}", site.title.to_lowercase()));
    let notice = Block::Notice(NoticeKind::Done, format!("You signed in with {provider}."));
    let of = Page {
        root: site.root,
        title: site.title.to_owned(),
        nav: Vec::new(),
        user: None,
        live: None,
        opens: Some(site.root),
        blocks: vec![notice, Block::Links(vec![link])],
    };
    page(200, &of)
}

/// Page after a sign-out, with the link to the provider's own.
pub fn signed_out(site: &ConsoleSite, link: (String, String)) -> ConsoleAnswer {
    let notice = Block::Notice(NoticeKind::Done, "You are signed out here.".to_owned());
    let again = (site.path("sign-in"), "Sign in again".to_owned());
    let of = Page {
        root: site.root,
        title: site.title.to_owned(),
        nav: Vec::new(),
        user: None,
        live: None,
        opens: None,
        blocks: vec![notice, Block::Links(vec![link, again])],
    };
    page(200, &of)
}

/// Static file.
///
/// # Errors
/// Returns 404 if there is no file of this name.
pub fn asset(name: &str) -> Result<ConsoleAnswer, ApiError> {
    let asset = penstock_console::find_asset(name).ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    let (kind, body) = (asset.kind, asset.body.to_vec());
    Ok(ConsoleAnswer {
        status: 200,
        kind,
        cache: "public, max-age=300",
        location: None,
        cookies: Vec::new(),
        file_name: None,
        body,
    })
}

/// Page with a refusal, for persons who are not signed in.
pub fn plain_refusal(site: &ConsoleSite, refusal: &ApiError) -> ConsoleAnswer {
    let notice = Block::Notice(NoticeKind::Error, refusal.message.to_string());
    let title = match refusal.code {
        ErrorCode::NotFound => "Not found",
        _ => "Refused",
    };
    let root = site.root;
    let of = Page {
        root,
        title: title.to_owned(),
        nav: Vec::new(),
        user: None,
        live: None,
        opens: None,
        blocks: vec![notice],
    };
    page(refusal.code.spec().status, &of)
}
