//! Settings of the account holders' dashboard.

use penstock_http_wire::host::KnownHosts;
use std::net::SocketAddr;

/// Dashboard for account holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// Addresses of its listeners; none if it is off.
    pub listen: Vec<SocketAddr>,
    /// Public scheme and host, without a slash at the end.
    pub public_url: Option<Box<str>>,
    /// Host names, including those of `public_url` and of the machine.
    pub hosts: KnownHosts,
}

impl ConsoleSettings {
    /// Returns true if browsers reach the dashboard by TLS only.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
    }
}
