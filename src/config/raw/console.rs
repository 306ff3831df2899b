//! `[console]` as written in a configuration: the listener of the account holders' dashboard.

use super::OneOrMany;
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
    /// Public base URL of the dashboard, that of the proxy with TLS before it. With `https` browsers send the session's
    /// cookie over TLS only.
    #[schemars(length(min = 1), example = &"https://account.example.eu")]
    pub public_url: Option<String>,
    /// Host names of the dashboard without port, in addition to those of `public_url`, the machine, localhost and IP
    /// addresses. Requests for any other name are refused.
    #[schemars(inner(length(min = 1)), example = &["account.example.eu"])]
    pub hosts: Vec<String>,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self { listen: OneOrMany::Many(Vec::new()), public_url: None, hosts: Vec::new() }
    }
}
