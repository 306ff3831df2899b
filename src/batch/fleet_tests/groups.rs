//! Tests of a runner without its task: groups of results of a slice, and the decision to divide a batch.

use super::*;
use crate::batch::input::{LineBody, PendingLine};
use crate::batch::runner::BatchRunner;
use crate::batch::runner_state::SlicingState;
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use penstock_storage::batches::{BatchCounts, BatchSlice};

impl Member {
    /// Returns the runner of a batch or slice with one result and with lines in flight.
    fn runner(&self, slice: Option<BatchSlice>, in_flight: usize) -> BatchRunner {
        let counts = BatchCounts { total: 6, ..BatchCounts::default() };
        let state = BatchState::InProgress;
        let record = BatchRecord { id: "b".into(), state, counts, slice, ..BatchRecord::default() };
        let published = watch::Sender::new(Arc::new(record.clone()));
        let start = RunnableBatch { record, claim: None };
        let mut runner =
            BatchRunner::new(self.context.clone(), start, mpsc::unbounded_channel().0, published);
        let permit = runner.scheduler_entry.try_acquire(CONCURRENCY, true).unwrap();
        let body = LineBody::InMemory(Bytes::new());
        let line = PendingLine { index: 0, custom_id: "line-0".into(), body, attempts: 1 };
        let response = LineResponse {
            request_id: RequestId::random(),
            status: 200,
            body: vec![Bytes::from_static(b"{}")],
            hold_end: None,
            usage: None,
            disposition: LineDisposition::Final,
        };
        runner.in_flight.lines = in_flight + 1;
        runner.on_line_done(line, permit, Some(Box::new(response)));
        runner
    }
}

#[tokio::test]
async fn a_result_of_a_slice_waits_for_others_unless_lines_wait_for_its_permit() {
    let pair = Pair::start().await;
    let member = &pair.members[0];
    tokio::time::pause();
    let slice = Some(BatchSlice { lines: 6, ..BatchSlice::default() });
    let mut runner = member.runner(slice, 1);
    let due = runner.next_group_deadline().unwrap();
    assert!(due <= Instant::now() + Duration::from_millis(250));
    runner.start_next_write();
    assert!(!runner.disk.writing);
    tokio::time::advance(due - Instant::now()).await;
    runner.start_next_write();
    assert!(runner.disk.writing && runner.pending.since.is_none());
    let mut ending = member.runner(slice, 1);
    ending.end_early(penstock_batch::state::EarlyEndReason::Cancelled);
    for mut runner in [member.runner(slice, 0), member.runner(None, 1), ending] {
        runner.start_next_write();
        assert!(runner.disk.writing);
    }
    tokio::time::resume();
    pair.stop().await;
}

#[tokio::test]
async fn lines_are_interrupted_by_a_stop_and_cancelled_by_the_end_of_their_batch() {
    let pair = Pair::start().await;
    let member = &pair.members[0];
    tokio::time::pause();
    let mut stopped = member.runner(None, 1);
    stopped.begin_stop();
    tokio::time::advance(Duration::from_secs(3)).await;
    stopped.tick();
    let mut lost = member.runner(None, 1);
    lost.on_claim_lost();
    let mut ended = member.runner(None, 1);
    ended.end_early(penstock_batch::state::EarlyEndReason::Cancelled);
    ended.begin_stop();
    tokio::time::advance(Duration::from_secs(3)).await;
    ended.tick();
    for (runner, is_interrupted) in [(stopped, true), (lost, true), (ended, false)] {
        let lines = &runner.in_flight;
        assert!(lines.cancel.is_cancelled());
        assert_eq!(lines.interrupted.is_cancelled(), is_interrupted);
    }
    tokio::time::resume();
    pair.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_being_divided_starts_no_line_and_runs_as_a_whole_after_a_gateway_without_slices_joined()
 {
    let pair = Pair::start().await;
    let member = &pair.members[0];
    let mut runner = member.runner(None, 0);
    runner.slicing = SlicingState::Dividing;
    member.context.batches.set_peers_run_slices(false);
    assert!(runner.divide_into_slices(), "the input file is still read");
    runner.on_divided(Ok(vec![BatchSlice::default()]));
    assert_eq!((runner.slicing, runner.record.slices), (SlicingState::Whole, None));
    pair.stop().await;
}
