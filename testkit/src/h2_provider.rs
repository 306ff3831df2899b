//! Provider that implements HTTP/2 frame by frame, with prior knowledge, and counts its requests.

use crate::script::completion;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Error code of a stream that failed; the request may have been processed.
pub const INTERNAL_ERROR: u32 = 2;
/// Error code of a stream whose request was not processed.
pub const REFUSED_STREAM: u32 = 7;

/// Action on a stream once its request is complete.
#[derive(Clone, Copy)]
pub enum StreamAction {
    /// Sends a good response.
    Answer,
    /// Resets the stream with this error code; the connection stays open.
    Reset(u32),
    /// Sends GOAWAY without an error; this stream was not processed.
    GoAwayUnprocessed,
    /// Sends GOAWAY without an error and closes the connection; this stream was processed.
    GoAwayProcessed,
}

/// Provider that implements HTTP/2 itself.
pub struct H2FrameProvider {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl H2FrameProvider {
    /// Starts a provider that applies these actions to successive streams and repeats the last.
    pub async fn start(deeds: &[StreamAction]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, deeds) =
            (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(VecDeque::from(deeds.to_vec()))));
        let counted = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (asked, deeds) = (counted.clone(), deeds.clone());
                tokio::spawn(async move { serve(socket, &asked, &deeds).await.ok() });
            }
        });
        Self { address, asked, task }
    }

    /// Returns the number of complete requests that were received.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for H2FrameProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut socket: TcpStream,
    asked: &AtomicUsize,
    deeds: &Mutex<VecDeque<StreamAction>>,
) -> Result<()> {
    socket.read_exact(&mut [0; 24]).await?;
    write(&mut socket, SETTINGS, 0, 0, &[]).await?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        socket.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => write(&mut socket, SETTINGS, ACK, 0, &[]).await?,
            PING if flags & ACK == 0 => write(&mut socket, PING, ACK, 0, &payload).await?,
            DATA | HEADERS if flags & END_STREAM != 0 => {
                asked.fetch_add(1, Ordering::SeqCst);
                let next = {
                    let mut deeds = deeds.lock();
                    if deeds.len() > 1 { deeds.pop_front() } else { deeds.front().copied() }
                };
                act(&mut socket, next.unwrap(), u32::from_be_bytes(stream)).await?;
            }
            _ => {}
        }
    }
}

async fn act(socket: &mut TcpStream, deed: StreamAction, stream: u32) -> Result<()> {
    match deed {
        StreamAction::Answer => {
            // Header `:status: 200`, by its index in the static table of HPACK.
            write(socket, HEADERS, END_HEADERS, stream, &[0x88]).await?;
            let body = completion("Hello").to_string();
            write(socket, DATA, END_STREAM, stream, body.as_bytes()).await
        }
        StreamAction::Reset(code) => write(socket, RST_STREAM, 0, stream, &code.to_be_bytes()).await,
        // The connection stays open, so that the peer reads the GOAWAY frame before the connection ends.
        StreamAction::GoAwayUnprocessed => go_away(socket, stream.saturating_sub(2)).await,
        StreamAction::GoAwayProcessed => {
            go_away(socket, stream).await?;
            socket.shutdown().await
        }
    }
}

async fn go_away(socket: &mut TcpStream, last: u32) -> Result<()> {
    let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    write(socket, GOAWAY, 0, 0, &payload).await
}

async fn write(socket: &mut TcpStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    socket.write_all(&frame).await
}
