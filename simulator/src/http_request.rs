//! Parsed request of either HTTP version.

use super::control::RecordedCall;
use bytes::Bytes;
use http::HeaderMap;

/// Limit on the body of a request: more than any gateway should send.
pub(super) const MAX_BODY_BYTES: usize = 256 << 20;

/// Request with its buffered body.
#[derive(Clone, Debug)]
pub(super) struct HttpRequest {
    /// Method of the request.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// True if the request came over HTTP/2.
    pub h2: bool,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Bytes,
}

impl HttpRequest {
    /// Returns the path without query.
    pub(super) fn path_only(&self) -> &str {
        self.path.split_once('?').map_or(self.path.as_str(), |(path, _)| path)
    }

    /// Returns the request as it is recorded.
    pub(super) fn to_recorded_call(&self) -> RecordedCall {
        RecordedCall {
            method: self.method.clone(),
            path: self.path.clone(),
            h2: self.h2,
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }
}
