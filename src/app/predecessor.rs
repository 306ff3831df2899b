//! Service for the process before this one while it drains: this process has the store, and the other sends its acts.

use crate::batch::Batches;
use crate::billing::handover::Holds;
use crate::state::House;
use crate::telemetry::log;
use crate::upgrade::messages::{self, ToNew, ToOld};
use crate::upgrade::new_process::{Arrival, Predecessor};
use parking_lot::Mutex;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Reports this process as ready, and serves the store to the process before it from now on.
///
/// # Errors
/// Returns a sentence that names the cause; the process before this one goes on.
pub fn serve_predecessor(arrival: Arrival, house: &Arc<House>, holds: Holds) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("The process before this one cannot be heard: {error}.");
    let mut line = arrival.into_connection();
    let out = Arc::new(Mutex::new(line.try_clone().map_err(failed)?));
    let predecessor = Predecessor::new(out.clone());
    house.follow(predecessor.clone());
    messages::write(&mut *out.lock(), &ToOld::Ready).map_err(failed)?;
    let (house, runtime) = (house.clone(), Handle::current());
    let serve = move || {
        let holds = serve(&mut line, &out, &house, &runtime, holds);
        if !holds.is_empty() {
            log::event(log::error(), "predecessor_lost", &[("open", &holds.len().to_string())]);
        }
        holds.void();
        house.alone(&predecessor);
    };
    std::thread::Builder::new().name("handover".to_owned()).spawn(serve).map_err(failed)?;
    Ok(())
}

/// Serves until the other process ends; returns the reserves that it left open.
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
                    if of_batches && handle.block_on(Batches::resume(&house.batch)).is_err() {
                        log::event(log::error(), "batches_not_resumed", &[]);
                    }
                });
            }
            Ok(ToNew::Sockets(_) | ToNew::Yours) => {}
            Ok(ToNew::Bye) | Err(_) => return holds,
        }
    }
}
