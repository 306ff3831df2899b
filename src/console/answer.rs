//! Responses of the console, and the headers that all of them have.

use super::file_download::FileDownload;
use super::live::LiveStream;
use super::site::ConsoleSite;
use penstock_console::{Block, Form, Language, NoticeKind, Page, Text};
use penstock_core::{ApiError, ErrorCode};

/// Policy of every page: files of this listener only, nothing inline, no frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every response of the console.
pub const RESPONSE_HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";

/// HTTP response of the console.
#[derive(Debug)]
pub struct ConsoleAnswer {
    /// HTTP status of the response.
    pub status: u16,
    /// Content type of the response.
    pub content_type: &'static str,
    /// Value of `cache-control`.
    pub cache: &'static str,
    /// Value of `location`.
    pub location: Option<String>,
    /// Value of `retry-after`, in seconds.
    pub retry_after: Option<u32>,
    /// True if the script that updates a page has to load the page again instead.
    pub reloads_page: bool,
    /// Value of `allow`: the methods that the path supports.
    pub allow: Option<String>,
    /// Values of `set-cookie`.
    pub cookies: Vec<String>,
    /// Name under which the browser saves `body`; `None` if `body` is not an attachment.
    pub file_name: Option<String>,
    /// Body of the response.
    pub body: Vec<u8>,
    /// Contents that are sent piece by piece instead of `body`; `None` for a complete answer.
    pub stream: Option<AnswerStream>,
}

/// Contents of a response that are sent piece by piece.
#[derive(Debug)]
pub enum AnswerStream {
    /// Events with live figures.
    Live(Box<LiveStream>),
    /// Contents of a file.
    File(FileDownload),
}

impl ConsoleAnswer {
    fn new(status: u16, kind: &'static str, body: Vec<u8>) -> Self {
        let (location, cookies, file_name) = (None, Vec::new(), None);
        Self {
            status,
            content_type: kind,
            cache: "no-store",
            location,
            retry_after: None,
            reloads_page: false,
            allow: None,
            cookies,
            file_name,
            body,
            stream: None,
        }
    }

    /// Creates a response that the browser saves as a file. The file name must not contain quotes.
    #[must_use]
    pub fn attachment_answer(kind: &'static str, file_name: String, body: Vec<u8>) -> Self {
        Self { file_name: Some(file_name), ..Self::new(200, kind, body) }
    }

    /// Adds the time after which a refused request may be repeated.
    #[must_use]
    pub fn with_retry_after(mut self, refusal: &ApiError) -> Self {
        self.retry_after = refusal.retry_after;
        self
    }

    /// Adds a `set-cookie` header to the response.
    #[must_use]
    pub fn with_cookie(mut self, cookie: String) -> Self {
        self.cookies.push(cookie);
        self
    }
}

/// Creates the response of a page with this status.
pub fn page_answer(status: u16, page: &Page) -> ConsoleAnswer {
    ConsoleAnswer::new(status, HTML, page.to_html().into_bytes())
}

/// Creates a redirect to a path of the site, which the browser opens with GET.
pub fn redirect_answer(path: &str) -> ConsoleAnswer {
    ConsoleAnswer { location: Some(path.to_owned()), ..ConsoleAnswer::new(303, HTML, Vec::new()) }
}

/// Creates the response to an automatic update of a page that has to be loaded again.
pub fn reload_answer() -> ConsoleAnswer {
    ConsoleAnswer { reloads_page: true, ..ConsoleAnswer::new(200, HTML, Vec::new()) }
}

/// Creates the response of an event stream.
pub fn stream_answer(stream: LiveStream) -> ConsoleAnswer {
    ConsoleAnswer {
        stream: Some(AnswerStream::Live(Box::new(stream))),
        ..ConsoleAnswer::new(200, HTML, Vec::new())
    }
}

/// Creates the response with the contents of a file.
pub fn download_answer(file: FileDownload) -> ConsoleAnswer {
    ConsoleAnswer { stream: Some(AnswerStream::File(file)), ..ConsoleAnswer::new(200, HTML, Vec::new()) }
}

/// Creates a page that opens the page `wanted` of the site automatically. It also has a link, for browsers that do not
/// open the page.
pub fn self_redirecting_page(
    site: &ConsoleSite,
    wanted: &str,
    language: Language,
    provider: &str,
) -> ConsoleAnswer {
    let link = (wanted.to_owned(), "Continue".into());
    let text = Text::with_values("You signed in with {0}.", [provider.to_owned().into()]);
    let blocks = vec![Block::Notice(NoticeKind::Success, text), Block::Links(vec![link])];
    let of = Page::without_session(site.root, language, site.root, site.title, blocks);
    page_answer(200, &Page { redirect_path: Some(wanted.to_owned()), ..of })
}

/// Creates the page after a sign-out, with the link to sign out at the OpenID provider too.
pub fn signed_out_page(site: &ConsoleSite, language: Language, link: (String, Text)) -> ConsoleAnswer {
    let notice = Block::Notice(NoticeKind::Success, "You are signed out here.".into());
    let sign_in = site.path("sign-in");
    let blocks = vec![notice, Block::Links(vec![link, (sign_in.clone(), "Sign in again".into())])];
    page_answer(200, &Page::without_session(site.root, language, &sign_in, site.title, blocks))
}

/// Creates the message of a refusal, in the language of the page if the translation tables have its text.
pub fn refusal_notice(refusal: &ApiError) -> Block {
    Block::Notice(NoticeKind::Error, Text::from_refusal(&refusal.message))
}

/// Creates the blocks of a refused form: the form, with the reason at the field that it concerns, below a message.
pub fn refused_form_blocks(form: Form, refusal: &ApiError) -> Vec<Block> {
    let notice = match form.error_count() {
        0 => refusal_notice(refusal),
        1 => Block::Notice(NoticeKind::Error, "Please correct the marked field.".into()),
        _ => Block::Notice(NoticeKind::Error, "Please correct the marked fields.".into()),
    };
    vec![notice, Block::Form(form)]
}

/// Returns a static file.
///
/// # Errors
/// Returns 404 if there is no file of this name.
pub fn asset_answer(name: &str) -> Result<ConsoleAnswer, ApiError> {
    let asset = penstock_console::find_asset(name).ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    let answer = ConsoleAnswer::new(200, asset.content_type, asset.body.to_vec());
    Ok(ConsoleAnswer { cache: "public, max-age=300", ..answer })
}

/// Creates a page with a refusal, for persons who are not signed in.
pub fn refusal_page(site: &ConsoleSite, language: Language, refusal: &ApiError) -> ConsoleAnswer {
    let answer = page_answer(refusal.code.spec().status, &refusal_content(site, language, refusal));
    let allow = refusal.details.get("allow").and_then(|allow| allow.as_str()).map(str::to_owned);
    ConsoleAnswer { allow, ..answer }.with_retry_after(refusal)
}

/// Returns the page of a refusal.
pub fn refusal_content(site: &ConsoleSite, language: Language, refusal: &ApiError) -> Page {
    let title = match refusal.code {
        ErrorCode::NotFound => "Not found",
        _ => "Refused",
    };
    Page::without_session(site.root, language, site.root, title, vec![refusal_notice(refusal)])
}
