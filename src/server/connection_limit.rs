//! Limits on open connections: one for the process, and one for each client. A client is an IPv4 address or an IPv6
//! network with a prefix of 64 bits, which is what one subscriber gets. The loopback addresses 127.0.0.1 and ::1 have
//! no limit of their own.

use parking_lot::Mutex;
use prometheus::IntGauge;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Counter of open connections, in total and by client.
#[derive(Debug)]
pub struct ConnectionLimit {
    counts: Mutex<ConnectionCounts>,
    /// Gauge of open connections.
    open: IntGauge,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    by_client: HashMap<ClientNetwork, usize, ahash::RandomState>,
}

/// Key of a client; `None` for 127.0.0.1 and ::1, because all clients of a proxy on this machine have the same address.
type ClientNetwork = Option<u64>;

/// Permit of one connection, released on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    connection_limit: Arc<ConnectionLimit>,
    client: ClientNetwork,
}

/// Limit that refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// Limit on all connections of the process.
    Process,
    /// Limit on the connections of one client.
    Client,
}

impl ConnectionRefusal {
    /// Returns the name of the limit in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Client => "client",
        }
    }
}

impl ConnectionLimit {
    /// Creates a counter without connections; `open` is the gauge that shows its total.
    #[must_use]
    pub fn new(open: IntGauge) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), open })
    }

    /// Acquires a permit if fewer than `max_total` permits are in use in total and fewer than `max_per_client` by the
    /// same client.
    ///
    /// # Errors
    /// Returns the limit that is reached.
    pub fn try_acquire(
        self: &Arc<Self>,
        from: IpAddr,
        max_total: usize,
        max_per_client: usize,
    ) -> Result<ConnectionPermit, ConnectionRefusal> {
        let client = client_network(from);
        let mut counts = self.counts.lock();
        if counts.total >= max_total {
            return Err(ConnectionRefusal::Process);
        }
        if client.is_some() {
            let count = counts.by_client.entry(client).or_default();
            // A new entry has the count 0, and the limit is at least 1. So a refusal never leaves a new entry in the
            // map.
            if *count >= max_per_client.max(1) {
                return Err(ConnectionRefusal::Client);
            }
            *count += 1;
        }
        counts.total += 1;
        drop(counts);
        self.open.inc();
        Ok(ConnectionPermit { connection_limit: self.clone(), client })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connection_limit.open.dec();
        let mut counts = self.connection_limit.counts.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(count) = counts.by_client.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.by_client.remove(&self.client);
            }
        }
    }
}

/// Returns the key of the client that an address belongs to.
fn client_network(from: IpAddr) -> ClientNetwork {
    match from.to_canonical() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST) => None,
        // No IPv6 network starts with 32 zero bits, so IPv4 and IPv6 keys never collide.
        IpAddr::V4(address) => Some(u64::from(u32::from(address))),
        IpAddr::V6(address) => Some((u128::from(address) >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn unlimited() -> Arc<ConnectionLimit> {
        ConnectionLimit::new(IntGauge::new("open", "Open.").unwrap())
    }

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_client_has_a_limit_and_gets_a_permit_back() {
        let limit = unlimited();
        let first = limit.try_acquire(at("192.0.2.1"), 10, 2).unwrap();
        let _second = limit.try_acquire(at("::ffff:192.0.2.1"), 10, 2).unwrap();
        assert_eq!(limit.try_acquire(at("192.0.2.1"), 10, 2).unwrap_err(), ConnectionRefusal::Client);
        let _other = limit.try_acquire(at("192.0.2.2"), 10, 2).unwrap();
        drop(first);
        let _again = limit.try_acquire(at("192.0.2.1"), 10, 2).unwrap();
        assert_eq!(limit.open.get(), 3);
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let limit = unlimited();
        let _one = limit.try_acquire(at("2001:db8:0:1::1"), 10, 1).unwrap();
        assert_eq!(
            limit.try_acquire(at("2001:db8:0:1:ffff::2"), 10, 1).unwrap_err(),
            ConnectionRefusal::Client
        );
        let _next = limit.try_acquire(at("2001:db8:0:2::1"), 10, 1).unwrap();
    }

    #[test]
    fn the_total_limit_holds_for_all_clients() {
        let limit = unlimited();
        let held: Vec<_> =
            (0..5).map(|number| limit.try_acquire(at(&format!("192.0.2.{number}")), 5, 9).unwrap()).collect();
        for address in ["192.0.2.9", "127.0.0.1", "::1"] {
            assert_eq!(limit.try_acquire(at(address), 5, 9).unwrap_err(), ConnectionRefusal::Process);
        }
        drop(held);
        assert_eq!((limit.open.get(), limit.counts.lock().by_client.len()), (0, 0));
    }

    #[test]
    fn loopback_is_not_limited_as_one_client() {
        let limit = unlimited();
        let _held: Vec<_> = (0..5).map(|_| limit.try_acquire(at("127.0.0.1"), 9, 1).unwrap()).collect();
        let _one = limit.try_acquire(at("127.0.0.2"), 9, 1).unwrap();
        assert_eq!(limit.try_acquire(at("127.0.0.2"), 9, 1).unwrap_err(), ConnectionRefusal::Client);
    }
}
