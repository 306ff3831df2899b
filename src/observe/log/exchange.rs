//! Log line of an ended exchange: key, model, provider, times, usage and cost.

use super::line::Line;
use super::wanted;
use crate::config::settings::LogLevel;
use crate::observe::{HEALTH, Record};
use penstock_contract::Done;
use std::time::Duration;

/// Writes the log line of an ended exchange.
pub fn exchange(record: &Record, took: Duration) {
    // Load balancers send a health check every second.
    let is_check = record.endpoint == HEALTH && record.status == 200;
    let level = if is_check { LogLevel::Debug } else { LogLevel::Info };
    if !wanted(level) {
        return;
    }
    let mut line = Line::new(level, "request");
    line.text("id", record.id.as_str());
    if let Some(trace) = &record.trace {
        line.maybe("client_request_id", trace.client_id.as_deref());
        line.maybe("traceparent", trace.parent.as_deref());
        line.maybe("tracestate", trace.state.as_deref());
    }
    line.name("endpoint", record.endpoint);
    line.name("dialect", record.dialect.name());
    line.name("outcome", record.outcome.name());
    line.number("status", u64::from(record.status));
    if let Some(code) = record.code {
        line.name("code", code);
    }
    line.maybe("key", record.key.as_deref());
    line.maybe("model", record.model.as_deref());
    if let Some(flavor) = record.flavor {
        line.name("flavor", flavor);
    }
    line.maybe("provider", record.provider.as_deref());
    line.number("attempts", record.attempts.len() as u64);
    if record.attempts.len() > 1 {
        line.list("tried", record.attempts.iter().map(|note| (&*note.provider, note.outcome)));
    }
    line.flag("stream", record.stream);
    if record.line {
        line.flag("line", true);
    }
    line.millis("ms", took);
    line.millis("own_ms", record.own(took));
    if !record.queued.is_zero() {
        line.millis("queued_ms", record.queued);
    }
    if let Some(first) = record.first_token {
        line.millis("first_token_ms", first);
    }
    match &record.done {
        Some(Done::Tokens(usage)) => {
            line.number("input_tokens", usage.input);
            line.number("output_tokens", usage.output);
        }
        Some(Done::Images { count, .. }) => line.number("images", u64::from(*count)),
        Some(Done::Audio { seconds }) => line.exact("audio_seconds", *seconds),
        Some(Done::Unknown) | None => {}
    }
    if let Some(footprint) = &record.footprint {
        line.exact("energy_kwh", footprint.energy_kwh);
        line.exact("carbon_g", footprint.carbon_g);
    }
    if let Some(charge) = &record.charge {
        line.exact("credits", charge.credits.credits());
    }
    line.number("bytes_in", record.bytes_in as u64);
    line.number("bytes_out", record.bytes_out as u64);
    line.send();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_id::RequestId;
    use penstock_contract::Dialect;

    #[test]
    fn the_line_of_an_exchange_can_be_told_without_an_answer() {
        let record = Record::new(RequestId::random(), Dialect::Chat);
        exchange(&record, Duration::from_millis(3));
    }
}
