//! Test harness: a gateway per test, in this process or in its own, with the test kit.

pub mod batch_jobs;
pub mod browser;
pub mod gateway;
pub mod openid_provider;
pub mod process;
pub mod tcp_proxy;

pub use gateway::Bench;
pub use penstock_testkit::{
    Answer, Client, Provider, certificates, client, endless_provider, h2_client, h2_provider, is_long_run,
    provider, script, until, until_answered, within,
};
