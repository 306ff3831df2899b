//! Minimal HTTP/1.1 client for the admin listener: one request per connection.

use super::configuration::format_refusal;
use crate::admin::ACTOR;
use crate::config::{AdminTarget, ConfigSource};
use crate::storage::stores::ADMIN_TOKEN_FILE;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Timeouts: to connect, and for the answer. A reload may have to read large tokenizers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// Admin client of a running gateway.
pub struct Client {
    address: SocketAddr,
    token: String,
}

/// Error of an admin request.
#[derive(Debug, PartialEq, Eq)]
pub enum AdminClientError {
    /// Connection refused: no process listens at the address.
    NotRunning(SocketAddr),
    /// Any other reason, as a sentence.
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

/// Reads the address of the gateway from its configuration.
///
/// # Errors
/// Returns the mistakes in the configuration.
pub fn admin_target(source: &ConfigSource) -> Result<AdminTarget, String> {
    source.admin_target().map_err(|report| format_refusal(&report, "the address of the gateway is unknown"))
}

impl Client {
    /// Creates a client with the admin token in the gateway's storage folder.
    ///
    /// # Errors
    /// Returns an error if no gateway listens, or if the token cannot be read.
    pub fn new(reach: &AdminTarget) -> Result<Self, AdminClientError> {
        let address = connectable_address(reach.admin);
        // A stopped gateway leaves an old token or none. So connect first: otherwise the error would be about the
        // token.
        connect(address)?;
        let file = reach.folder.join(ADMIN_TOKEN_FILE);
        let token = std::fs::read_to_string(&file).map_err(|error| {
            let why = crate::config::describe_io_error(&error);
            AdminClientError::Other(format!("The admin token {} cannot be read: {why}.", file.display()))
        })?;
        Ok(Self { address, token: token.trim().to_owned() })
    }

    /// Sends a request and returns the JSON of a successful answer.
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
    /// Same as [`Client::send`].
    pub fn text(&self, path: &str) -> Result<Vec<u8>, AdminClientError> {
        self.send_bytes("GET", path, None)
    }

    fn send_bytes(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, AdminClientError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{ACTOR}: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            self.token,
            super::backend::cli_actor(),
            body.len()
        );
        let mut stream = connect(self.address)?;
        let mut answer = Vec::new();
        stream
            .write_all(request.as_bytes())
            .and_then(|()| stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer))
            .map_err(|error| {
                AdminClientError::Other(format!(
                    "The connection to the gateway at {} broke: {error}.",
                    self.address
                ))
            })?;
        let (status, body) = parse(&answer).ok_or_else(|| {
            AdminClientError::Other(format!(
                "The process at {} does not speak HTTP. Is it the gateway?",
                self.address
            ))
        })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let message = value.pointer("/error/message").and_then(Value::as_str);
        Err(AdminClientError::Other(message.map_or_else(
            || format!("The process at {} answers with {status}. Is it the gateway?", self.address),
            str::to_owned,
        )))
    }
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

fn connect(address: SocketAddr) -> Result<TcpStream, AdminClientError> {
    let stream =
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => AdminClientError::NotRunning(address),
            _ => AdminClientError::Other(format!("The gateway at {address} cannot be reached: {error}.")),
        })?;
    let timeouts = stream
        .set_read_timeout(Some(ANSWER_TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)));
    timeouts.map_err(|error| {
        AdminClientError::Other(format!("The gateway at {address} cannot be reached: {error}."))
    })?;
    Ok(stream)
}

/// Parses a complete response into status and body.
pub fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let body = answer.get(end + 4..)?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let chunked = lines.any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    Some((status, if chunked { dechunk(body)? } else { body.to_vec() }))
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..line)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let start = line + 2;
        body.extend_from_slice(rest.get(start..start.checked_add(size)?)?);
        rest = rest.get(start + size + 2..)?;
    }
}
