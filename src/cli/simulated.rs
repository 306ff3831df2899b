//! `penstock simulate`: a simulated provider as a separate server.

use crate::app::startup;
use crate::config::parse_duration;

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// Name of the provider in the texts that it generates
    #[arg(long, default_value = "simulated")]
    name: String,
    /// Seed: the same seed and request give the same answer
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Time to the first token, such as 120ms
    #[arg(long, value_name = "DURATION", default_value = "120ms", value_parser = parse_delay)]
    first_token: Duration,
    /// Tokens per second after the first; 0 for all at once
    #[arg(long, value_name = "NUMBER", default_value_t = 80)]
    tokens_per_second: u32,
    /// Maximum of input and output tokens together; more is refused
    #[arg(long, value_name = "TOKENS", default_value_t = 131_072)]
    context_length: u64,
    /// Name in its list of models; repeatable; requests for other names are answered as well
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Certificate chain, PEM; enables TLS
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// HTTP/1.1 only
    #[arg(long)]
    h1: bool,
    /// Worker threads
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| "This is not a duration: write something like 0, 120ms or 2s.".to_owned())
}

/// Runs `penstock simulate`.
pub fn run(args: SimulateArgs) -> Result<(), String> {
    startup::run_simulator(penstock_simulator::SimulatorOptions {
        name: args.name,
        address: args.listen,
        seed: args.seed,
        first_token: args.first_token,
        tokens_per_second: f64::from(args.tokens_per_second),
        threads: usize::from(args.threads),
        tls: args.certificate.zip(args.key),
        h2: !args.h1,
        context_length: args.context_length,
        models: args.models,
    })
}
