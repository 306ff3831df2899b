//! A connection that speaks HTTP/1.1: one request after the other. Each head is
//! read here, within its limits and its deadline, and proven to have one meaning.

use super::{Front, part, parted, refusal};
use crate::clock;
use crate::config::settings::Limits;
use crate::exchange::After;
use crate::session::Session;
use crate::session::http1::{Http1, Rest};
use crate::socket::Socket;
use crate::threads;
use bytes::BytesMut;
use penstock_wire::head::{Caps, Request, Scan, Wrong};
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

/// Bytes that most heads fit in.
const USUAL: usize = 4096;

/// Room below which a buffer is made longer.
const CRAMPED: usize = 1024;

/// How the reading of a head ended; what came of one that is not whole is in the buffer.
enum Read {
    /// It is whole.
    Whole(Request),
    /// It is refused.
    Refused(Wrong),
    /// It did not come in time.
    Late,
    /// There is nobody to answer.
    Over,
}

pub(super) async fn serve(front: &Arc<Front>, mut stream: Stream, mut stop: ShutdownWatch) {
    let mut buffer = BytesMut::new();
    let mut reused = false;
    loop {
        let limits = front.limits();
        let request = match head(&mut stream, &mut buffer, &limits, reused, &mut stop).await {
            Read::Whole(request) => request,
            Read::Over => return,
            Read::Refused(wrong) => {
                return refusal::head(front, stream, refusal::dialect(&buffer), Some(wrong)).await;
            }
            Read::Late => return refusal::head(front, stream, refusal::dialect(&buffer), None).await,
        };
        let mut session = Session::Http1(Http1::new(stream, request, buffer, stop.clone()));
        let open = front.house.open_exchange();
        let after = front.exchange(&mut session, &limits, &stop).await;
        drop(open);
        let Session::Http1(session) = session else { return };
        (stream, buffer) = match session.rest() {
            // Without the end that the framing of the answer has for a good one; HTTP/1.0 in clear text has none.
            _ if after == After::Cut => return,
            Rest::Idle(stream, buffer) if after == After::Reuse => (stream, buffer),
            Rest::Idle(mut stream, _) | Rest::Ended(mut stream) => return stream.shutdown().await,
            Rest::Unread(stream) => return part(stream, after == After::Late).await,
            Rest::Cut => return,
        };
        reused = true;
        // Between two requests nothing but the socket is bound to a thread.
        if Socket::can_move(&stream) && threads::ease().await {
            let Ok(moved) = Socket::moved(stream) else { return };
            stream = moved;
        }
    }
}

/// Reads the head of the next request, until the moment by which it has to be there.
async fn head(
    stream: &mut Stream,
    buffer: &mut BytesMut,
    limits: &Limits,
    reused: bool,
    stop: &mut ShutdownWatch,
) -> Read {
    let caps = Caps { bytes: limits.head, target: limits.target, fields: limits.head_fields };
    let mut until = clock::now() + if reused { limits.keep_alive } else { limits.request_head };
    let mut scan = Scan::default();
    loop {
        let begun = !buffer.is_empty();
        if buffer.capacity() - buffer.len() < CRAMPED {
            buffer.reserve(USUAL);
        }
        let read = tokio::select! {
            biased;
            read = timeout_at(until.into(), stream.read_buf(buffer)) => read,
            // An idle connection ends with the house; a request that has begun is served.
            () = parted(stop), if reused && !begun => return Read::Over,
        };
        let read = match read {
            Ok(Ok(1..)) => scan.push(buffer, caps),
            Err(_) if begun => return Read::Late,
            _ => return Read::Over,
        };
        match read {
            Ok(Some(size)) => return Read::Whole(scan.request(buffer.split_to(size).freeze())),
            Ok(None) if begun => {}
            // An idle connection may wait longer for its next head than a head may take.
            Ok(None) => until = clock::now() + limits.request_head,
            Err(wrong) => return Read::Refused(wrong),
        }
    }
}
