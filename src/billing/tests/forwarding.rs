//! Operations that are passed to another process after a handover.

use super::*;
use std::sync::mpsc;

#[test]
fn a_prepared_forwarder_passes_operations_only_once_it_is_used() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g", 10_000).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let serve = |request: &str| reserve(&ledger, request, 10).unwrap().settle(charge(10));
    drop(ledger.start_action_forwarder().unwrap());
    let forwarder = ledger.start_action_forwarder().unwrap();
    assert!(runtime.block_on(ledger.wait_durable(serve("written here"))));
    ledger.stop_writer();
    let (sent, received) = mpsc::channel();
    ledger.forward_actions(forwarder, 0, move |acts| sent.send(acts.len()).is_ok());
    assert!(runtime.block_on(ledger.wait_durable(serve("written there"))));
    assert_eq!(received.try_iter().sum::<usize>(), 2, "a reserve and a settlement");
}

#[test]
fn a_writer_that_was_not_stopped_is_replaced_when_it_is_restarted() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g", 10_000).unwrap();
    let users = Arc::strong_count(&ledger.queue);
    ledger.restart_writer().unwrap();
    assert_eq!(Arc::strong_count(&ledger.queue), users, "there is one writer");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ticket = reserve(&ledger, "r", 10).unwrap().settle(charge(10));
    assert!(runtime.block_on(ledger.wait_durable(ticket)));
}
