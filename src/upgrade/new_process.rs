//! The process that takes over, and what it does for the one before it.

use super::messages::{self, NewToOld, OldToNew};
use super::{VARIABLE, fd_passing};
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Connection and sockets that were inherited at the start.
pub struct InheritedState {
    stream: UnixStream,
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl InheritedState {
    /// Reads what the process before this one hands over, if there is one; blocks.
    ///
    /// # Errors
    /// Returns a sentence if this process was not started as it should be.
    pub fn from_environment() -> Result<Option<Self>, String> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let read = || {
            let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
            let OldToNew::Sockets(addresses) = messages::read(&mut line)? else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let taken = fd_passing::receive_sockets(&line, addresses.len())?;
            Ok(Self { stream: line, sockets: addresses.into_iter().zip(taken).collect() })
        };
        read().map(Some).map_err(|error: std::io::Error| {
            format!("{VARIABLE} is set, but nothing is handed over on the input: {error}.")
        })
    }

    /// The socket of this address, if it came along.
    pub fn take_socket(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let place = self.sockets.iter().position(|(known, _)| *known == address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Says that only the store is missing, and waits until it is free; blocks.
    ///
    /// # Errors
    /// One sentence; the process before this one goes on.
    pub fn report_prepared(&mut self) -> Result<(), String> {
        self.sockets.clear();
        let told = messages::write(&mut self.stream, &NewToOld::Prepared).is_ok();
        match told.then(|| messages::read(&mut self.stream)) {
            Some(Ok(OldToNew::Yours)) => Ok(()),
            _ => Err("The process before this one goes on.".to_owned()),
        }
    }

    /// Takes the connection to the process before this one.
    pub(crate) fn into_connection(self) -> UnixStream {
        self.stream
    }
}

/// The process before this one, while it drains.
#[derive(Clone)]
pub struct Predecessor {
    out: Arc<Mutex<UnixStream>>,
}

impl Predecessor {
    /// The process at the other end of a connection.
    pub(crate) const fn new(out: Arc<Mutex<UnixStream>>) -> Self {
        Self { out }
    }

    /// A key is not what it was.
    pub fn key(&self, id: &str) {
        messages::write(&mut *self.out.lock(), &NewToOld::Key(id.to_owned())).ok();
    }

    /// An account is not what it was.
    pub fn account(&self, id: &str) {
        messages::write(&mut *self.out.lock(), &NewToOld::Account(id.to_owned())).ok();
    }

    /// Returns true if both are the same process.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.out, &other.out)
    }
}
