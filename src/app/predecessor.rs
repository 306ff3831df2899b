//! Service for the previous process of an upgrade while it drains: this process has the store, and the previous process
//! sends its ledger actions and store requests to this one.

use crate::batch::BatchManager;
use crate::billing::handover::InheritedHolds;
use crate::state::AppState;
use crate::upgrade::messages::{self, NewToOld, OldToNew};
use crate::upgrade::new_process::{InheritedState, Predecessor};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::Level;

/// Starts the threads that serve the previous process, and reports to that process that this one is ready. The threads
/// record its ledger actions and execute its store requests until it ends, and then void the reserves that it left
/// open.
///
/// # Errors
/// Returns a sentence that names the cause; the previous process then continues to serve.
pub fn serve_predecessor(
    arrival: InheritedState,
    app: &Arc<AppState>,
    holds: InheritedHolds,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("The process before this one cannot be heard: {error}.");
    let mut line = arrival.into_connection();
    let out = line.try_clone().map_err(failed)?;
    let predecessor = Predecessor::default();
    app.add_predecessor(predecessor.clone());
    let (app, runtime, served) = (app.clone(), Handle::current(), predecessor.clone());
    let serve = move || {
        let holds = serve(&mut line, &served, &app, &runtime, holds);
        served.close();
        if !holds.is_empty() {
            tracing::error!(name: "predecessor_lost", open = %holds.len());
        }
        holds.void();
        app.ledger.record_predecessor_end();
        app.remove_predecessor(&served);
    };
    std::thread::Builder::new().name("handover".to_owned()).spawn(serve).map_err(failed)?;
    // The last step, because the previous process gives up the store for good once it knows that this one is ready.
    predecessor.start_writer(out).map_err(failed)
}

/// Serves the previous process until it ends and its calls of the store are executed; returns the reserves that it left
/// open.
fn serve(
    line: &mut UnixStream,
    predecessor: &Predecessor,
    app: &Arc<AppState>,
    runtime: &Handle,
    mut holds: InheritedHolds,
) -> InheritedHolds {
    let mut calls = JoinSet::new();
    loop {
        match messages::read_message(line) {
            Ok(OldToNew::Acts { number, acts }) => {
                for sent in &acts {
                    let _charging = app.charge_lock.read();
                    if let Some(charged) = app.ledger.record_forwarded_action(&mut holds, sent) {
                        app.apply_charge_of_other_process(&charged);
                    }
                }
                let (app, sender, ticket) =
                    (app.clone(), predecessor.clone(), app.ledger.last_pushed_ticket());
                runtime.spawn(async move {
                    if app.ledger.wait_durable(ticket).await {
                        sender.respond(NewToOld::Persisted(number));
                    }
                });
            }
            Ok(OldToNew::Call { number, call }) => {
                let (app, sender, handle) = (app.clone(), predecessor.clone(), runtime.clone());
                while calls.try_join_next().is_some() {}
                let execute = move || {
                    let of_batches = call.is_batch_write();
                    let answer = call.execute(&*app.stores.store);
                    sender.respond(NewToOld::Answer(number, answer));
                    if of_batches && handle.block_on(BatchManager::resume(&app.batch_context)).is_err() {
                        tracing::event!(name: "batches_not_resumed", Level::ERROR, {});
                    }
                };
                calls.spawn_blocking_on(execute, runtime);
            }
            Ok(OldToNew::Sockets(_) | OldToNew::Yours) => {}
            Ok(OldToNew::Bye) | Err(_) => break,
        }
    }
    runtime.block_on(async { while calls.join_next().await.is_some() {} });
    holds
}
