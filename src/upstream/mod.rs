//! Providers as the house sees them: where they are connected to, how they have
//! lately been, who may be asked now.

pub mod aside;
pub mod bill;
pub mod connect;
pub mod connection_pool;
pub mod decode;
mod frames;
pub mod http1;
mod idle;
pub mod learned;
pub mod live;
pub mod notice;
pub mod offer;
pub mod pools;
pub mod rate;
pub mod seats;
pub mod send;
pub mod speech;
pub mod tokenize;
pub mod way;
