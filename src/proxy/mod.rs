//! Use of Pingora's proxy: [`Gateway`] implements its phases, and every request of a client and every batch line enters
//! them through [`HttpProxy::process_new_http`]. Before that, the connection guard (`crate::server`) reads and checks
//! the request heads of clients, and `crate::proxy::batch_line` wraps batch lines as sessions.
//!
//! [`HttpProxy::process_new_http`]: pingora_core::apps::HttpServerApp::process_new_http

pub mod batch_line;
pub mod context_window;
pub mod downstream;
pub mod endpoint;
pub mod exchange;
pub mod explanation;
pub mod failover;
pub mod filters;
mod gateway;
mod line_session;
pub mod local_request;
pub mod multipart;
pub mod quote;
mod request_source;
pub mod response;

pub use gateway::{Gateway, RequestContext};
pub use line_session::InProcessSession;
pub use local_request::{PlaygroundRequest, PlaygroundRequestExecutor};
pub use request_source::{DownstreamHttp2Stream, RequestSource};

use crate::state::AppState;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora_core::apps::HttpServerOptions;
use pingora_core::server::configuration::ServerConf;
use std::sync::{Arc, Weak};

/// Pingora proxy of the process.
pub type GatewayProxy = Arc<HttpProxy<Gateway>>;

/// Starts Pingora's proxy, and installs it as the executor of batch lines.
pub fn start_proxy(app: &Arc<AppState>) -> GatewayProxy {
    let proxy = start(Arc::downgrade(app));
    let executor = batch_line::BatchLineExecutor::new(Arc::downgrade(app), proxy.clone());
    app.batch_context.executor.set(Arc::new(executor)).ok();
    proxy
}

/// Starts Pingora's proxy. Its HTTP client is not used: the failover driver has its own connections.
fn start(app: Weak<AppState>) -> GatewayProxy {
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: 1, ..ServerConf::default() };
    let mut proxy = http_proxy(&Arc::new(conf), Gateway::new(app));
    let mut options = HttpServerOptions::default();
    // CONNECT is allowed here so that the endpoint table can refuse it in the client's dialect.
    options.allow_connect_method_proxying = true;
    proxy.server_options = Some(options);
    Arc::new(proxy)
}
