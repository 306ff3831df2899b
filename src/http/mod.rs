//! HTTP helpers that the server and the proxy share: responses, TLS settings, body framing, buffers.

pub mod buffer_pool;
pub mod receive_window;
pub mod request_stream;
pub mod response;
pub mod tls;
