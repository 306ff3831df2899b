//! Traits that Pingora's session requires of a stream, besides reading and writing.

use super::Http1RequestStream;
use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID, UniqueIDType,
};
use std::sync::Arc;

#[async_trait]
impl Shutdown for Http1RequestStream {
    async fn shutdown(&mut self) {}
}

impl UniqueID for Http1RequestStream {
    fn id(&self) -> UniqueIDType {
        self.inner().map_or(-1, |stream| stream.id())
    }
}

impl Ssl for Http1RequestStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner()?.selected_alpn_proto()
    }
}

impl Peek for Http1RequestStream {}

impl GetTimingDigest for Http1RequestStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Http1RequestStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Http1RequestStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}
