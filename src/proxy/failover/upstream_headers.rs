//! Header fields of a provider's answer that the gateway reads.

use crate::time::format;
use crate::upstream::upstream_exchange::UpstreamExchange;
use crate::upstream::wire_format::WireFormat;
use bytes::Bytes;
use penstock_core::{MeasuredEnergy, UpstreamAnswer};
use penstock_http_wire::usage;
use std::time::Duration;

/// Returns the trimmed value of a header field; `None` if it is absent or not UTF-8.
fn header_text<'e>(exchange: &'e UpstreamExchange, name: &str) -> Option<&'e str> {
    std::str::from_utf8(exchange.header(name)?).ok().map(str::trim)
}

/// Returns the length of the body that the provider announces.
pub fn content_length(exchange: &UpstreamExchange) -> Option<usize> {
    header_text(exchange, "content-length")?.parse().ok()
}

/// Returns a `Retry-After` value in seconds. A date is converted to the time until that date, since the plugins have no
/// clock.
pub fn retry_after(exchange: &UpstreamExchange, now: Duration) -> Option<String> {
    let value = header_text(exchange, "retry-after")?;
    let seconds = format::seconds_until_http_date(value, now);
    Some(seconds.map_or_else(|| value.to_owned(), |seconds| seconds.to_string()))
}

/// Joins a complete body with the headers that its translation needs.
pub fn answer_with_headers(
    body: Bytes,
    exchange: &UpstreamExchange,
    wire_format: WireFormat,
) -> UpstreamAnswer {
    let value = |name: &&str| header_text(exchange, name).map(Into::into);
    let headers = wire_format.required_response_headers().iter().map(value).collect();
    UpstreamAnswer { body, headers, measured_energy: measured_energy(exchange) }
}

/// Returns the measured energy that the head of an answer states. Trailers are not read: a stream has ended for its
/// client before they arrive.
pub fn measured_energy(exchange: &UpstreamExchange) -> Option<MeasuredEnergy> {
    let joules = header_text(exchange, usage::ENERGY_HEADER)?;
    usage::parse_energy_headers(joules, header_text(exchange, usage::ENERGY_METHOD_HEADER))
}
