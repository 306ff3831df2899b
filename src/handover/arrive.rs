//! New process of an upgrade, and its service for the old process.

use super::frame::{self, ToNew, ToOld};
use super::{VARIABLE, sockets};
use crate::batch::Batches;
use crate::house::House;
use crate::ledger::handover::Holds;
use crate::observe::log;
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Connection and sockets inherited from the old process.
pub struct Arrival {
    line: UnixStream,
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl Arrival {
    /// Reads what the old process hands over, if there is one. Blocks.
    ///
    /// # Errors
    /// Returns a sentence if the handover cannot be read from standard input.
    pub fn here() -> Result<Option<Self>, String> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let read = || {
            let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
            let ToNew::Sockets(addresses) = frame::read(&mut line)? else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let taken = sockets::receive(&line, addresses.len())?;
            Ok(Self { line, sockets: addresses.into_iter().zip(taken).collect() })
        };
        read().map(Some).map_err(|error: std::io::Error| {
            format!("{VARIABLE} is set, but standard input has no handover: {error}.")
        })
    }

    /// Takes the inherited socket of this address, if there is one.
    pub fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let place = self.sockets.iter().position(|(known, _)| *known == address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Reports that only the store is missing, and waits until the old process has closed it. Blocks.
    ///
    /// # Errors
    /// Returns a sentence if the old process continues instead.
    pub fn prepared(&mut self) -> Result<(), String> {
        self.sockets.clear();
        let told = frame::write(&mut self.line, &ToOld::Prepared).is_ok();
        match told.then(|| frame::read(&mut self.line)) {
            Some(Ok(ToNew::Yours)) => Ok(()),
            _ => Err("The old process continues.".to_owned()),
        }
    }

    /// Reports that this process serves, and starts to process the store requests of the old process.
    ///
    /// # Errors
    /// Returns a sentence if the old process cannot be reached; it continues then.
    pub fn ready(mut self, house: &Arc<House>, holds: Holds) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("The connection to the old process failed: {error}.");
        let out = Arc::new(Mutex::new(self.line.try_clone().map_err(failed)?));
        let predecessor = Predecessor { out: out.clone() };
        house.follow(predecessor.clone());
        frame::write(&mut *out.lock(), &ToOld::Ready).map_err(failed)?;
        let (house, runtime) = (house.clone(), Handle::current());
        let serve = move || {
            let holds = serve(&mut self.line, &out, &house, &runtime, holds);
            if !holds.is_empty() {
                log::event(log::error(), "predecessor_lost", &[("open", &holds.len().to_string())]);
            }
            holds.void();
            house.alone(&predecessor);
        };
        std::thread::Builder::new().name("handover".to_owned()).spawn(serve).map_err(failed)?;
        Ok(())
    }
}

/// Old process, while it drains.
#[derive(Clone)]
pub struct Predecessor {
    out: Arc<Mutex<UnixStream>>,
}

impl Predecessor {
    /// Notifies it that a key has changed.
    pub fn key(&self, id: &str) {
        frame::write(&mut *self.out.lock(), &ToOld::Key(id.to_owned())).ok();
    }

    /// Notifies it that an account has changed.
    pub fn account(&self, id: &str) {
        frame::write(&mut *self.out.lock(), &ToOld::Account(id.to_owned())).ok();
    }

    /// Returns true if both are the same process.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.out, &other.out)
    }
}

/// Serves the old process until it ends; returns the reservations that it left open.
fn serve(
    line: &mut UnixStream,
    out: &Arc<Mutex<UnixStream>>,
    house: &Arc<House>,
    runtime: &Handle,
    mut holds: Holds,
) -> Holds {
    loop {
        match frame::read(line) {
            Ok(ToNew::Acts { number, acts }) => {
                for sent in &acts {
                    let _charging = house.charging.read();
                    if let Some(charged) = house.ledger.take(&mut holds, sent) {
                        house.charged(&charged);
                    }
                }
                let (house, out, ticket) = (house.clone(), out.clone(), house.ledger.ticket());
                runtime.spawn(async move {
                    if house.ledger.kept(ticket).await {
                        frame::write(&mut *out.lock(), &ToOld::Kept(number)).ok();
                    }
                });
            }
            Ok(ToNew::Call { number, call }) => {
                let (house, out, handle) = (house.clone(), out.clone(), runtime.clone());
                runtime.spawn_blocking(move || {
                    let of_batches = call.is_of_batches();
                    let answer = call.answer(&*house.vault.store);
                    frame::write(&mut *out.lock(), &ToOld::Answer(number, answer)).ok();
                    if of_batches && handle.block_on(Batches::resume(&house)).is_err() {
                        log::event(log::error(), "batches_not_resumed", &[]);
                    }
                });
            }
            Ok(ToNew::Sockets(_) | ToNew::Yours) => {}
            Ok(ToNew::Bye) | Err(_) => return holds,
        }
    }
}
