//! Sockets, threads and descriptors below HTTP: buffered streams, the executor of connections, the budget of reads
//! per turn, the limit on file descriptors.

pub mod buffered_stream;
pub mod executor;
pub mod fd_limit;
pub mod read_budget;
