//! Simulated providers: servers that speak the providers' side of both dialects,
//! of embeddings and of rerank, for the demo, for load tests and for every test that needs a provider to fail.
//!
//! No model is behind them, and each text says so. The same seed and request give
//! the same answer. HTTP/1.1 is written by hand and HTTP/2 by the `h2` crate, apart
//! from the gateway's own stack, so that a fault can break a message at any byte and
//! the gateway never talks to its own mistakes.

mod answer;
mod ask;
mod chat;
pub mod control;
mod drawing;
mod energy;
pub mod fault;
mod h1;
mod h2;
mod head;
mod hearing;
mod line;
mod listen;
mod messages;
mod pace;
mod play;
mod prompt;
mod refuse;
mod route;
pub mod rule;
mod schema;
mod script;
mod serve;
mod shaping;
#[cfg(test)]
mod tests;
mod text;
mod tools;
mod vectors;

pub use control::{Call, Control, Counts};
pub use fault::{Energy, Fault, Shape};
pub use rule::Rule;

use listen::Listener;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinHandle;

/// What a simulated provider is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name in its own texts.
    pub name: String,
    /// Where it listens; port 0 takes any that is free.
    pub address: SocketAddr,
    /// The same seed and request give the same answer.
    pub seed: u64,
    /// Time from a request to its first token.
    pub first_token: Duration,
    /// Tokens a second after it; 0: all at once.
    pub tokens_per_second: f64,
    /// Threads of the process that runs nothing else (see `penstock simulate`).
    pub threads: usize,
    /// Certificate chain and private key, PEM files; `None`: plain TCP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether HTTP/2 is spoken too: by ALPN over TLS, by prior knowledge without.
    pub h2: bool,
    /// Input and output tokens together; more is refused as vLLM refuses it.
    pub context_length: u64,
    /// Names in the list of models; any other name is answered as well.
    pub models: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "a simulated provider".to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            seed: 0,
            first_token: Duration::ZERO,
            tokens_per_second: 0.0,
            threads: 1,
            tls: None,
            h2: true,
            context_length: 131_072,
            models: Vec::new(),
        }
    }
}

/// A simulated provider at work; ends when dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, port included.
    pub address: SocketAddr,
    control: Control,
    task: JoinHandle<()>,
}

impl Server {
    /// Binds and serves in the background of the current runtime.
    ///
    /// # Errors
    /// One sentence: the address cannot be had, or the certificate cannot be used.
    pub async fn start(options: Options) -> Result<Self, String> {
        let control = Control::new(pace::Pace::new(options.first_token, options.tokens_per_second));
        let listener = Listener::bind(&options).await?;
        let address = listener.address;
        let provider = serve::Provider::new(options, control.clone());
        Ok(Self { address, control, task: tokio::spawn(listener.run(provider)) })
    }

    /// Its faults and counters.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Closes the socket and drops every connection.
    pub async fn stop(mut self) {
        self.task.abort();
        (&mut self.task).await.ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
