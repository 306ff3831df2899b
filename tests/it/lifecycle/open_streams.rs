//! Streams that stay open across upgrades and reloads.

use super::transports::{CHAT, GatewayListeners, Transport};
use crate::harness::client::OpenResponse;
use crate::harness::h2_client::{H2Client, H2Response};
use crate::harness::script::{Script, ScriptStep, done, finish, role, sse, text, usage};
use crate::harness::{Answer, Client, Provider, within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Streams of one HTTP/2 connection.
const TOGETHER: usize = 5;
/// Number of connections that are opened at the same time.
const AT_ONCE: usize = 50;

pub fn ask(model: &str, stream: bool) -> Value {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
}

/// Returns a stream that pauses in its middle.
pub fn waits(go: &Arc<Notify>) -> Script {
    let mut script = vec![sse(), role(), text("One "), ScriptStep::Wait(go.clone()), text("two")];
    script.extend([finish("stop"), usage(11, 2), done(), ScriptStep::End]);
    script
}

/// Streams that are being read.
pub struct Streams {
    go: Arc<Notify>,
    readers: Vec<JoinHandle<bool>>,
}

/// Stream whose first token was read.
enum OpenStream {
    One(OpenResponse),
    /// HTTP/2 stream with its client; while a stream has the client, the connection stays open.
    Shared(H2Response, Arc<H2Client>),
}

impl Streams {
    /// Opens this number of streams over plain HTTP, and reads each up to its first word.
    pub async fn open(client: &Client, provider: &Provider, count: usize) -> Self {
        let client = client.clone();
        let one = move |_| {
            let client = client.clone();
            async move { vec![OpenStream::One(client.stream_until(CHAT, &ask("s", true), "One ").await)] }
        };
        Self::with(provider, (0..count).map(one).collect()).await
    }

    /// Opens streams. About half use HTTP/2, several per connection; the others alternate between TLS and plain HTTP.
    pub async fn through(
        listeners: &GatewayListeners,
        client: &Client,
        provider: &Provider,
        count: usize,
    ) -> Self {
        let shared = count / 2 / TOGETHER;
        let single = count - shared * TOGETHER;
        let opening = |number: usize| {
            let (listeners, client) = (listeners.clone(), client.clone());
            async move {
                match number {
                    over if over < shared => together(&listeners, &client).await,
                    even if even.is_multiple_of(2) => vec![alone(&listeners, Transport::Tls, &client).await],
                    _ => vec![alone(&listeners, Transport::Plain, &client).await],
                }
            }
        };
        Self::with(provider, (0..shared + single).map(opening).collect()).await
    }

    async fn with<F>(provider: &Provider, opening: Vec<F>) -> Self
    where
        F: Future<Output = Vec<OpenStream>> + Send + 'static,
    {
        let go = Arc::new(Notify::new());
        provider.always(waits(&go));
        let (mut opening, mut begun) = (opening.into_iter().peekable(), Vec::new());
        while opening.peek().is_some() {
            let some: Vec<_> = opening.by_ref().take(AT_ONCE).map(tokio::spawn).collect();
            for streams in some {
                begun.extend(streams.await.unwrap());
            }
        }
        let read = |stream: OpenStream| tokio::spawn(async move { is_good(&stream.finish().await) });
        Self { go, readers: begun.into_iter().map(read).collect() }
    }

    /// Returns the tasks of the readers; each returns true if its stream was complete.
    pub fn readers(self) -> Vec<JoinHandle<bool>> {
        self.readers
    }

    /// Lets the streams end; returns the number of incomplete ones.
    pub async fn end(self) -> usize {
        let go = self.go.clone();
        let goer = tokio::spawn(async move {
            loop {
                go.notify_waiters();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let mut broken = 0;
        for reader in self.readers {
            broken += usize::from(!within("a stream to end", reader).await.unwrap());
        }
        goer.abort();
        broken
    }
}

impl OpenStream {
    async fn finish(self) -> Answer {
        match self {
            Self::One(mut open) => open.finish().await,
            Self::Shared(exchange, _connection) => exchange.finish().await,
        }
    }
}

async fn alone(listeners: &GatewayListeners, transport: Transport, client: &Client) -> OpenStream {
    let (socket, body) = (listeners.one(transport).await.unwrap(), ask("s", true).to_string());
    let mut open = client.open_over(socket, "POST", CHAT, &[], body.as_bytes()).await;
    within("the first word", open.until("One ")).await;
    OpenStream::One(open)
}

async fn together(listeners: &GatewayListeners, client: &Client) -> Vec<OpenStream> {
    let h2 = Arc::new(listeners.h2(&client.key).await.unwrap());
    let mut streams = Vec::new();
    for _ in 0..TOGETHER {
        let mut exchange = h2.open(CHAT, &ask("s", true)).await;
        exchange.until("One ").await;
        streams.push(OpenStream::Shared(exchange, h2.clone()));
    }
    streams
}

fn is_good(answer: &Answer) -> bool {
    answer.whole
        && answer.streamed_text() == "One two"
        && penstock_dialect::conformance::check_chat_stream(&answer.body, false).is_ok()
}
