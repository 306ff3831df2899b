//! A connection that speaks HTTP/1.1: one request after the other. Each head is
//! read here, within its limits and its deadline, and proven to have one meaning
//! before the parser beneath sees it.

use super::{Front, part, parted, refusal};
use crate::config::settings::Limits;
use crate::exchange::After;
use bytes::BytesMut;
use penstock_wire::head::{Caps, Scan, Wrong};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

/// Bytes that most heads fit in.
const USUAL: usize = 4096;

/// How the reading of a head ended.
enum Read {
    /// It is whole, what came after it is there too; whether its body is in chunks.
    Whole(BytesMut, bool),
    /// It is refused: what came of it, and why.
    Refused(BytesMut, Wrong),
    /// It did not come in time.
    Late(BytesMut),
    /// There is nobody to answer.
    Over,
}

pub(super) async fn serve(front: &Arc<Front>, mut stream: Stream, mut stop: ShutdownWatch) {
    let mut reused = false;
    loop {
        let limits = front.limits();
        let (head, chunked, until) = match head(&mut stream, &limits, reused, &mut stop).await {
            (Read::Whole(head, chunked), until) => (head, chunked, until),
            (Read::Over, _) => return,
            (Read::Refused(head, wrong), _) => {
                return refusal::head(front, stream, refusal::dialect(&head), Some(wrong)).await;
            }
            (Read::Late(head), _) => {
                return refusal::head(front, stream, refusal::dialect(&head), None).await;
            }
        };
        let dialect = refusal::dialect(&head);
        let mut session = ServerSession::new_http1(stream);
        session.set_pipelined_prefix(head);
        match timeout_at(until, session.read_request()).await {
            Ok(Ok(true)) => {}
            // What the parser takes for wrong though it looked well: two authorities, say.
            Ok(Err(_)) => {
                let ServerSession::H1(session) = session else { return };
                let wrong = Wrong::Malformed("its target or its Host is not one");
                return refusal::head(front, session.into_inner(), dialect, Some(wrong)).await;
            }
            Ok(Ok(false)) | Err(_) => return,
        }
        let Some(next) = one(front, session, &limits, chunked, &stop).await else { return };
        stream = next;
        reused = true;
    }
}

/// One exchange; the connection, if it may serve another. After a body in chunks it never does: where exactly the
/// last one ended, another parser might see otherwise, and then something of this body would be the next request.
async fn one(
    front: &Front,
    mut session: ServerSession,
    limits: &Limits,
    chunked: bool,
    stop: &ShutdownWatch,
) -> Option<Stream> {
    let open = front.house.open_exchange();
    let after = front.exchange(&mut session, limits, chunked, stop).await;
    if after == After::Cut {
        // Without the end that the framing of the answer has for a good one.
        return None;
    }
    if after == After::End && !session.is_body_done() {
        drop(open);
        let ServerSession::H1(mut session) = session else { return None };
        session.finish_body().await.ok();
        part(session.into_inner()).await;
        return None;
    }
    let reusable = session.finish().await.ok().flatten()?;
    Some(reusable.into_parts().0)
}

/// Reads the head of the next request, and the moment by which it had to be there.
async fn head(
    stream: &mut Stream,
    limits: &Limits,
    reused: bool,
    stop: &mut ShutdownWatch,
) -> (Read, Instant) {
    let caps = Caps { bytes: limits.head, target: limits.target, fields: limits.head_fields };
    let mut until = Instant::now() + if reused { limits.keep_alive } else { limits.request_head };
    let (mut head, mut scan) = (BytesMut::with_capacity(USUAL), Scan::default());
    loop {
        let begun = !head.is_empty();
        let read = tokio::select! {
            biased;
            read = timeout_at(until, stream.read_buf(&mut head)) => read,
            // An idle connection ends with the house; a request that has begun is served.
            () = parted(stop), if reused && !begun => return (Read::Over, until),
        };
        let read = match read {
            Ok(Ok(1..)) => scan.push(&head, caps),
            Err(_) if begun => return (Read::Late(head), until),
            _ => return (Read::Over, until),
        };
        match read {
            Ok(Some(_)) => return (Read::Whole(head, scan.chunked()), until),
            Ok(None) if begun => {}
            // An idle connection may wait longer for its next head than a head may take.
            Ok(None) => until = Instant::now() + limits.request_head,
            Err(wrong) => return (Read::Refused(head, wrong), until),
        }
    }
}
