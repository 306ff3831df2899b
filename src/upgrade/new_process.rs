//! New process of an upgrade: the sockets and the store that it takes over, and its handle to the old process.

use super::messages::{self, NewToOld, OldToNew};
use super::outbox::PredecessorOutbox;
use super::{TAKEOVER_VARIABLE, fd_passing};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Connection to the old process, and the sockets that this process received from it at startup.
pub struct InheritedState {
    stream: UnixStream,
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl InheritedState {
    /// Reads the connection and the sockets that the old process hands over, if this process was started by one.
    /// Blocks.
    ///
    /// # Errors
    /// Returns a sentence if this process was not started correctly.
    pub fn from_environment() -> Result<Option<Self>, String> {
        if std::env::var_os(TAKEOVER_VARIABLE).is_none() {
            return Ok(None);
        }
        let read = || {
            let mut connection = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
            let OldToNew::Sockets(addresses) = messages::read_message(&mut connection)? else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let taken = fd_passing::receive_sockets(&connection, addresses.len())?;
            Ok(Self { stream: connection, sockets: addresses.into_iter().zip(taken).collect() })
        };
        read().map(Some).map_err(|error: std::io::Error| {
            format!("{TAKEOVER_VARIABLE} is set, but nothing is handed over on the input: {error}.")
        })
    }

    /// Removes and returns the inherited socket of this address, if there is one.
    pub fn take_socket(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.sockets.iter().position(|(known, _)| *known == address)?;
        Some(self.sockets.swap_remove(index).1)
    }

    /// Closes the inherited sockets that were not taken, tells the old process that this one is ready except for the
    /// store, and waits until the old process has closed the store. Blocks.
    ///
    /// # Errors
    /// Returns one sentence; the old process then continues.
    pub fn request_store(&mut self) -> Result<(), String> {
        self.sockets.clear();
        let sent = messages::write_message(&mut self.stream, &NewToOld::Prepared).is_ok();
        match sent.then(|| messages::read_message(&mut self.stream)) {
            Some(Ok(OldToNew::Yours)) => Ok(()),
            _ => Err("The process before this one goes on.".to_owned()),
        }
    }

    /// Returns the connection to the old process.
    pub(crate) fn into_connection(self) -> UnixStream {
        self.stream
    }
}

/// Handle to the old process of an upgrade, while that process drains. All calls only queue messages, so none waits
/// for the old process.
#[derive(Clone, Default)]
pub struct Predecessor {
    outbox: Arc<PredecessorOutbox>,
}

impl Predecessor {
    /// Starts the thread that reports to the process at the other end of `stream` that this process is ready, and then
    /// sends the messages.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start_writer(&self, mut stream: UnixStream) -> std::io::Result<()> {
        let outbox = self.outbox.clone();
        let write = move || match messages::write_message(&mut stream, &NewToOld::Ready) {
            Ok(()) => outbox.write_to(&mut stream),
            Err(_) => outbox.close(),
        };
        std::thread::Builder::new().name("handover".to_owned()).spawn(write).map(drop)
    }

    /// Reports the change of an API key to the old process.
    pub fn report_key_change(&self, id: &str) {
        self.outbox.push_key_change(id);
    }

    /// Reports the change of an account to the old process.
    pub fn report_account_change(&self, id: &str) {
        self.outbox.push_account_change(id);
    }

    /// Sends the response to a request of the old process.
    pub(crate) fn respond(&self, response: NewToOld) {
        self.outbox.push_response(response);
    }

    /// Drops the messages to the old process that are not sent yet, and all later ones.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// Returns true if both handles belong to the same process.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.outbox, &other.outbox)
    }
}
