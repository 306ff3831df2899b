//! `[listen]` as users write it: the addresses, and who is spoken to over TLS.

use super::OneOrMany;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the gateway listens. Addresses are `IP:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Listen {
    /// Plain HTTP: one address or several; `[]` for none.
    #[schemars(example = &"0.0.0.0:8080")]
    pub http: OneOrMany,
    /// HTTP over TLS.
    pub https: Option<Https>,
    /// Where clients reach the gateway, for addresses in its answers. When left out they start with the host of the
    /// request if that is known (`hosts`, localhost, an address of this machine), else with the path.
    #[schemars(length(min = 1), example = &"https://api.example.eu")]
    pub public_url: Option<String>,
    /// Names under which this gateway is reached, without port, beside that of `public_url`, the machine's own, localhost
    /// and IP addresses. The admin listener answers under no other.
    #[schemars(inner(length(min = 1)), example = &["penstock", "metrics.example.eu"])]
    pub hosts: Vec<String>,
    /// Origins of web pages that may call the gateway (CORS), such as `https://app.example.eu`; `["*"]` for any, `[]`
    /// for none.
    #[schemars(example = &["https://app.example.eu"])]
    pub cors: Vec<String>,
    /// Where the operator's own documentation stands; `GET /` names it.
    #[schemars(length(min = 1), example = &"https://docs.example.eu")]
    pub documentation: Option<String>,
    /// Metrics, health and administration. Keep it from the public.
    #[schemars(extend("format" = "address"), example = &"127.0.0.1:9090")]
    pub admin: String,
}

/// HTTP over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Https {
    /// Where.
    #[schemars(extend("format" = "address"), example = &"0.0.0.0:8443")]
    pub address: String,
    /// Certificate chain, PEM.
    #[schemars(length(min = 1), example = &"tls/fullchain.pem")]
    pub certificate: String,
    /// Private key, PEM.
    #[schemars(length(min = 1), example = &"tls/key.pem")]
    pub key: String,
    /// Whose certificates clients may show, PEM; none is asked for when left out.
    #[schemars(length(min = 1), example = &"tls/clients.pem")]
    pub client_ca: Option<String>,
    /// Whether a client has to show one, where `client_ca` says whose; `required` when left out.
    pub client_certificate: Option<ClientCertificates>,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_tls: TlsVersion,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ClientCertificates {
    #[default]
    Required,
    Optional,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: OneOrMany::One("127.0.0.1:8080".into()),
            https: None,
            public_url: None,
            hosts: Vec::new(),
            cors: vec!["*".to_owned()],
            documentation: None,
            admin: "127.0.0.1:9090".into(),
        }
    }
}
