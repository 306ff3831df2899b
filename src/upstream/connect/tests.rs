//! Tests of the failover between the addresses of a host, and of flow control among the streams of one HTTP/2
//! connection.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::config::{ResolveEnv, load_text};
use crate::upstream::connection_pool::ConnectionPools;
use bytes::Bytes;
use http::{Response, StatusCode};
use pingora_http::RequestHeader;
use std::future::poll_fn;
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
    let none = ResolveEnv { env: &|_| None };
    load_text("test.toml", &text, none).unwrap().settings.providers.first().unwrap().clone()
}

/// Returns a route to these addresses, in this order.
fn route(lines: &str, addresses: &[SocketAddr]) -> Arc<UpstreamRoute> {
    let provider = provider(lines);
    let route = UpstreamRoute::new(&provider, &ConnectionPools::default()).unwrap();
    route.set_addresses(&provider, addresses);
    Arc::new(route)
}

/// Returns a bound port that accepts no connection, with the socket that reserves it.
fn closed_port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Returns the address of a listener that accepts all connections and sends nothing.
async fn silent_listener() -> SocketAddr {
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
async fn a_dead_address_fails_no_request() {
    let ((_first, dead), alive) = (closed_port(), silent_listener().await);
    for addresses in [[dead, alive], [alive, dead]] {
        let route = route("", &addresses);
        for _ in 0..5 {
            let mut asking = JoinSet::new();
            for _ in 0..50 {
                let route = route.clone();
                asking.spawn(async move { route.connect().await.map(|upstream| upstream.reused) });
            }
            while let Some(opened) = asking.join_next().await {
                assert!(opened.unwrap().is_ok());
            }
        }
        let left = if addresses == [dead, alive] { 1 } else { 0 };
        assert_eq!(
            route.peer_index.load(Ordering::Relaxed),
            left,
            "the index stays at the address that works"
        );
        // The next lookup, which may return the addresses in another order, does not move the index either.
        let reversed: Vec<SocketAddr> = addresses.iter().rev().copied().collect();
        route.set_addresses(&provider(""), &reversed);
        route.connect().await.map(|_| ()).unwrap();
        assert_eq!(route.peer_index.load(Ordering::Relaxed), left);
    }
}

#[tokio::test]
async fn each_dead_address_is_tried_once() {
    let ((_first, one), (_second, two)) = (closed_port(), closed_port());
    let route = route("", &[one, two]);
    assert_eq!(route.connect().await.err().unwrap().kind, UpstreamErrorKind::Connect);
    assert_eq!(route.peer_index.load(Ordering::Relaxed), 2);
}

/// Starts an HTTP/2 provider that answers `/long` with more bytes than the stream window, and other paths with an
/// empty body. Returns its address and the number of connections that it accepted.
async fn flooding_provider() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let counted = taken.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((request, mut answer))) = connection.accept().await {
                    let long = request.uri().path() == "/long";
                    let head = Response::builder().status(StatusCode::OK).body(()).unwrap();
                    let mut body = answer.send_response(head, !long).unwrap();
                    if long {
                        let window = usize::try_from(PROVIDER_STREAM_WINDOW_BYTES).unwrap();
                        body.send_data(Bytes::from(vec![b'x'; window + 1]), false).unwrap();
                        // The stream stays open while the client reads it.
                        tokio::spawn(async move { poll_fn(|cx| body.poll_reset(cx)).await });
                    }
                }
            });
        }
    });
    (address, taken)
}

async fn send_get(route: &UpstreamRoute, path: &str) -> UpstreamExchange {
    let mut upstream = route.connect().await.map_err(|fault| fault.kind).unwrap();
    let mut head = RequestHeader::build("GET", path.as_bytes(), None).unwrap();
    head.insert_header("host", "provider").unwrap();
    assert_eq!(upstream.send_for_status(head, Bytes::new()).await.ok(), Some(200));
    upstream
}

#[tokio::test]
async fn a_connection_full_of_stalled_streams_accepts_another_stream() {
    let (address, taken) = flooding_provider().await;
    let route = route("http = \"h2\"", &[address]);
    let mut stalled = Vec::new();
    for _ in 1..MAX_H2_STREAMS {
        stalled.push(send_get(&route, "/long").await);
    }
    let mut last = send_get(&route, "/long").await;
    assert_eq!(taken.load(Ordering::SeqCst), 1, "all are on one connection");
    let (mut read, window) = (0, usize::try_from(PROVIDER_STREAM_WINDOW_BYTES).unwrap());
    let reading = async {
        while read < window {
            read += last.read_body().await.ok().flatten().unwrap().len();
        }
    };
    timeout(Duration::from_secs(20), reading).await.unwrap();
}
