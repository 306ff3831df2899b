//! Pages of the operators' console and of the dashboard over HTTP, on the admin listener and on the dashboard's
//! listener.

use super::COMPRESSIBLE;
use super::api::AdminApi;
use super::request_head::{accepts_gzip, gzip};
use crate::console::{AnswerStream, Console, ConsoleAnswer};
use crate::proxy::downstream::Downstream;
use crate::proxy::response::head::ResponseHead;
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use http::header;
use penstock_core::ApiError;
use pingora_core::protocols::http::ServerSession;

/// Answers a request for a path of a site; if `host` is an error, answers with that error. If the response is a stream,
/// nothing is sent, and the stream is returned for the caller to send.
pub(super) async fn serve_site_page(
    console: &Console,
    api: &AdminApi,
    host: Result<(), ApiError>,
    session: &mut ServerSession,
    id: &RequestId,
) -> Option<AnswerStream> {
    let accepts = accepts_gzip(session.get_header_bytes(header::ACCEPT_ENCODING));
    let answer = match host.and_then(|()| api.check_store()) {
        Ok(()) => console.handle_request(api, session).await,
        Err(refusal) => console.refusal_answer(&refusal),
    };
    let ConsoleAnswer { status, content_type: kind, cache, location, cookies, file_name, body, stream } =
        answer;
    if stream.is_some() {
        return stream;
    }
    let mut head = ResponseHead::new(status, id).with("vary", "accept-encoding").with("cache-control", cache);
    for (name, value) in crate::console::RESPONSE_HEADERS {
        head = head.with(name, value);
    }
    if let Some(location) = location {
        head = head.with("location", location);
    }
    for cookie in cookies {
        head = head.with("set-cookie", cookie);
    }
    if let Some(name) = file_name {
        head = head.with("content-disposition", format!("attachment; filename=\"{name}\""));
    }
    let (head, body) = match (accepts && body.len() >= COMPRESSIBLE).then(|| gzip(&body)).flatten() {
        Some(compressed) => (head.with("content-encoding", "gzip"), compressed),
        None => (head, body),
    };
    head.send_body(&mut Downstream::new(session, None), kind, vec![Bytes::from(body)]).await.ok();
    None
}
