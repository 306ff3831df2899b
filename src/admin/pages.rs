//! Pages of the operators' console and of the dashboard over HTTP, on the admin listener and on the dashboard's
//! listener.

use super::api::AdminApi;
use super::request_head::accepts_gzip;
use super::sending::send_response;
use crate::console::{Console, ConsoleAnswer};
use crate::proxy::response::head::ResponseHead;
use crate::telemetry::request_id::RequestId;
use http::header;
use penstock_core::ApiError;
use pingora_core::protocols::http::ServerSession;

/// Returns the response to a request for a page of a site. `admitted` is the result of the earlier checks (host name,
/// number of requests). Its error, or 503 while another process takes over the store, becomes an error page.
pub(super) async fn answer_site_page(
    console: &Console,
    api: &AdminApi,
    admitted: Result<(), ApiError>,
    session: &mut ServerSession,
) -> ConsoleAnswer {
    match admitted.and_then(|()| api.check_store_owned()) {
        Ok(()) => console.handle_request(api, session).await,
        Err(refusal) => console.refusal_answer(&refusal),
    }
}

/// Sends a complete answer of a site.
pub(super) async fn send_site_page(answer: ConsoleAnswer, session: &mut ServerSession, id: &RequestId) {
    let accepts = accepts_gzip(session.get_header_bytes(header::ACCEPT_ENCODING));
    let mut head = ResponseHead::new(answer.status, id).with_field("cache-control", answer.cache);
    for (name, value) in crate::console::RESPONSE_HEADERS {
        head = head.with_field(name, value);
    }
    if let Some(location) = answer.location {
        head = head.with_field("location", location);
    }
    if let Some(seconds) = answer.retry_after {
        head = head.with_field("retry-after", seconds.to_string());
    }
    if answer.reloads_page {
        head = head.with_field("hx-refresh", "true");
    }
    if let Some(allow) = answer.allow {
        head = head.with_field("allow", allow);
    }
    for cookie in answer.cookies {
        head = head.with_field("set-cookie", cookie);
    }
    if let Some(name) = answer.file_name {
        head = head.with_field("content-disposition", format!("attachment; filename=\"{name}\""));
    }
    send_response(session, head, answer.content_type, answer.body, accepts).await;
}
