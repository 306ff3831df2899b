//! Annotation: injects `environment_impact` and `billing_cost` into a response.

use super::response::{BufferedBody, ResponseBodyFilter, ResponseContext, StreamEnd};
use std::mem::take;

/// Filter that injects the objects of the settlement: into the last event of a stream, at the end of a JSON object, or
/// into the head if the body is not JSON.
pub struct AnnotateSettlement;

impl ResponseBodyFilter for AnnotateSettlement {
    const NAME: &'static str = "annotate";

    fn finish_stream<C: ResponseContext>(_context: &mut C, end: &mut StreamEnd) {
        end.members = take(&mut end.settlement_members);
    }

    async fn filter_buffered<C: ResponseContext>(
        context: &mut C,
        body: &mut BufferedBody,
    ) -> Result<(), C::Error> {
        let members = take(&mut body.settlement_members);
        if context.is_json() {
            body.downstream =
                penstock_response_metadata::insert_members(take(&mut body.downstream), &members);
        } else {
            body.head_members = members;
        }
        Ok(())
    }
}
