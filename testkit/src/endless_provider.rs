//! Provider with an endless response, written as fast as the client reads it.

use crate::until;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Number of bytes in one write.
const BLOCK: usize = 64 << 10;

/// Bytes of the response: a beginning that is written once, and bytes that are repeated after it.
#[derive(Clone)]
pub struct Flood {
    pub first: Vec<u8>,
    pub again: Vec<u8>,
}

#[derive(Default)]
struct State {
    asked: AtomicUsize,
    left: AtomicUsize,
}

/// Provider with an endless response.
pub struct EndlessProvider {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl EndlessProvider {
    /// Starts a provider that answers every request with `flood`.
    pub async fn start(flood: Flood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let (shared, flood) = (state.clone(), Arc::new(flood));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (state, flood) = (shared.clone(), flood.clone());
                connections.spawn(async move { serve(socket, &state, &flood).await });
            }
        });
        Self { address, state, task }
    }

    /// Returns the base URL of its chat and messages endpoints.
    pub fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the number of requests that were received.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    pub async fn until_asked(&self, asked: usize) {
        until("the endless provider to be asked", || self.asked() >= asked).await;
    }

    /// Waits until the gateway has closed this many connections.
    pub async fn until_left(&self, left: usize) {
        until("the gateway to leave", || self.state.left.load(Ordering::SeqCst) >= left).await;
    }
}

impl Drop for EndlessProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, state: &State, flood: &Flood) {
    if request(&mut socket).await.is_none() {
        return;
    }
    state.asked.fetch_add(1, Ordering::SeqCst);
    let block = flood.again.repeat((BLOCK / flood.again.len()).max(1));
    if socket.write_all(&flood.first).await.is_ok() {
        while socket.write_all(&block).await.is_ok() {}
    }
    state.left.fetch_add(1, Ordering::SeqCst);
}

/// Reads a complete request.
async fn request(socket: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
        if bytes.len() >= head.len() + 4 + length {
            return Some(());
        }
    }
}
