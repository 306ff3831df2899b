//! Simulated providers: servers for chat completions, text completions, messages, responses, token counts, embeddings,
//! rerank, images, transcriptions, speech and moderation, with lists of models and health checks. They serve the demo,
//! load tests, and tests in which a provider must fail.
//!
//! The providers use no model, and each generated text says so. The same seed and request give the same answer.
//! HTTP/1.1 is implemented here and HTTP/2 by the `h2` crate, independently of the HTTP stack of the gateway. So a
//! fault can break a message at any byte, and a bug of the gateway's stack is not hidden by the same bug here.

mod answer;
mod chat;
mod completions;
pub mod control;
mod energy;
mod error_body;
pub mod fault;
mod h1;
mod h2;
mod http_request;
mod image;
mod listener;
mod messages;
mod metered;
mod parsed_request;
mod playback;
mod prompt;
mod provider;
mod response_writer;
mod responses;
mod route;
pub mod rule;
mod schema;
mod script;
mod shaping;
#[cfg(test)]
mod tests;
mod text;
mod token_pacing;
mod tools;
mod transcription;
mod vectors;

pub use control::{CallCounts, RecordedCall, SimulatorControl};
pub use fault::{EnergyShape, ErrorShape, SimulatedFault};
pub use rule::FaultRule;

use listener::SimulatorListener;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Options of a simulated provider.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Name of the provider in its texts.
    pub name: String,
    /// Address to listen on; port 0 selects any free port.
    pub address: SocketAddr,
    /// Seed of the answers: the same seed and request give the same answer.
    pub seed: u64,
    /// Delay between a request and its first token.
    pub first_token: Duration,
    /// Tokens per second after the first token; 0 sends all at once.
    pub tokens_per_second: f64,
    /// Number of runtime threads of a separate process (see `penstock simulate`).
    pub threads: usize,
    /// Certificate chain and private key as PEM files; `None`: plain TCP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// True if HTTP/2 is supported: by ALPN over TLS, by prior knowledge without.
    pub h2: bool,
    /// Limit on the tokens of a request: of input and output together, or in messages requests of the input alone. A
    /// longer request is refused with status 400. In requests for embeddings and rerank, the limit applies to each
    /// text; text completions have no limit.
    pub context_length: u64,
    /// Names in the list of models. Requests for any other model are answered too.
    pub models: Vec<String>,
}

impl Default for SimulatorOptions {
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

/// Running simulated provider; stops on drop.
#[derive(Debug)]
pub struct SimulatedServer {
    /// Bound address, with the actual port.
    pub address: SocketAddr,
    control: SimulatorControl,
    task: JoinHandle<()>,
}

impl SimulatedServer {
    /// Binds the address and serves in the background of the current runtime.
    ///
    /// # Errors
    /// Returns one sentence if the address cannot be bound, or the certificate cannot be used.
    pub async fn start(options: SimulatorOptions) -> Result<Self, String> {
        let control = SimulatorControl::new(token_pacing::TokenPacing::new(
            options.first_token,
            options.tokens_per_second,
        ));
        let listener = SimulatorListener::bind(&options).await?;
        let address = listener.address;
        let provider = provider::SimulatedProvider::new(options, control.clone());
        Ok(Self { address, control, task: tokio::spawn(listener.run(provider)) })
    }

    /// Returns the handle on the faults and counters.
    #[must_use]
    pub fn control(&self) -> SimulatorControl {
        self.control.clone()
    }

    /// Closes the socket and drops every connection.
    pub async fn stop(mut self) {
        self.task.abort();
        (&mut self.task).await.ok();
    }
}

impl Drop for SimulatedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
