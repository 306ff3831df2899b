//! Mock provider with endless streams: one event per second, each with the time at which it was sent.

use crate::mock::{answers, chunk, content_length, streamed};
use crate::streams::{MARK, runtime, stamp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Serves until it is killed.
pub fn serve(listen: SocketAddr) -> Result<(), String> {
    runtime()?.block_on(async move {
        let listener = TcpListener::bind(listen).await.map_err(|why| format!("{listen}: {why}"))?;
        let answers = Arc::new(answers());
        loop {
            let Ok((socket, _)) = listener.accept().await else { continue };
            let answers = answers.clone();
            // If the client disconnects, this task ends with an error, which is ignored.
            tokio::spawn(async move {
                drop(connection(socket, &answers.plain, &answers.models, &answers.first).await)
            });
        }
    })
}

async fn connection(mut socket: TcpStream, plain: &[u8], models: &[u8], first: &[u8]) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut read, mut piece) = (Vec::new(), vec![0; 4096]);
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let head =
            String::from_utf8_lossy(read.get(..end.unwrap_or(0)).unwrap_or_default()).to_ascii_lowercase();
        let whole =
            end.map(|end| end + content_length(&head).unwrap_or(0)).filter(|whole| read.len() >= *whole);
        let Some(whole) = whole else {
            let count = socket.read(&mut piece).await?;
            if count == 0 {
                return Ok(());
            }
            read.extend_from_slice(piece.get(..count).unwrap_or_default());
            continue;
        };
        let request: Vec<u8> = read.drain(..whole).collect();
        if head.starts_with("get ") {
            socket.write_all(models).await?;
        } else if streamed(&request) {
            socket.write_all(first).await?;
            return tell(socket).await;
        } else {
            socket.write_all(plain).await?;
        }
    }
}

async fn tell(mut socket: TcpStream) -> std::io::Result<()> {
    let mark = String::from_utf8_lossy(MARK);
    let (mut piece, second) = ([0; 64], Duration::from_secs(1));
    // Each stream sends at a fixed offset within the second. If each event came one second after the previous one
    // instead, all streams that a pause of the machine delays would send at the same moment from then on.
    let mut due = interval_at(Instant::now() + second, second);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            // Clients send nothing more, so a read means that the client has disconnected.
            _ = socket.read(&mut piece) => return Ok(()),
        }
        let event = chunk(&format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1763650000,\
             \"model\":\"theirs\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" {mark}{}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
            stamp()
        ));
        socket.write_all(event.as_bytes()).await?;
    }
}
