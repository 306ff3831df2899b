//! The process that takes over, and what it does for the one before it.

use super::messages::{self, ToNew, ToOld};
use super::{VARIABLE, fd_passing};
use crate::batch::Batches;
use crate::billing::handover::Holds;
use crate::state::House;
use crate::telemetry::log;
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What came with the start of this process.
pub struct Arrival {
    line: UnixStream,
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl Arrival {
    /// What the process before this one hands over, if there is one; blocks.
    ///
    /// # Errors
    /// One sentence; this process was not started as it should be.
    pub fn here() -> Result<Option<Self>, String> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let read = || {
            let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
            let ToNew::Sockets(addresses) = messages::read(&mut line)? else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let taken = fd_passing::receive(&line, addresses.len())?;
            Ok(Self { line, sockets: addresses.into_iter().zip(taken).collect() })
        };
        read().map(Some).map_err(|error: std::io::Error| {
            format!("{VARIABLE} is set, but nothing is handed over on the input: {error}.")
        })
    }

    /// The socket of this address, if it came along.
    pub fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let place = self.sockets.iter().position(|(known, _)| *known == address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Says that only the store is missing, and waits until it is free; blocks.
    ///
    /// # Errors
    /// One sentence; the process before this one goes on.
    pub fn prepared(&mut self) -> Result<(), String> {
        self.sockets.clear();
        let told = messages::write(&mut self.line, &ToOld::Prepared).is_ok();
        match told.then(|| messages::read(&mut self.line)) {
            Some(Ok(ToNew::Yours)) => Ok(()),
            _ => Err("The process before this one goes on.".to_owned()),
        }
    }

    /// Says that this process serves, and does from now on what the other one wants of the store.
    ///
    /// # Errors
    /// One sentence; the process before this one goes on.
    pub fn ready(mut self, house: &Arc<House>, holds: Holds) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("The process before this one cannot be heard: {error}.");
        let out = Arc::new(Mutex::new(self.line.try_clone().map_err(failed)?));
        let predecessor = Predecessor { out: out.clone() };
        house.follow(predecessor.clone());
        messages::write(&mut *out.lock(), &ToOld::Ready).map_err(failed)?;
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

/// The process before this one, while it drains.
#[derive(Clone)]
pub struct Predecessor {
    out: Arc<Mutex<UnixStream>>,
}

impl Predecessor {
    /// A key is not what it was.
    pub fn key(&self, id: &str) {
        messages::write(&mut *self.out.lock(), &ToOld::Key(id.to_owned())).ok();
    }

    /// An account is not what it was.
    pub fn account(&self, id: &str) {
        messages::write(&mut *self.out.lock(), &ToOld::Account(id.to_owned())).ok();
    }

    /// Whether it is the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.out, &other.out)
    }
}

/// Until it ends; returns what it left open.
fn serve(
    line: &mut UnixStream,
    out: &Arc<Mutex<UnixStream>>,
    house: &Arc<House>,
    runtime: &Handle,
    mut holds: Holds,
) -> Holds {
    loop {
        match messages::read(line) {
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
                        messages::write(&mut *out.lock(), &ToOld::Kept(number)).ok();
                    }
                });
            }
            Ok(ToNew::Call { number, call }) => {
                let (house, out, handle) = (house.clone(), out.clone(), runtime.clone());
                runtime.spawn_blocking(move || {
                    let of_batches = call.is_of_batches();
                    let answer = call.answer(&*house.vault.store);
                    messages::write(&mut *out.lock(), &ToOld::Answer(number, answer)).ok();
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
