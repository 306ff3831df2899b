//! Memory of the gateway during a large upload: from its client to the disk, to a failing provider and to the next.

use crate::harness::process::Home;
use crate::harness::within;
use crate::sounds;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Size of the audio in bytes, slightly below the default limit of uploads.
const BYTES: usize = 199 << 20;
/// Allowed growth of the process, in KiB.
const GROWTH: u64 = 32 << 10;

/// Starts a provider that counts the received bytes and stores none.
async fn counting(status: &'static str) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, counted) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let count = counted.clone();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(socket, status, count.clone()));
        }
    });
    (address, counted)
}

async fn answer(mut socket: TcpStream, status: &'static str, count: Arc<AtomicU64>) {
    let mut buffer = vec![0; 1 << 20];
    let mut held = Vec::new();
    let (end, length) = loop {
        let read = socket.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        held.extend_from_slice(&buffer[..read]);
        if let Some(at) = memchr::memmem::find(&held, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&held[..at]).to_ascii_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<u64>().unwrap());
            break (at + 4, length);
        }
    };
    let mut read = (held.len() - end) as u64;
    while read < length {
        match socket.read(&mut buffer).await {
            Ok(more) if more > 0 => read += more as u64,
            _ => break,
        }
    }
    count.fetch_add(read, Ordering::SeqCst);
    let body = r#"{"text":"long","segments":[]}"#;
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).await.ok();
    socket.write_all(body.as_bytes()).await.ok();
}

fn provider(id: &str, address: SocketAddr, price: &str) -> String {
    format!(
        "[[providers]]\nid = \"{id}\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{address}/v1\"\n[[providers.offers]]\nmodel = \"w\"\nprice = {{ minute = {price} }}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_megabytes_pass_through_a_process_that_stays_small() {
    let ((bad, first), (good, second)) = (counting("503 No").await, counting("200 OK").await);
    let home = Home::new();
    let model = "[[models]]\nid = \"w\"\nkind = \"transcription\"\ncontext_length = 448\n";
    home.write(&format!("{model}{}{}", provider("bad", bad, "0.001"), provider("good", good, "9.0")));
    let process = home.run().await;
    let (client, _) = home.key();
    // Sends a small upload first, so that one-time allocations are made before the measurement.
    let small = form(&sounds::wav(1000));
    let headers = [("content-type", "multipart/form-data; boundary=b0und")];
    let warm = client.send("POST", "/v1/audio/transcriptions", &headers, &small).await;
    assert_eq!(warm.status, 200, "{}", warm.text());
    let idle = process.memory("VmRSS");

    let mut wav = sounds::wav(1000);
    let at = wav.len() - 16_000 - 4;
    wav[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    wav.resize(BYTES, 0x55);
    let before = (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst));
    let body = form(&wav);
    drop(wav);
    let answer =
        within("the transcript", client.send("POST", "/v1/audio/transcriptions", &headers, &body)).await;
    assert_eq!(
        (answer.status, answer.header("x-penstock-provider")),
        (200, Some("good")),
        "{}",
        answer.text()
    );
    let grown = process.memory("VmHWM").saturating_sub(idle);
    eprintln!("idle {idle} KiB, grown by at most {grown} KiB");
    assert!(first.load(Ordering::SeqCst) - before.0 > BYTES as u64, "the first was sent all of it");
    assert!(second.load(Ordering::SeqCst) - before.1 > BYTES as u64, "and so was the next");
    assert!(grown < GROWTH, "grown by {grown} KiB from {idle} KiB");
}

fn form(sound: &[u8]) -> Vec<u8> {
    let mut body =
        b"--b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n".to_vec();
    body.extend_from_slice(sound);
    body.extend_from_slice(
        b"\r\n--b0und\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nw:price\r\n--b0und--\r\n",
    );
    body
}
