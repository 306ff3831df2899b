//! Log line of an ended exchange: key, model, provider, duration and cost.

use super::is_enabled;
use super::line::LogLine;
use crate::config::settings::LogLevel;
use crate::telemetry::{AccessRecord, HEALTH_ENDPOINT};
use penstock_core::WorkDone;
use std::time::Duration;

/// Writes the log line of an ended exchange.
pub fn log_exchange(record: &AccessRecord, took: Duration) {
    // Load balancers request this every second.
    let is_check = record.endpoint == HEALTH_ENDPOINT && record.status == 200;
    let level = if is_check { LogLevel::Debug } else { LogLevel::Info };
    if !is_enabled(level) {
        return;
    }
    let mut line = LogLine::new(level, "request");
    line.text("id", record.id.as_str());
    if let Some(trace) = &record.trace {
        line.optional("client_request_id", trace.client_id.as_deref());
        line.optional("traceparent", trace.parent.as_deref());
        line.optional("tracestate", trace.state.as_deref());
    }
    line.literal("endpoint", record.endpoint);
    line.literal("dialect", record.dialect.name());
    line.literal("outcome", record.outcome.name());
    line.number("status", u64::from(record.status));
    if let Some(code) = record.code {
        line.literal("code", code);
    }
    line.optional("key", record.key.as_deref());
    line.optional("model", record.model.as_deref());
    if let Some(flavor) = record.flavor {
        line.literal("flavor", flavor);
    }
    line.optional("provider", record.provider.as_deref());
    line.number("attempts", record.attempts.len() as u64);
    if record.attempts.len() > 1 {
        line.list("tried", record.attempts.iter().map(|note| (&*note.provider, note.outcome)));
    }
    line.flag("stream", record.stream);
    if record.line {
        line.flag("line", true);
    }
    line.millis("ms", took);
    line.millis("own_ms", record.gateway_time(took));
    if !record.queued.is_zero() {
        line.millis("queued_ms", record.queued);
    }
    if let Some(first) = record.first_token {
        line.millis("first_token_ms", first);
    }
    add_work(&mut line, record);
    line.number("bytes_in", record.bytes_in as u64);
    line.number("bytes_out", record.bytes_out as u64);
    line.send();
}

/// Adds the work of the exchange, its footprint and its price.
fn add_work(line: &mut LogLine, record: &AccessRecord) {
    match &record.done {
        Some(WorkDone::Tokens(usage)) => {
            line.number("input_tokens", usage.input);
            line.number("output_tokens", usage.output);
        }
        Some(WorkDone::Images { count, .. }) => line.number("images", u64::from(*count)),
        Some(WorkDone::Audio { seconds }) => line.decimal("audio_seconds", *seconds),
        Some(WorkDone::Unknown) | None => {}
    }
    if let Some(footprint) = &record.footprint {
        line.decimal("energy_kwh", footprint.energy_kwh);
        line.decimal("carbon_g", footprint.carbon_g);
    }
    if let Some(charge) = &record.charge {
        line.decimal("credits", charge.credits.credits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::request_id::RequestId;
    use penstock_core::Dialect;

    #[test]
    fn an_exchange_without_a_response_has_a_log_line() {
        let record = AccessRecord::new(RequestId::random(), Dialect::Chat);
        log_exchange(&record, Duration::from_millis(3));
    }
}
