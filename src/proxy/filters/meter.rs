//! Metering: measures the progress and the usage of a response, and charges it.

use super::response::{
    BufferedBody, ResponseBodyFilter, ResponseContext, ResponseUsage, StreamEnd, StreamPiece,
};
use penstock_core::{UpstreamError, WorkDone};

/// Filter that meters a response. The usage is that of the provider if the provider reports one, otherwise the
/// gateway's own count.
pub struct MeterUsage;

impl ResponseBodyFilter for MeterUsage {
    const NAME: &'static str = "meter";

    fn filter_piece<C: ResponseContext>(
        context: &mut C,
        piece: &mut StreamPiece<'_>,
    ) -> Result<(), UpstreamError> {
        context.record_progress(piece.length);
        Ok(())
    }

    fn finish_stream<C: ResponseContext>(context: &mut C, end: &mut StreamEnd) {
        let total = context.total_usage();
        let Some(reply) = context.translation() else { return };
        let usage = total.or_else(|| reply.usage()).unwrap_or_else(|| reply.estimated_usage());
        let work = reply.non_token_work();
        let metered = ResponseUsage {
            charged_work: work.unwrap_or(WorkDone::Tokens(usage)),
            // The first part of a rescued response is the work of another provider, so the work of this provider is
            // only that of this attempt.
            provider_work: work.unwrap_or_else(|| WorkDone::Tokens(reply.attempt_usage())),
            measured: reply.measured_energy(),
            observation: reply.offer_observation(),
            finish_reason: reply.finish_reason(),
            is_malformed: reply.has_invalid_output(),
        };
        end.usage = Some(usage);
        end.settlement_members = context.settle(metered);
    }

    async fn filter_buffered<C: ResponseContext>(
        context: &mut C,
        body: &mut BufferedBody,
    ) -> Result<(), C::Error> {
        let Some(whole) = body.translated.take() else { return Ok(()) };
        let done = whole
            .work
            .unwrap_or_else(|| WorkDone::Tokens(context.estimate_unreported_usage(whole.output_bytes)));
        body.settlement_members = context.settle(ResponseUsage {
            charged_work: done,
            provider_work: whole.provider_work.unwrap_or(done),
            measured: whole.measured_energy,
            observation: whole.observation,
            finish_reason: Some(whole.finish_reason),
            is_malformed: false,
        });
        Ok(())
    }
}
