//! Log line of an ended exchange: key, model, provider, duration and cost.

use super::event_at;
use crate::config::settings::LogLevel;
use crate::telemetry::{AccessRecord, AttemptRecord, ExchangeKind, HEALTH_ENDPOINT_NAME};
use penstock_core::WorkDone;
use rust_decimal::Decimal;
use std::fmt;
use std::time::Duration;
use tracing::field::DisplayValue;

/// Tracing target of the event that logs an exchange.
pub(super) const EXCHANGE_TARGET: &str = "penstock::exchange";

/// Decimal that displays itself as a JSON number.
struct JsonDecimal(Decimal);

impl fmt::Display for JsonDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = Vec::with_capacity(32);
        penstock_response_metadata::write_number(&mut digits, self.0);
        f.write_str(std::str::from_utf8(&digits).unwrap_or_default())
    }
}

/// Work of an exchange, by its unit.
#[derive(Default)]
struct WorkFields {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    images: Option<u64>,
    audio_seconds: Option<DisplayValue<JsonDecimal>>,
}

impl WorkFields {
    fn new(done: Option<&WorkDone>) -> Self {
        let none = Self::default();
        match done {
            Some(WorkDone::Tokens(usage)) => {
                Self { input_tokens: Some(usage.input), output_tokens: Some(usage.output), ..none }
            }
            Some(WorkDone::Images { count, .. }) => Self { images: Some(u64::from(*count)), ..none },
            Some(WorkDone::Audio { seconds }) => Self { audio_seconds: Some(decimal(*seconds)), ..none },
            Some(WorkDone::Unknown) | None => none,
        }
    }
}

/// Writes the log line of an ended exchange.
pub fn log_exchange(record: &AccessRecord, took: Duration) {
    // Load balancers request the health check every second.
    let is_check = record.endpoint == HEALTH_ENDPOINT_NAME && record.status == 200;
    let level = if is_check { LogLevel::Debug } else { LogLevel::Info };
    let (trace, footprint) = (record.trace.as_deref(), record.footprint.as_ref());
    let work = WorkFields::new(record.done.as_ref());
    event_at!(
        level,
        name: "request",
        target: EXCHANGE_TARGET,
        id = record.id.as_str(),
        client_request_id = trace.and_then(|trace| trace.client_id.as_deref()),
        traceparent = trace.and_then(|trace| trace.parent.as_deref()),
        tracestate = trace.and_then(|trace| trace.state.as_deref()),
        endpoint = record.endpoint,
        dialect = record.dialect.name(),
        outcome = record.outcome.name(),
        status = record.status,
        code = record.error_code,
        key = record.key.as_deref(),
        model = record.model.as_deref(),
        flavor = record.flavor,
        provider = record.provider.as_deref(),
        attempts = record.attempts.len(),
        tried = (record.attempts.len() > 1).then(|| tried(&record.attempts)),
        stream = record.stream,
        line = (record.kind == ExchangeKind::BatchLine).then_some(true),
        ms = millis(took),
        own_ms = millis(record.gateway_time(took)),
        queued_ms = (!record.queued.is_zero()).then(|| millis(record.queued)),
        first_token_ms = record.first_token.map(millis),
        input_tokens = work.input_tokens,
        output_tokens = work.output_tokens,
        images = work.images,
        audio_seconds = work.audio_seconds,
        energy_kwh = footprint.map(|footprint| decimal(footprint.energy_kwh)),
        carbon_g = footprint.map(|footprint| decimal(footprint.carbon_g)),
        credits = record.charge.as_ref().map(|charge| decimal(charge.credits.credits())),
        bytes_in = record.bytes_in,
        bytes_out = record.bytes_out,
    );
}

fn decimal(value: Decimal) -> DisplayValue<JsonDecimal> {
    tracing::field::display(JsonDecimal(value))
}

/// Returns a time in milliseconds, in whole microseconds.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

