//! HTTP client of the admin listener: one request per connection.

use crate::admin::ACTOR_HEADER;
use crate::config::{ConfigSource, GatewayAccess};
use crate::storage::stores::ADMIN_TOKEN_FILE;
use serde_json::Value;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;
use ureq::Agent;

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of each step after connecting: to send the request body, to receive the response head, and to receive the
/// response body. It is long, because a reload may have to read large tokenizers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// HTTP client of a running gateway's admin listener.
pub struct AdminClient {
    address: SocketAddr,
    token: String,
    agent: Agent,
}

/// Error of an admin request.
#[derive(Debug, PartialEq, Eq)]
pub enum AdminClientError {
    /// Connection refused: no process listens at the address.
    NotRunning(SocketAddr),
    /// Any other failure, as a sentence.
    Other(String),
}

impl From<AdminClientError> for String {
    fn from(failure: AdminClientError) -> Self {
        match failure {
            AdminClientError::NotRunning(address) => {
                format!("No gateway answers at {address}. Is it running, and with this configuration?")
            }
            AdminClientError::Other(why) => why,
        }
    }
}

/// Reads from a configuration the settings by which a command reaches the gateway or its store.
///
/// # Errors
/// Returns the mistakes in the configuration.
pub fn gateway_access(source: &ConfigSource) -> Result<GatewayAccess, String> {
    source.gateway_access().map_err(|report| report.format_mistakes("the address of the gateway is unknown"))
}

impl AdminClient {
    /// Connects to the gateway to find out whether one listens, and reads the admin token from its storage folder.
    ///
    /// # Errors
    /// Returns an error if no gateway listens, or if the token cannot be read.
    pub fn connect(reach: &GatewayAccess) -> Result<Self, AdminClientError> {
        let address = connectable_address(reach.admin);
        // A stopped gateway may leave an old token or none. Therefore the connection is tried first: otherwise the
        // error would be about the token.
        probe(address)?;
        let file = reach.folder.join(ADMIN_TOKEN_FILE);
        let token = std::fs::read_to_string(&file).map_err(|error| {
            let why = crate::config::describe_io_error(&error);
            AdminClientError::Other(format!("The admin token {} cannot be read: {why}.", file.display()))
        })?;
        Ok(Self { address, token: token.trim().to_owned(), agent: agent() })
    }

    /// Sends a request and returns the JSON of a successful answer; `null` if its body is not JSON.
    ///
    /// # Errors
    /// Returns the error message of the gateway, or the reason why there is no answer.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, AdminClientError> {
        let body = self.send_bytes(method, path, body)?;
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sends a GET request and returns the bytes of a successful answer.
    ///
    /// # Errors
    /// Same as [`AdminClient::send`].
    pub fn get_bytes(&self, path: &str) -> Result<Vec<u8>, AdminClientError> {
        self.send_bytes("GET", path, None)
    }

    fn send_bytes(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, AdminClientError> {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {}", self.token))
            .header(ACTOR_HEADER, super::backend::cli_actor())
            .header("content-type", "application/json")
            .body(body.map(Value::to_string).unwrap_or_default())
            .map_err(|error| AdminClientError::Other(format!("The path {path} cannot be sent: {error}.")))?;
        let mut answer = self.agent.run(request).map_err(|error| self.describe(&error))?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
        let body = body.map_err(|error| self.describe(&error))?;
        if status.is_success() {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let message = value.pointer("/error/message").and_then(Value::as_str);
        Err(AdminClientError::Other(message.map_or_else(
            || {
                format!(
                    "The process at {} answers with {}. Is it the gateway?",
                    self.address,
                    status.as_u16()
                )
            },
            str::to_owned,
        )))
    }

    fn describe(&self, error: &ureq::Error) -> AdminClientError {
        let address = self.address;
        match error {
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                AdminClientError::NotRunning(address)
            }
            ureq::Error::Protocol(_) => AdminClientError::Other(format!(
                "The process at {address} does not speak HTTP. Is it the gateway?"
            )),
            ureq::Error::BodyExceedsLimit(limit) => {
                AdminClientError::Other(format!("The answer of the gateway exceeds {limit} bytes."))
            }
            other => {
                AdminClientError::Other(format!("The connection to the gateway at {address} broke: {other}."))
            }
        }
    }
}

/// Creates the HTTP agent. It connects directly, even if the environment names a proxy.
fn agent() -> Agent {
    Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .max_idle_connections(0)
        .user_agent(concat!("penstock/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_send_body(Some(ANSWER_TIMEOUT))
        .timeout_recv_response(Some(ANSWER_TIMEOUT))
        .timeout_recv_body(Some(ANSWER_TIMEOUT))
        .build()
        .into()
}

/// Replaces an unspecified address (all interfaces) by the loopback address.
pub fn connectable_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Checks that a process listens at the address.
fn probe(address: SocketAddr) -> Result<(), AdminClientError> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map(drop).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => AdminClientError::NotRunning(address),
        _ => AdminClientError::Other(format!("The gateway at {address} cannot be reached: {error}.")),
    })
}
