//! Which of a name's addresses is connected to.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::config::{Surroundings, load_text};
use crate::upstream::pools::Pools;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

fn provider(lines: &str) -> Arc<Provider> {
    let text = format!(
        "[[models]]\nid = \"m\"\nname = \"M\"\nkind = \"chat\"\ncontext_length = 8192\ncreated = 1700000000\n\
         price = {{ input = 1.0, output = 1.0 }}\nenergy = {{ active_params_b = 8.0, total_params_b = 8.0 }}\n\
         supported_parameters = [\"max_tokens\"]\n\
         [[providers]]\nid = \"p\"\noperator = \"P\"\ncountry = \"FI\"\ncity = \"Helsinki\"\n\
         base_url = \"http://provider.invalid/v1\"\n{lines}\n[[providers.offers]]\nmodel = \"m\"\n"
    );
    let none = Surroundings { env: &|_| None };
    load_text("test.toml", &text, none).unwrap().settings.providers.first().unwrap().clone()
}

/// A route to these addresses, in this order.
fn route(lines: &str, addresses: &[SocketAddr]) -> Arc<Route> {
    let provider = provider(lines);
    let route = Route::new(&provider, &Pools::default());
    route.set(&provider, addresses);
    Arc::new(route)
}

/// A port that nobody else gets, and that takes no connection.
fn closed() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// One that takes them all and says nothing.
async fn open() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            held.push(socket);
        }
    });
    address
}

#[tokio::test]
async fn an_address_that_is_dead_costs_nobody_a_request() {
    let ((_first, dead), alive) = (closed(), open().await);
    for addresses in [[dead, alive], [alive, dead]] {
        let route = route("", &addresses);
        for _ in 0..5 {
            let mut asking = JoinSet::new();
            for _ in 0..50 {
                let route = route.clone();
                asking.spawn(async move { route.open().await.map(|way| way.reused) });
            }
            while let Some(opened) = asking.join_next().await {
                assert!(opened.unwrap().is_ok());
            }
        }
        let left = if addresses == [dead, alive] { 1 } else { 0 };
        assert_eq!(route.turn.load(Ordering::Relaxed), left, "the turn stays where there is a way");
        // Nor does the name's next look-up, which may name them in another order.
        let turned: Vec<SocketAddr> = addresses.iter().rev().copied().collect();
        route.set(&provider(""), &turned);
        route.open().await.map(|_| ()).unwrap();
        assert_eq!(route.turn.load(Ordering::Relaxed), left);
    }
}

#[tokio::test]
async fn where_all_are_dead_each_is_tried_once() {
    let ((_first, one), (_second, two)) = (closed(), closed());
    let route = route("", &[one, two]);
    assert_eq!(route.open().await.err().unwrap().kind, FaultKind::Connect);
    assert_eq!(route.turn.load(Ordering::Relaxed), 2);
}
