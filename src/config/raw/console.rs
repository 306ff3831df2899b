//! `[console]` as written in a configuration: the listener of the account holders' dashboard, and the sign-in to both
//! sites by OpenID Connect.

use super::{ClientCertificatePolicy, OneOrMany, SecretRef, TlsVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Dashboard for account holders, on a listener of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ConsoleConfig {
    /// Addresses of the dashboard, as `IP:port`: one or several; `[]` for none. The operators' console is at
    /// `listen.admin`.
    #[schemars(example = &"127.0.0.1:8090")]
    pub listen: OneOrMany,
    /// Public base URL of the dashboard, such as that of a TLS proxy in front of it. With `https`, browsers send the
    /// session's cookie over TLS only.
    #[schemars(length(min = 1), example = &"https://account.example.eu")]
    pub public_url: Option<String>,
    /// Host names of the dashboard without port, in addition to those of `public_url`, the machine, localhost and IP
    /// addresses. Requests for any other name are refused.
    #[schemars(inner(length(min = 1)), example = &["account.example.eu"])]
    pub hosts: Vec<String>,
    /// TLS of the dashboard's addresses. Without it they serve plain HTTP, for a TLS proxy in front of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConsoleTlsConfig>,
    /// Sign-in by OpenID Connect, to the dashboard and to the operators' console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcConfig>,
}

/// TLS of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ConsoleTlsConfig {
    /// Certificate chain, PEM.
    #[schemars(length(min = 1), example = &"tls/fullchain.pem")]
    pub certificate: String,
    /// Private key, PEM.
    #[schemars(length(min = 1), example = &"tls/key.pem")]
    pub key: String,
    /// CA certificates for client certificates, PEM; by default no client certificate is requested.
    #[schemars(length(min = 1), example = &"tls/clients.pem")]
    pub client_ca: Option<String>,
    /// Policy for client certificates if `client_ca` is set; `required` by default.
    pub client_certificate: Option<ClientCertificatePolicy>,
    /// Minimum TLS version.
    #[serde(default)]
    pub min_tls: TlsVersion,
}

/// Sign-in by OpenID Connect: authorization code flow with PKCE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct OidcConfig {
    /// URL of the OpenID provider, exactly as its tokens name it. `http` is allowed for loopback addresses.
    #[schemars(length(min = 1), example = &"https://login.example.eu/realms/main")]
    pub issuer: String,
    /// Id of this gateway at the provider.
    #[schemars(length(min = 1, max = 255), example = &"penstock")]
    pub client_id: String,
    /// Secret of this gateway at the provider; none for a public client.
    pub client_secret: Option<SecretRef>,
    /// CA certificates that verify the provider's certificate instead of the system's, PEM.
    #[schemars(length(min = 1), example = &"tls/login-ca.pem")]
    pub ca: Option<String>,
    /// Name of the provider on the pages to sign in.
    #[serde(default = "default_provider_name")]
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Scopes that are asked for in addition to `openid`.
    #[serde(default = "default_scopes")]
    #[schemars(inner(length(min = 1)))]
    pub scopes: Vec<String>,
    /// Claim with the name of a new user. A path such as `a.b` names a member of an object.
    #[serde(default = "default_name_claim")]
    #[schemars(length(min = 1))]
    pub name_claim: String,
    /// Claim with the roles of a person, a text or a list.
    #[serde(default = "default_roles_claim")]
    #[schemars(length(min = 1), example = &"realm_access.roles")]
    pub roles_claim: String,
    /// Claim with the id of the account of an account holder. Without it, account holders need an invitation.
    #[schemars(length(min = 1), example = &"penstock_account")]
    pub account_claim: Option<String>,
    /// Values of the roles' claim for each role.
    #[serde(default)]
    pub roles: OidcRolesConfig,
    /// Public base URL of the operators' console, such as that of a TLS proxy in front of it; by default the address to
    /// which the browser connects.
    #[schemars(length(min = 1), example = &"https://operators.example.eu")]
    pub operators_url: Option<String>,
}

/// Values of the roles' claim that give a role. A person with several of them gets the first role in the order of this
/// list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct OidcRolesConfig {
    /// Values of an administrator.
    pub admin: Vec<String>,
    /// Values of an operator.
    pub operator: Vec<String>,
    /// Values of a person who sees accounts and invoices.
    pub finance: Vec<String>,
    /// Values of a person who sees what operators see, without money.
    pub viewer: Vec<String>,
    /// Values of an account holder.
    pub account: Vec<String>,
}

impl Default for OidcRolesConfig {
    fn default() -> Self {
        let role = |name: &str| vec![format!("penstock-{name}")];
        Self {
            admin: role("admin"),
            operator: role("operator"),
            finance: role("finance"),
            viewer: role("viewer"),
            account: role("account"),
        }
    }
}

fn default_provider_name() -> String {
    "OpenID Connect".to_owned()
}

fn default_scopes() -> Vec<String> {
    vec!["profile".to_owned(), "email".to_owned()]
}

fn default_name_claim() -> String {
    "preferred_username".to_owned()
}

fn default_roles_claim() -> String {
    "roles".to_owned()
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self {
            listen: OneOrMany::Many(Vec::new()),
            public_url: None,
            hosts: Vec::new(),
            tls: None,
            oidc: None,
        }
    }
}
