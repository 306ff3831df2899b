//! Errors of a bucket, classified by how the caller should react. They never contain a URL, a header or a body.

use std::error::Error;
use std::io;
use thiserror::Error;

/// Maximum length of the store's error code in a message, in bytes.
const MAX_CODE: usize = 40;
/// Maximum length of the description of a transport error in a message, in characters.
const MAX_CAUSE: usize = 120;
/// Error codes after which a later retry may succeed, whatever the HTTP status is. A response with status 200 can
/// have one of the first two in its body. The others mean that the credentials have expired, and their issuer will
/// renew them, or that the token service could not reach that issuer.
const TEMPORARY_CODES: [&str; 6] = [
    "InternalError",
    "SlowDown",
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "IDPCommunicationError",
];

/// Error of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BucketError {
    /// Object that does not exist.
    #[error("there is no such object")]
    NotFound,
    /// Object that exists already.
    #[error("there is an object of this name")]
    AlreadyExists,
    /// Object that differs from the one that was opened.
    #[error("the object was replaced")]
    Replaced,
    /// Store that cannot be reached, does not answer in time, or fails, or a token that has expired or cannot be
    /// read. A later retry may succeed.
    #[error("the store of files cannot be reached: {0}")]
    Unreachable(String),
    /// Request that the store refuses; a retry without a change would not help.
    #[error("the store of files refuses a request: {0}")]
    Refused(String),
}

impl BucketError {
    /// Returns the bucket error inside an I/O error, if there is one.
    #[must_use]
    pub fn from_io_error(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|cause| cause.downcast_ref())
    }

    /// Returns true for [`Self::Unreachable`]: a later retry may succeed.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

impl From<BucketError> for io::Error {
    fn from(error: BucketError) -> Self {
        let kind = match &error {
            BucketError::NotFound => io::ErrorKind::NotFound,
            BucketError::AlreadyExists => io::ErrorKind::AlreadyExists,
            BucketError::Replaced => io::ErrorKind::InvalidData,
            BucketError::Unreachable(_) => io::ErrorKind::HostUnreachable,
            BucketError::Refused(_) => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error)
    }
}

impl From<object_store::Error> for BucketError {
    fn from(error: object_store::Error) -> Self {
        let text = full_text(&error);
        let code = error_code(&text);
        let status = status_code(&text);
        let is_token_unreadable =
            status.is_none() && code.is_none() && text.contains("Failed to read token file");
        let described = || match (status, code) {
            (Some(status), Some(code)) => format!("status {status}, {code}"),
            (Some(status), None) => format!("status {status}"),
            (None, Some(code)) => code.to_owned(),
            (None, None) if is_token_unreadable => {
                "the file of the web identity's token cannot be read".to_owned()
            }
            (None, None) if text.contains("Invalid AssumeRoleWithWebIdentity response") => {
                "an answer that is not of a security token service".to_owned()
            }
            (None, None) => "an answer that is not of an S3 store".to_owned(),
        };
        match &error {
            object_store::Error::NotFound { .. } if code != Some("NoSuchBucket") => Self::NotFound,
            object_store::Error::AlreadyExists { .. } => Self::AlreadyExists,
            object_store::Error::Precondition { .. } => Self::Replaced,
            _ => match (transport_cause(&error), status) {
                (Some(cause), _) => Self::Unreachable(cause),
                (None, Some(status)) if is_temporary_status(status) => Self::Unreachable(described()),
                (None, _) if is_token_unreadable => Self::Unreachable(described()),
                (None, _) if code.is_some_and(|code| TEMPORARY_CODES.contains(&code)) => {
                    Self::Unreachable(described())
                }
                (None, _) => Self::Refused(described()),
            },
        }
    }
}

/// Returns true if a later retry may succeed after a response with this status. Status 501 is permanent: the store
/// lacks the feature.
pub(super) const fn is_temporary_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502..)
}

/// Returns the text of the error and all its causes. The text must not appear in messages, because it contains URLs
/// and bodies.
fn full_text(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text.push_str(": ");
        text.push_str(&deeper.to_string());
        cause = deeper.source();
    }
    text
}

/// Returns the error code in the store's response, such as `NoSuchBucket`; `None` also if it is longer than
/// [`MAX_CODE`] or has other characters than letters and digits.
fn error_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = code.len() <= MAX_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_code && !code.is_empty()).then_some(code)
}

/// Returns the HTTP status of the store's response; `None` if there was none, or its status was 2xx.
fn status_code(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Returns the innermost cause of a transport error; `None` for other errors.
fn transport_cause(error: &object_store::Error) -> Option<String> {
    let mut cause: &(dyn Error + 'static) = error;
    let mut is_transport = false;
    while let Some(deeper) = cause.source() {
        is_transport |= deeper.is::<object_store::client::HttpError>();
        cause = deeper;
    }
    is_transport.then(|| {
        let text: String = cause.to_string().chars().take(MAX_CAUSE).collect();
        // A text with a URL is replaced, although the innermost cause should never contain one.
        if text.contains("://") { "the connection failed".to_owned() } else { text }
    })
}
