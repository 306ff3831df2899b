//! Baseline: a Pingora proxy that inspects and changes nothing.

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

struct Pass(SocketAddr);

#[async_trait]
impl ProxyHttp for Pass {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        (): &mut (),
    ) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

/// Serves until it is killed.
pub fn serve(listen: SocketAddr, upstream: SocketAddr, threads: usize) -> ! {
    let conf = ServerConf { threads, upstream_keepalive_pool_size: 1024, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Pass(upstream));
    proxy.threads = Some(threads);
    proxy.add_tcp(&listen.to_string());
    server.add_service(proxy);
    server.run_forever()
}
