//! Places for connections: so many in the gateway, so many for each client. A
//! client is an IPv4 address or an IPv6 network of 64 bits, which is what one
//! subscriber has.

use parking_lot::Mutex;
use prometheus::IntGauge;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Connections that are open, by client.
#[derive(Debug)]
pub struct ConnectionLimit {
    taken: Mutex<ConnectionCounts>,
    /// Gauge of open connections.
    open: IntGauge,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    by: HashMap<ClientNetwork, usize, ahash::RandomState>,
}

/// One client; none where all clients of a proxy on this machine would look alike.
type ClientNetwork = Option<u64>;

/// A place, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    connection_limit: Arc<ConnectionLimit>,
    client: ClientNetwork,
}

/// Limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The gateway.
    House,
    /// Connections of one client address.
    Client,
}

impl ConnectionRefusal {
    /// Name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::House => "process",
            Self::Client => "client",
        }
    }
}

impl ConnectionLimit {
    /// All free.
    #[must_use]
    pub fn new(open: IntGauge) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), open })
    }

    /// Takes a place, of at most so many in all and for each client.
    ///
    /// # Errors
    /// There is none left.
    pub fn try_acquire(
        self: &Arc<Self>,
        from: IpAddr,
        most: usize,
        each: usize,
    ) -> Result<ConnectionPermit, ConnectionRefusal> {
        let client = client_network(from);
        let mut taken = self.taken.lock();
        if taken.all >= most {
            return Err(ConnectionRefusal::House);
        }
        if client.is_some() {
            let own = taken.by.entry(client).or_default();
            // Nobody has an entry of zero: whoever finds none left has some.
            if *own >= each.max(1) {
                return Err(ConnectionRefusal::Client);
            }
            *own += 1;
        }
        taken.all += 1;
        drop(taken);
        self.open.inc();
        Ok(ConnectionPermit { connection_limit: self.clone(), client })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connection_limit.open.dec();
        let mut taken = self.connection_limit.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.by.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.by.remove(&self.client);
            }
        }
    }
}

/// Returns the client that an address belongs to.
fn client_network(from: IpAddr) -> ClientNetwork {
    match from.to_canonical() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST) => None,
        // No network begins with these 32 bits, so the two kinds do not meet.
        IpAddr::V4(address) => Some(u64::from(u32::from(address))),
        IpAddr::V6(address) => Some((u128::from(address) >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn places() -> Arc<ConnectionLimit> {
        ConnectionLimit::new(IntGauge::new("open", "Open.").unwrap())
    }

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_client_has_a_limit_and_gets_a_permit_back() {
        let places = places();
        let first = places.try_acquire(at("192.0.2.1"), 10, 2).unwrap();
        let _second = places.try_acquire(at("::ffff:192.0.2.1"), 10, 2).unwrap();
        assert_eq!(places.try_acquire(at("192.0.2.1"), 10, 2).unwrap_err(), ConnectionRefusal::Client);
        let _other = places.try_acquire(at("192.0.2.2"), 10, 2).unwrap();
        drop(first);
        let _again = places.try_acquire(at("192.0.2.1"), 10, 2).unwrap();
        assert_eq!(places.open.get(), 3);
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let places = places();
        let _one = places.try_acquire(at("2001:db8:0:1::1"), 10, 1).unwrap();
        assert_eq!(
            places.try_acquire(at("2001:db8:0:1:ffff::2"), 10, 1).unwrap_err(),
            ConnectionRefusal::Client
        );
        let _next = places.try_acquire(at("2001:db8:0:2::1"), 10, 1).unwrap();
    }

    #[test]
    fn the_total_limit_holds_for_all_clients() {
        let places = places();
        let held: Vec<_> = (0..5)
            .map(|number| places.try_acquire(at(&format!("192.0.2.{number}")), 5, 9).unwrap())
            .collect();
        for address in ["192.0.2.9", "127.0.0.1", "::1"] {
            assert_eq!(places.try_acquire(at(address), 5, 9).unwrap_err(), ConnectionRefusal::House);
        }
        drop(held);
        assert_eq!((places.open.get(), places.taken.lock().by.len()), (0, 0));
    }

    #[test]
    fn loopback_is_not_limited_as_one_client() {
        let places = places();
        let _held: Vec<_> = (0..5).map(|_| places.try_acquire(at("127.0.0.1"), 9, 1).unwrap()).collect();
        let _one = places.try_acquire(at("127.0.0.2"), 9, 1).unwrap();
        assert_eq!(places.try_acquire(at("127.0.0.2"), 9, 1).unwrap_err(), ConnectionRefusal::Client);
    }
}