/// Returns the attempts as `provider:outcome`.
fn tried(attempts: &[AttemptRecord]) -> String {
    let attempts = attempts.iter().map(|attempt| format!("{}:{}", attempt.provider, attempt.outcome));
    attempts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::layer::tests::capture_lines;
    use super::*;
    use crate::telemetry::request_id::RequestId;
    use crate::telemetry::{ExchangeOutcome, TraceContext};
    use penstock_core::{Dialect, MicroCredits, TokenUsage};
    use penstock_pricing::{PayingWallet, RequestCharge};

    fn attempt(provider: &str, outcome: &'static str) -> AttemptRecord {
        AttemptRecord { provider: provider.into(), outcome, duration: Duration::ZERO }
    }

    /// Returns a record with every member of the line but those of images and audio, and without a footprint.
    fn record() -> AccessRecord {
        AccessRecord {
            trace: Some(Box::new(TraceContext {
                parent: Some("00-4bf9-00f0-01".into()),
                state: Some("a=b c".into()),
                client_id: Some("mine".into()),
            })),
            endpoint: "chat",
            key: Some("k1".into()),
            model: Some("org/model \"x\"".into()),
            flavor: Some("eco"),
            stream: true,
            status: 200,
            error_code: Some("upstream_failed"),
            outcome: ExchangeOutcome::Broken,
            attempts: vec![attempt("one", "timeout"), attempt("two", "ok")],
            provider: Some("two".into()),
            first_token: Some(Duration::from_micros(31_201)),
            waited: Duration::from_millis(120),
            queued: Duration::from_micros(1_500),
            kind: ExchangeKind::BatchLine,
            bytes_in: 1_024,
            bytes_out: 14_211,
            done: Some(WorkDone::Tokens(TokenUsage { input: 311, output: 64, ..TokenUsage::default() })),
            charge: Some(RequestCharge {
                credits: MicroCredits(12_300),
                ..RequestCharge::zero(PayingWallet::Credits)
            }),
            ..AccessRecord::new(RequestId::random(), Dialect::Chat)
        }
    }

    #[test]
    fn the_line_of_an_exchange_has_its_members_in_order_and_numbers_without_quotes() {
        let record = record();
        let id = record.id.as_str();
        let expected = [
            format!(
                "\":\"info\",\"event\":\"request\",\"id\":\"{id}\",\"client_request_id\":\"mine\",\
                 \"traceparent\":\"00-4bf9-00f0-01\",\"tracestate\":\"a=b c\",\"endpoint\":\"chat\",\
                 \"dialect\":\"chat\",\"outcome\":\"broken\",\"status\":200,\"code\":\"upstream_failed\",\
                 \"key\":\"k1\",\"model\":\"org/model 'x'\",\"flavor\":\"eco\",\"provider\":\"two\",\
                 \"attempts\":2,\"tried\":\"one:timeout two:ok\",\"stream\":true,\"line\":true,\
                 \"ms\":126.254,\"own_ms\":4.754,\"queued_ms\":1.500,\"first_token_ms\":31.201,\
                 \"input_tokens\":311,\"output_tokens\":64,\"credits\":0.0123,\"bytes_in\":1024,\
                 \"bytes_out\":14211}}\n"
            ),
            format!(
                "=info event=request id={id} client_request_id=mine traceparent=00-4bf9-00f0-01 \
                 tracestate=a=b c endpoint=chat dialect=chat outcome=broken status=200 \
                 code=upstream_failed key=k1 model=org/model 'x' flavor=eco provider=two attempts=2 \
                 tried=one:timeout two:ok stream=true line=true ms=126.254 own_ms=4.754 queued_ms=1.500 \
                 first_token_ms=31.201 input_tokens=311 output_tokens=64 credits=0.0123 bytes_in=1024 \
                 bytes_out=14211\n"
            ),
        ];
        assert_eq!(capture_lines(|| log_exchange(&record, Duration::from_micros(126_254))), expected);
    }

    #[test]
    fn absent_members_are_left_out_and_a_health_check_is_of_the_level_debug() {
        let mut record = AccessRecord::new(RequestId::random(), Dialect::Chat);
        (record.endpoint, record.status) = (HEALTH_ENDPOINT_NAME, 200);
        record.done = Some(WorkDone::Audio { seconds: Decimal::new(12_500, 3) });
        let found = capture_lines(|| log_exchange(&record, Duration::from_millis(3)));
        let expected = format!(
            "=debug event=request id={} endpoint=health dialect=chat outcome=ok status=200 attempts=0 \
             stream=false ms=3.000 own_ms=3.000 audio_seconds=12.5 bytes_in=0 bytes_out=0\n",
            record.id.as_str()
        );
        assert_eq!(found.last(), Some(&expected));
    }
}
