//! `[listen]` as written in a configuration: addresses, TLS and client certificates.

use super::OneOrMany;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Listen addresses of the gateway, as `IP:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ListenConfig {
    /// Addresses for plain HTTP: one or several; `[]` for none.
    #[schemars(example = &"0.0.0.0:8080")]
    pub http: OneOrMany,
    /// HTTP over TLS.
    pub https: Option<HttpsConfig>,
    /// Public base URL of the gateway, used for URLs in its answers. By default these start with the host of the
    /// request if it is known (`hosts`, localhost, an address of this machine), otherwise with the path.
    #[schemars(length(min = 1), example = &"https://api.example.eu")]
    pub public_url: Option<String>,
    /// Host names of this gateway without port, in addition to those of `public_url`, the machine, localhost and IP
    /// addresses. The admin listener refuses requests for any other name.
    #[schemars(inner(length(min = 1)), example = &["penstock", "metrics.example.eu"])]
    pub hosts: Vec<String>,
    /// Origins of web pages that may call the gateway (CORS), such as `https://app.example.eu`; `["*"]` for any, `[]`
    /// for none.
    #[schemars(example = &["https://app.example.eu"])]
    pub cors: Vec<String>,
    /// URL of the operator's own documentation; `GET /` returns it.
    #[schemars(length(min = 1), example = &"https://docs.example.eu")]
    pub documentation: Option<String>,
    /// Address for metrics, health and administration. Do not expose it to the public.
    #[schemars(extend("format" = "address"), example = &"127.0.0.1:9090")]
    pub admin: String,
}

/// HTTP over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct HttpsConfig {
    /// Listen address.
    #[schemars(extend("format" = "address"), example = &"0.0.0.0:8443")]
    pub address: String,
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

/// Policy for client certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ClientCertificatePolicy {
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

impl Default for ListenConfig {
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
