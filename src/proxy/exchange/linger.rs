//! Rest of a request body that arrives over HTTP/2 after the response. If the gateway reset the stream at once, clients
//! that are still sending would report the reset instead of the response.

use super::{Exchange, REQUEST_TIMEOUT_STATUS};
use crate::http::{LINGER_IDLE, LINGER_TIMEOUT, MAX_LINGER_BYTES};
use crate::proxy::RequestSource;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum number of streams of the process whose bodies are discarded at the same time; further streams are reset.
const MAX_LINGERING_STREAMS: usize = 256;

static LINGERING_STREAMS: Semaphore = Semaphore::const_new(MAX_LINGERING_STREAMS);

impl Exchange<'_> {
    /// Ends the exchange, and then reads and discards the rest of its HTTP/2 body within limits of time and bytes. The
    /// limits are those of a refused body over HTTP/1.1.
    pub(crate) async fn discard_unread_body(&mut self) {
        let Some(RequestSource::Http2(stream)) = self.caller.request_source().cloned() else { return };
        if self.caller.is_body_done() {
            return;
        }
        let Ok(_permit) = LINGERING_STREAMS.try_acquire() else { return };
        (self.limit_reservation, self.admission_permit) = (None, None);
        stream.end_exchange();
        let is_late = self.record.status == REQUEST_TIMEOUT_STATUS;
        let caller = &mut self.caller;
        let discard = async {
            let mut remaining = MAX_LINGER_BYTES;
            while remaining > 0
                && let Ok(Ok(Some(piece))) = timeout(LINGER_IDLE, caller.read_request_body()).await
            {
                remaining = remaining.saturating_sub(piece.len());
            }
        };
        timeout(if is_late { LINGER_IDLE } else { LINGER_TIMEOUT }, discard).await.ok();
    }
}
