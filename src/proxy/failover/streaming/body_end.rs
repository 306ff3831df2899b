//! End of a plain answer that the provider streams although the request did not ask for it. Like a stream, it is
//! complete at its end event, or if its connection breaks or stays silent after its finish reason.

use super::super::FailoverRun;
use super::super::attempt::{self, AttemptError};
use super::times::StreamDeadlines;
use crate::time::clock;
use crate::upstream::offer::OfferState;
use crate::upstream::wire_format::WireFormat;
use bytes::Bytes;
use penstock_core::{OutputBuffer, StreamProgress, StreamTranslation, UpstreamErrorKind};
use penstock_dialect::decode::BodyStart;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Detector of the end of a streamed body. Its output is discarded: the body is decoded when it is complete.
pub struct StreamedBodyEnd(BodyState);

enum BodyState {
    /// Body that is no stream of server-sent events, such as JSON lines: it ends with its body.
    NotStreamed,
    /// Body whose first bytes, which are stored, do not show if it is a stream.
    Unknown {
        first_bytes: Vec<u8>,
        offer: Arc<OfferState>,
        wire_format: WireFormat,
    },
    Streamed {
        reply: Box<dyn StreamTranslation>,
        times: StreamDeadlines,
    },
    /// Stream that has ended, or whose error ends it.
    Ended,
}

impl StreamedBodyEnd {
    /// Creates a detector for a body that is never a stream of events.
    pub const fn none() -> Self {
        Self(BodyState::NotStreamed)
    }

    /// Creates a detector for the answer of an offer.
    pub fn of_answer(offer: &Arc<OfferState>, wire_format: WireFormat) -> Self {
        Self(match wire_format {
            WireFormat::Dialects(_) => {
                BodyState::Unknown { first_bytes: Vec::new(), offer: offer.clone(), wire_format }
            }
            WireFormat::Adapter(_) => BodyState::NotStreamed,
        })
    }

    /// Returns the deadline of the next bytes; `until` is the one of a body that is no stream. The output of a stream
    /// may begin late, so its deadlines apply only after its finish reason.
    pub fn read_deadline(&self, until: Instant, idle: Duration) -> Instant {
        match &self.0 {
            BodyState::Streamed { reply, times } if reply.progress() >= StreamProgress::Finished => {
                times.read_deadline(&**reply, idle).0.min(until)
            }
            _ => until,
        }
    }

    /// Returns the bytes that were read; `None` at the end of the body, and instead of a failure of the provider after
    /// the finish reason of a stream.
    pub fn accept_failure(
        &self,
        read: Result<Option<Bytes>, AttemptError>,
    ) -> Result<Option<Bytes>, AttemptError> {
        match (read, &self.0) {
            // Undecodable bytes are no end of a connection: they count, unless the answer has ended.
            (Err(AttemptError::Fault(fault)), BodyState::Streamed { reply, .. })
                if reply.progress() == StreamProgress::Ended
                    || (reply.progress() == StreamProgress::Finished
                        && fault.kind != UpstreamErrorKind::Malformed) =>
            {
                Ok(None)
            }
            (read, _) => read,
        }
    }

    /// Records the next bytes of the body.
    pub fn push(&mut self, run: &FailoverRun<'_, '_>, piece: &Bytes) {
        if let BodyState::Unknown { first_bytes, offer, wire_format } = &mut self.0 {
            first_bytes.extend_from_slice(piece);
            let next = match BodyStart::detect(first_bytes) {
                BodyStart::Unknown { ignored } => {
                    first_bytes.drain(..ignored);
                    return;
                }
                BodyStart::Other => BodyState::NotStreamed,
                BodyStart::EventStream => {
                    let bytes = Bytes::from(std::mem::take(first_bytes));
                    new_stream(run, offer, *wire_format)
                        .map_or(BodyState::NotStreamed, |next| next.after(bytes))
                }
            };
            self.0 = next;
        } else if matches!(self.0, BodyState::Streamed { .. }) {
            self.0 = std::mem::replace(&mut self.0, BodyState::Ended).after(piece.clone());
        }
    }

    /// Returns the number of bytes that the detector holds beside the body.
    pub fn buffered_bytes(&self) -> usize {
        match &self.0 {
            BodyState::Unknown { first_bytes, .. } => first_bytes.len(),
            BodyState::Streamed { reply, .. } => reply.buffered_bytes(),
            BodyState::NotStreamed | BodyState::Ended => 0,
        }
    }

    /// Returns true if the answer is complete, so that the rest of the body is not read.
    pub const fn is_answer_over(&self) -> bool {
        matches!(self.0, BodyState::Ended)
    }
}

impl BodyState {
    /// Returns the state after the next bytes of a stream.
    fn after(self, bytes: Bytes) -> Self {
        let Self::Streamed { mut reply, mut times } = self else { return self };
        let length = bytes.len();
        let pushed = reply.push(bytes, &mut OutputBuffer::default());
        times.record_progress(&*reply, length);
        let has_ended = reply.progress() == StreamProgress::Ended && !reply.awaits_usage();
        if has_ended || pushed.is_err() { Self::Ended } else { Self::Streamed { reply, times } }
    }
}

fn new_stream(run: &FailoverRun<'_, '_>, offer: &OfferState, wire_format: WireFormat) -> Option<BodyState> {
    let target = attempt::translation_parameters(run, offer, wire_format.dialect(), run.received_at);
    let reply = wire_format.new_stream_translation(run.request, &target)?;
    let first_token = offer.offer.provider.timeouts.first_token;
    let times = StreamDeadlines::new(clock::cached_now(), first_token, Some(&*reply));
    Some(BodyState::Streamed { reply, times })
}
