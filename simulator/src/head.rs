//! A request as it was read, in either HTTP version.

use super::control::Call;
use bytes::Bytes;
use http::HeaderMap;

/// Largest body that is read: more than any gateway should send on.
pub(super) const MOST_BODY: usize = 256 << 20;

/// One request, its body whole.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Its method.
    pub method: String,
    /// Its path, query included.
    pub path: String,
    /// Whether it came over HTTP/2.
    pub h2: bool,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Request {
    /// The path without query.
    pub(super) fn route(&self) -> &str {
        self.path.split_once('?').map_or(self.path.as_str(), |(path, _)| path)
    }

    /// As it is remembered.
    pub(super) fn call(&self) -> Call {
        Call {
            method: self.method.clone(),
            path: self.path.clone(),
            h2: self.h2,
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }
}
