//! Header fields of a provider's answer that the gateway reads.

use crate::time::format;
use crate::upstream::upstream_exchange::UpstreamExchange;
use crate::upstream::wire_format::WireFormat;
use bytes::Bytes;
use penstock_core::{MeasuredEnergy, UpstreamAnswer};
use penstock_dialect::{parse_retry_after, parse_retry_after_ms};
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

/// Returns the delay before the next request that the provider demands: `retry-after-ms` of OpenAI and Azure, or else
/// `Retry-After`. A date is converted to the time until that date. `None` without a valid value.
pub fn retry_after(exchange: &UpstreamExchange, now: Duration) -> Option<Duration> {
    retry_delay(|name| header_text(exchange, name), now)
}

fn retry_delay<'v>(header: impl Fn(&str) -> Option<&'v str>, now: Duration) -> Option<Duration> {
    let of_seconds = || {
        let value = header("retry-after")?;
        match format::seconds_until_http_date(value, now) {
            Some(seconds) => parse_retry_after(&seconds.to_string()),
            None => parse_retry_after(value),
        }
    };
    header("retry-after-ms").and_then(parse_retry_after_ms).or_else(of_seconds)
}

/// Joins a complete body with the headers that its translation needs.
pub fn answer_with_headers(
    body: Bytes,
    exchange: &UpstreamExchange,
    wire_format: WireFormat,
) -> UpstreamAnswer {
    let value = |name: &&str| header_text(exchange, name).map(Into::into);
    let headers = wire_format.upstream_response_headers().iter().map(value).collect();
    UpstreamAnswer { body, headers, measured_energy: measured_energy(exchange) }
}

/// Returns the measured energy that the head of an answer states. Trailers are not read: a stream has ended for its
/// client before they arrive.
pub fn measured_energy(exchange: &UpstreamExchange) -> Option<MeasuredEnergy> {
    let joules = header_text(exchange, usage::ENERGY_HEADER)?;
    usage::parse_energy_headers(joules, header_text(exchange, usage::ENERGY_METHOD_HEADER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_take_precedence_over_seconds_and_a_date() {
        let now = Duration::from_secs(784_111_777); // 6 November 1994, 08:49:37 UTC
        let delay = |milliseconds: Option<&'static str>, seconds: Option<&'static str>| {
            retry_delay(|name| if name == "retry-after-ms" { milliseconds } else { seconds }, now)
        };
        let date = "Sun, 06 Nov 1994 08:49:47 GMT";
        for (milliseconds, seconds, expected) in [
            (Some("2500"), None, Some(2500)),
            (Some("2500"), Some("3"), Some(2500)),
            (Some("-1"), Some("3"), Some(3000)),
            (Some("NaN"), Some(date), Some(10_000)),
            (None, Some(date), Some(10_000)),
            (Some("1e99"), Some("3"), Some(3_600_000)),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(delay(milliseconds, seconds), expected, "{milliseconds:?} {seconds:?}");
        }
    }
}
