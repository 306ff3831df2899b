//! HTTP requests to an OpenID provider, sent with Pingora's connector: each uses a new connection and has a timeout for
//! the whole request and a size limit for the response.

use crate::config::parse_base_url;
use crate::config::settings::{BaseUrl, OpenIdSettings};
use crate::upstream::pem_copy::PemCopy;
use http::{Method, header};
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::v1::Connector;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a request, from the lookup of the name to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// Failure of a request to an OpenID provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// Failure to resolve the name or to connect, or a certificate that is not trusted.
    Connect,
    /// Timeout before the answer was complete.
    Timeout,
    /// The answer is larger than allowed.
    TooLarge,
    /// The connection broke off, or the answer is not HTTP.
    Broken,
}

impl FetchError {
    /// Returns the reason for the log.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Connect => "no connection, or an untrusted certificate",
            Self::Timeout => "no complete answer in time",
            Self::TooLarge => "the answer is too large",
            Self::Broken => "the connection broke off",
        }
    }
}

/// Response of an OpenID provider.
pub struct FetchAnswer {
    /// HTTP status of the provider's response.
    pub status: u16,
    /// Body of the provider's response.
    pub body: Vec<u8>,
}

/// HTTP client of one provider.
pub struct ProviderClient {
    /// Connector; `None` if the configured CA certificates cannot be used, so that nothing is trusted.
    connector: Option<Connector>,
}

impl ProviderClient {
    /// Creates a client that trusts the configured CA certificates, by default those of the system.
    pub fn new(settings: &OpenIdSettings) -> Self {
        let mut options = ConnectorOptions::new(1);
        let Ok(roots) = settings.ca.as_deref().map(PemCopy::of_root_certificates).transpose() else {
            return Self { connector: None };
        };
        options.ca_file = roots.as_ref().map(PemCopy::path);
        Self { connector: Some(Connector::new(Some(options))) }
    }

    /// Returns false if the configured CA certificates could not be used when the client was created.
    pub const fn is_usable(&self) -> bool {
        self.connector.is_some()
    }

    /// Reads a URL with GET.
    ///
    /// # Errors
    /// Returns the failure; a response with an error status is not a failure.
    pub async fn get(&self, url: &str) -> Result<FetchAnswer, FetchError> {
        self.send(Method::GET, url, None, b"").await
    }

    /// Sends a form with POST.
    ///
    /// # Errors
    /// Same as for [`ProviderClient::get`].
    pub async fn post(
        &self,
        url: &str,
        authorization: Option<&str>,
        form: &str,
    ) -> Result<FetchAnswer, FetchError> {
        self.send(Method::POST, url, authorization, form.as_bytes()).await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        authorization: Option<&str>,
        body: &[u8],
    ) -> Result<FetchAnswer, FetchError> {
        // Endpoints may have a query, which a [`BaseUrl`] cannot contain.
        let (origin, target) = split_url(url).ok_or(FetchError::Connect)?;
        let head = request_head(method, &origin, target, authorization, body).ok_or(FetchError::Broken)?;
        let exchange = self.exchange(&origin, head, body);
        timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or(Err(FetchError::Timeout))
    }

    async fn exchange(
        &self,
        origin: &BaseUrl,
        head: RequestHeader,
        body: &[u8],
    ) -> Result<FetchAnswer, FetchError> {
        let connector = self.connector.as_ref().ok_or(FetchError::Connect)?;
        let addresses = tokio::net::lookup_host((&*origin.host, origin.port));
        let addresses: Vec<SocketAddr> =
            addresses.await.map_err(|_| FetchError::Connect)?.take(MAX_ADDRESSES).collect();
        let mut session = Err(FetchError::Connect);
        for address in addresses {
            let mut peer = HttpPeer::new(address, origin.tls, origin.host.to_string());
            peer.options.connection_timeout = Some(CONNECT_TIMEOUT);
            peer.options.total_connection_timeout = Some(CONNECT_TIMEOUT);
            peer.options.set_http_version(1, 1);
            if let Ok((opened, _)) = connector.get_http_session(&peer).await {
                session = Ok(opened);
                break;
            }
        }
        let mut session = session?;
        let broken = |_| FetchError::Broken;
        session.write_request_header(Box::new(head)).await.map_err(broken)?;
        if !body.is_empty() {
            session.write_body(body).await.map_err(broken)?;
        }
        session.finish_body().await.map_err(broken)?;
        let status = session.read_resp_header_parts().await.map_err(broken)?.status.as_u16();
        let mut answer = Vec::new();
        while let Some(piece) = session.read_body_ref().await.map_err(broken)? {
            if answer.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(FetchError::TooLarge);
            }
            answer.extend_from_slice(piece);
        }
        Ok(FetchAnswer { status, body: answer })
    }
}

/// Splits a URL into its origin and the target of a request.
fn split_url(url: &str) -> Option<(BaseUrl, &str)> {
    let start = url.find("://")? + 3;
    let rest = url.get(start..)?;
    let end = start + rest.find(['/', '?']).unwrap_or(rest.len());
    let (origin, target) = url.split_at_checked(end)?;
    Some((parse_base_url(origin).ok()?, target))
}

fn request_head(
    method: Method,
    origin: &BaseUrl,
    target: &str,
    authorization: Option<&str>,
    body: &[u8],
) -> Option<RequestHeader> {
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let has_body = method == Method::POST;
    let mut head = RequestHeader::build(method, target.as_bytes(), Some(8)).ok()?;
    head.insert_header(header::HOST, &*origin.authority).ok()?;
    head.insert_header(header::ACCEPT, "application/json").ok()?;
    head.insert_header(header::CONNECTION, "close").ok()?;
    head.insert_header(header::USER_AGENT, concat!("penstock/", env!("CARGO_PKG_VERSION"))).ok()?;
    if has_body {
        head.insert_header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").ok()?;
        head.insert_header(header::CONTENT_LENGTH, body.len()).ok()?;
    }
    if let Some(value) = authorization {
        head.insert_header(header::AUTHORIZATION, value).ok()?;
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_is_its_origin_and_the_target() {
        for (url, authority, target) in [
            ("https://login.example.eu/a/b?c=d", "login.example.eu", "/a/b?c=d"),
            ("https://login.example.eu:8443?c", "login.example.eu:8443", "?c"),
            ("http://127.0.0.1:80", "127.0.0.1", ""),
        ] {
            let (origin, rest) = split_url(url).unwrap();
            assert_eq!((&*origin.authority, rest), (authority, target));
        }
        for bad in ["", "login.example.eu", "ftp://x/", "https://", "https://a@b/"] {
            assert!(split_url(bad).is_none(), "{bad}");
        }
    }
}
