//! Reasons to interrupt a background response: a command, the end of its completion window, an invalid key, a lost
//! claim, or the stop of the gateway.

use super::BatchCommand;
use super::context::BatchContext;
use super::runner::TICK_INTERVAL;
use penstock_dialect::background_response::{BackgroundResponseState, ResponseFailure};
use penstock_storage::batches::{BatchRecord, EndRequest};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

const EXPIRED: &str = "The response did not end within the time for background responses.";
const KEY_REVOKED: &str = "The API key of this response was revoked or has expired.";

/// Reason to interrupt a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The response ends in this state.
    Ended(BackgroundResponseState<'static>),
    /// Another gateway of the fleet has taken the claim.
    ClaimLost,
    /// Interruption because the gateway stops.
    Stopping,
}

/// Watch over one background response for reasons to interrupt it.
pub(super) struct InterruptionWatch {
    app: Arc<BatchContext>,
    key: String,
    expires: u64,
    commands: mpsc::UnboundedReceiver<BatchCommand>,
    stop: watch::Receiver<bool>,
    /// Cancel requests that wait for the end of the response.
    waiters: Vec<oneshot::Sender<Arc<BatchRecord>>>,
}

impl InterruptionWatch {
    pub(super) fn new(
        app: &Arc<BatchContext>,
        record: &BatchRecord,
        commands: mpsc::UnboundedReceiver<BatchCommand>,
    ) -> Self {
        Self {
            app: app.clone(),
            key: record.key.clone(),
            expires: record.expires,
            commands,
            stop: app.batches.stop_signal(),
            waiters: Vec::new(),
        }
    }

    /// Waits for a reason to interrupt the response.
    pub(super) async fn wait_for_interruption(&mut self) -> Interruption {
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return Interruption::Stopping,
                Some(command) = self.commands.recv() => {
                    if let Some(why) = self.on_command(command) {
                        return why;
                    }
                }
                () = sleep(TICK_INTERVAL) => {
                    if let Some(failure) = self.check() {
                        return Interruption::Ended(BackgroundResponseState::Failed(failure));
                    }
                }
            }
        }
    }

    /// Waits until another process has to continue a finished response: its claim is lost, or the gateway stops.
    pub(super) async fn wait_for_claim_loss_or_stop(&mut self) -> Interruption {
        loop {
            match self.wait_for_interruption().await {
                // The response has already ended, so only a lost claim or a stop matters.
                Interruption::Ended(_) => sleep(TICK_INTERVAL).await,
                why => return why,
            }
        }
    }

    fn on_command(&mut self, command: BatchCommand) -> Option<Interruption> {
        match command {
            BatchCommand::Cancel(waiter) => {
                self.waiters.push(waiter);
                Some(Interruption::Ended(BackgroundResponseState::Cancelled))
            }
            BatchCommand::End(EndRequest::Cancelled) => {
                Some(Interruption::Ended(BackgroundResponseState::Cancelled))
            }
            BatchCommand::ClaimLost => Some(Interruption::ClaimLost),
            // The first two commands concern input files and slices, which a response does not have. A missing claim
            // is no reason either, because a response may be registered before its claim exists.
            BatchCommand::End(_) | BatchCommand::InputDeleted(_) | BatchCommand::ClaimGone => None,
        }
    }

    /// Checks the time limit and the key, and returns the failure with which the response ends; `None` if it continues,
    /// or waits because the key is suspended.
    fn check(&self) -> Option<ResponseFailure<'static>> {
        let now = self.app.clock.unix_seconds();
        if now >= self.expires {
            return Some(ResponseFailure::server_error(EXPIRED));
        }
        match self.app.key_cache.find_principal(&self.key) {
            Some(principal) if principal.is_valid_at(now) || principal.is_suspended() => None,
            _ => Some(ResponseFailure::server_error(KEY_REVOKED)),
        }
    }

    /// Sends the last record to the requests that wait for the end.
    pub(super) fn report_end(self, record: &Arc<BatchRecord>) {
        for waiter in self.waiters {
            waiter.send(record.clone()).ok();
        }
    }
}

/// Waits until the gateway stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}
