//! Implementations of Pingora's stream traits for a stream that wraps another one.

/// Implements the traits that Pingora requires of a stream, apart from reading and writing, by the field `stream` of
/// the type. The wrapper cannot peek.
macro_rules! delegate_stream_traits {
    ($wrapper:ty) => {
        const _: () = {
            use pingora_core::protocols::raw_connect::ProxyDigest;
            use pingora_core::protocols::tls::SslDigest;
            use pingora_core::protocols::{
                ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
                TimingDigest, UniqueID, UniqueIDType,
            };
            use std::sync::Arc;

            #[async_trait::async_trait]
            impl Shutdown for $wrapper {
                async fn shutdown(&mut self) {
                    self.stream.shutdown().await;
                }
            }

            impl UniqueID for $wrapper {
                fn id(&self) -> UniqueIDType {
                    self.stream.id()
                }
            }

            impl Ssl for $wrapper {
                fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
                    self.stream.get_ssl_digest()
                }

                fn selected_alpn_proto(&self) -> Option<ALPN> {
                    self.stream.selected_alpn_proto()
                }
            }

            impl Peek for $wrapper {}

            impl GetTimingDigest for $wrapper {
                fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
                    self.stream.get_timing_digest()
                }
            }

            impl GetProxyDigest for $wrapper {
                fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
                    self.stream.get_proxy_digest()
                }
            }

            impl GetSocketDigest for $wrapper {
                fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
                    self.stream.get_socket_digest()
                }
            }
        };
    };
}

pub(crate) use delegate_stream_traits;
