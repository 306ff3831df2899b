//! Layer of `tracing-subscriber` that writes a line for each event: its name, then its fields in their order.

use super::exchange::EXCHANGE_TARGET;
use super::line::LogLine;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Layer of `tracing-subscriber` that writes a log line for each event.
pub(super) struct LineLayer;

impl<S: Subscriber> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let line = LogLine::new(*metadata.level(), metadata.name());
        add_fields(line, event).send();
    }
}

/// Appends the fields of an event to its line.
fn add_fields(line: LogLine, event: &Event<'_>) -> LogLine {
    let mut visitor = LineVisitor { line, is_exchange: event.metadata().target() == EXCHANGE_TARGET };
    event.record(&mut visitor);
    visitor.line
}

/// Visitor of the fields of an event.
struct LineVisitor {
    line: LogLine,
    /// True for the line of an exchange. Values logged with `Display` are decimal numbers in this line, and text in
    /// all other lines.
    is_exchange: bool,
}

impl Visit for LineVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.line.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.line.number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.line.flag(field.name(), value);
    }

    /// Appends a time in milliseconds; no other field is an `f64`.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.line.millis(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.is_exchange {
            self.line.decimal(field.name(), value);
        } else {
            self.line.displayed(field.name(), value);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::settings::LogFormat;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt;

    /// Layer for tests that collects the line of each event in both formats.
    struct Collector(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Collector {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            for format in [LogFormat::Json, LogFormat::Text] {
                let line = LogLine::with_format(format, *metadata.level(), metadata.name());
                self.0.lock().push(String::from_utf8(add_fields(line, event).finish()).unwrap());
            }
        }
    }

    /// Runs a function and returns the log lines of its events without their times: each event as JSON and then as
    /// text.
    pub(in super::super) fn capture_lines(events: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Registry::default().with(Collector(lines.clone())), events);
        let without_time = |line: &String| {
            let (_, rest) = line.split_once("level").unwrap();
            rest.to_owned()
        };
        lines.lock().iter().map(without_time).collect()
    }

    #[test]
    fn fields_keep_their_order_and_absent_ones_are_left_out() {
        let (why, count) = ("it's \"late\"\n\\now ü".to_owned(), 7);
        let found = capture_lines(|| {
            tracing::error!(name: "a_failure", why, count = %count, none = None::<&str>, some = Some("x"));
            tracing::event!(name: "an_event", tracing::Level::WARN, {});
            tracing::debug!(name: "typed", n = 3_u64, good = true, ms = 1_234.5, what = %format_args!("{} {}", '"', '\t'));
        });
        assert_eq!(
            found,
            [
                "\":\"error\",\"event\":\"a_failure\",\"why\":\"it's 'late' 'now ü\",\"count\":\"7\",\"some\":\"x\"}\n",
                "=error event=a_failure why=it's 'late' 'now ü count=7 some=x\n",
                "\":\"warn\",\"event\":\"an_event\"}\n",
                "=warn event=an_event\n",
                "\":\"debug\",\"event\":\"typed\",\"n\":3,\"good\":true,\"ms\":1234.500,\"what\":\"'  \"}\n",
                "=debug event=typed n=3 good=true ms=1234.500 what='  \n",
            ]
        );
    }
}
