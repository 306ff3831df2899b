//! TCP proxy in front of a server on a Unix socket: forwards bytes, cuts connections, or stays silent as a broken
//! network does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// State of the network between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Bytes pass.
    Open,
    /// Open connections are closed; new connections are closed at once.
    Cut,
    /// Connections stay open, and no bytes pass.
    Silent,
}

/// Running proxy.
pub struct TcpProxy {
    pub address: SocketAddr,
    network: watch::Sender<Network>,
    bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    pub async fn start(server: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (network, state) = watch::channel(Network::Open);
        let bytes = Arc::new(AtomicU64::new(0));
        let carried = bytes.clone();
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (server, state, carried) = (server.clone(), state.clone(), carried.clone());
                tokio::spawn(async move { carry(client, &server, state, &carried).await });
            }
        });
        Self { address, network, bytes, task }
    }

    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// Number of bytes that have passed in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards the bytes of one connection until the client, the server or the network closes it.
async fn carry(
    mut client: TcpStream,
    server: &Path,
    mut network: watch::Receiver<Network>,
    carried: &AtomicU64,
) -> Option<()> {
    client.set_nodelay(true).ok()?;
    if *network.wait_for(|network| *network != Network::Silent).await.ok()? == Network::Cut {
        return None;
    }
    let mut server = UnixStream::connect(server).await.ok()?;
    let (mut from_client, mut from_server) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            biased;
            changed = network.changed() => {
                changed.ok()?;
                if *network.wait_for(|network| *network != Network::Silent).await.ok()? == Network::Cut {
                    return None;
                }
            }
            read = client.read(&mut from_client) => {
                let read = read.ok().filter(|read| *read > 0)?;
                server.write_all(&from_client[..read]).await.ok()?;
                carried.fetch_add(read as u64, Ordering::Relaxed);
            }
            read = server.read(&mut from_server) => {
                let read = read.ok().filter(|read| *read > 0)?;
                client.write_all(&from_server[..read]).await.ok()?;
                carried.fetch_add(read as u64, Ordering::Relaxed);
            }
        }
    }
}
