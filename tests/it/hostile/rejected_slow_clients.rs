//! Slow clients that keep sending after their rejection: they hold their permit only briefly, unlike clients that are
//! not rejected.

use crate::harness::within;
use crate::hostile::slow_clients::{begun, start};
use crate::hostile::{full, statuses};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Time after its rejection within which a slow client that continues to send is disconnected.
const SILENCE: Duration = Duration::from_secs(2);
/// Allowed delay of the disconnect on a busy machine. In total it stays below the ten seconds that other clients
/// have.
const LATE: Duration = Duration::from_secs(6);
/// Pause between two bytes: well below any idle timeout.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends `begin` and then single bytes, before the refusal and after it, until the connection is closed. Returns the
/// statuses, and the time from the end of the refusal to the first failed write.
async fn drips(mut socket: TcpStream, begin: &[u8], byte: u8) -> (Vec<u16>, Duration) {
    socket.write_all(begin).await.unwrap();
    let (mut read, mut write) = socket.split();
    let mut heard = Vec::new();
    let mut refused = None;
    let dripping = async {
        loop {
            tokio::time::sleep(PAUSE).await;
            if write.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = read.read(&mut piece).await {
            heard.extend_from_slice(&piece[..length]);
        }
        refused = Some(Instant::now());
    };
    within("a client that drips on to be cut off", async { tokio::join!(dripping, reading) }).await;
    (statuses(&heard), refused.unwrap().elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_on_after_a_rejection_holds_no_permit() {
    let settings = "[limits]\nrequest_head = \"400ms\"\nbody_idle = \"500ms\"\nbody = \"900ms\"";
    let (provider, _certified, running) = start(settings).await;
    let mut work = JoinSet::new();
    let key = &running.client.key;
    // A slow head, a long slow body, and a body that is so short that a gateway without this protection would read
    // all of it.
    let kinds = [
        ("POST / HTTP/1.1\r\nHost: a\r\nx: ".to_owned(), b'y'),
        (begun(key, 8 << 20), b' '),
        (begun(key, 1 << 10), b' '),
    ];
    for _ in 0..if full() { 100 } else { 3 } {
        for (begin, byte) in kinds.clone() {
            let address = running.client.address;
            work.spawn(async move {
                let socket = TcpStream::connect(address).await.unwrap();
                let (heard, after) = drips(socket, begin.as_bytes(), byte).await;
                assert_eq!(heard, [408]);
                after
            });
        }
    }
    let after = work.join_all().await;
    let longest = after.iter().max().unwrap();
    eprintln!("{} that dripped on: the last was cut off {longest:.1?} after its refusal", after.len());
    assert!(*longest < SILENCE + LATE, "{longest:?}");
    let open = running.gateway.app.metrics.open_connections_gauge();
    crate::harness::until("the permits to be free", || open.get() == 0).await;
    assert_eq!(provider.calls(), 0);
}
