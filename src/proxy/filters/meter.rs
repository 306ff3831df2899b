//! Metering: measures the progress and the usage of a response, and charges it.

use super::response::{BufferedBody, Metered, ResponseBodyFilter, ResponseContext, StreamEnd, StreamPiece};
use penstock_contract::{Done, Fault};

/// Filter that meters a response. Its usage is the provider's where that reports it, else the gateway's own count.
pub struct Meter;

impl ResponseBodyFilter for Meter {
    const NAME: &'static str = "meter";

    fn piece<C: ResponseContext>(context: &mut C, piece: &mut StreamPiece<'_>) -> Result<(), Fault> {
        context.note(piece.length);
        Ok(())
    }

    fn finish<C: ResponseContext>(context: &mut C, end: &mut StreamEnd) {
        let total = context.total_usage();
        let Some(reply) = context.translation() else { return };
        let usage = total.or_else(|| reply.usage()).unwrap_or_else(|| reply.counted());
        let metered = Metered {
            done: Done::Tokens(usage),
            // The beginning of a rescued response was the work of another provider.
            own: Done::Tokens(reply.worked()),
            measured: reply.measured(),
            noticed: reply.noticed(),
            finish: reply.finish(),
            spoilt: reply.is_spoilt(),
        };
        end.usage = Some(usage);
        end.settled = context.settle(metered);
    }

    async fn buffered<C: ResponseContext>(context: &mut C, body: &mut BufferedBody) -> Result<(), C::Error> {
        let Some(whole) = body.translated.take() else { return Ok(()) };
        let done = whole.done.unwrap_or_else(|| Done::Tokens(context.counted(whole.output_bytes)));
        body.settled = context.settle(Metered {
            done,
            own: done,
            measured: whole.measured,
            noticed: whole.noticed,
            finish: Some(whole.finish),
            spoilt: false,
        });
        Ok(())
    }
}
