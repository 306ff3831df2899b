//! Settings of the account holders' dashboard, and of the sign-in to the dashboard and to the operators' console.

use super::super::secret::SecretText;
use super::{BaseUrl, TlsSettings};
use penstock_http_wire::host::ServedHosts;
use penstock_storage::users::UserRole;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Dashboard for account holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// Addresses of the dashboard's listeners; empty if the dashboard is off.
    pub listen: Vec<SocketAddr>,
    /// Public scheme and host, without a slash at the end; `None` if they are not configured.
    pub public_url: Option<Box<str>>,
    /// Host names, including those of `public_url` and of the machine.
    pub hosts: ServedHosts,
    /// TLS of the listeners; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Sign-in by OpenID Connect; `None` if persons sign in by password only.
    pub openid: Option<OpenIdSettings>,
}

impl ConsoleSettings {
    /// Returns true if browsers reach the dashboard by TLS only.
    #[must_use]
    pub fn is_tls_only(&self) -> bool {
        self.tls.is_some() || self.has_https_public_url()
    }

    /// Returns true if the public URL is `https`.
    #[must_use]
    pub fn has_https_public_url(&self) -> bool {
        self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
    }
}

/// Sign-in by OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdSettings {
    /// Issuer URL of the OpenID provider, exactly as its tokens contain it.
    pub issuer: Box<str>,
    /// Parsed issuer URL of the OpenID provider.
    pub base: BaseUrl,
    /// OAuth client id of this gateway at the OpenID provider.
    pub client_id: Box<str>,
    /// OAuth client secret of this gateway; `None` for a public client.
    pub client_secret: Option<SecretText>,
    /// Path of the CA certificates that verify the provider instead of the system's, PEM.
    pub ca: Option<PathBuf>,
    /// Name of the provider on the sign-in pages.
    pub name: Box<str>,
    /// OpenID scopes that a sign-in requests; `openid` is the first.
    pub scopes: Vec<Box<str>>,
    /// Claim with the name of a new user.
    pub name_claim: Box<str>,
    /// Claim with the roles of a person.
    pub roles_claim: Box<str>,
    /// Claim with the account of an account holder; if `None`, account holders need an invitation.
    pub account_claim: Option<Box<str>>,
    /// Values of the roles' claim for each role, in order of precedence.
    pub roles: Vec<(UserRole, Vec<Box<str>>)>,
    /// Public scheme and host of the operators' console; if `None`, the address to which the browser connects is used.
    pub operators_url: Option<Box<str>>,
}

impl OpenIdSettings {
    /// Returns the first role for which the roles' claim has a value; `None` if there is none.
    #[must_use]
    pub fn role_from_claim(&self, claim_values: &[&str]) -> Option<UserRole> {
        let has = |names: &[Box<str>]| names.iter().any(|name| claim_values.contains(&&**name));
        self.roles.iter().find(|(_, names)| has(names)).map(|(role, _)| *role)
    }
}
