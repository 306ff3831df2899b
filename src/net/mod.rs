//! Sockets and threads below HTTP: buffered streams, the executor of connections, the read budget per poll, and the
//! lifecycle of the process.

pub mod buffered_stream;
pub mod executor;
pub mod lifecycle;
#[cfg(feature = "inject")]
pub mod panic_injection;
pub mod read_budget;
pub(crate) mod stream_delegation;

use pingora_core::protocols::TcpKeepalive;
use std::time::Duration;

/// TCP keep-alive of connections to providers. For clients, `idle` and `interval` are upper limits: both are shorter if
/// the write timeout is short.
pub const TCP_KEEP_ALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(20),
    interval: Duration::from_secs(10),
    count: 3,
    user_timeout: Duration::ZERO,
};
