//! Tests of the shipped alert rules: every metric and label in them exists in `/metrics`. A rule with a missing label
//! never fires, without any error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use super::metrics::{MetricsRegistry, REGISTERED_METRICS};
use super::{AccessRecord, ExchangeKind, ExchangeOutcome};
use crate::telemetry::request_id::RequestId;
use penstock_core::Dialect;
use std::collections::BTreeMap;
use std::time::Duration;

const PAGE: &str = include_str!("../../docs/operations.md");
const RULES: &str = include_str!("../../conf/prometheus/penstock.yml");
/// Labels that Prometheus adds to each series.
const ADDED_LABELS: [&str; 2] = ["job", "instance"];

type KnownMetrics = BTreeMap<String, Vec<String>>;

#[derive(Debug, PartialEq)]
enum ExprToken {
    Word(String),
    Sign(char),
}

fn known_metrics() -> KnownMetrics {
    REGISTERED_METRICS.take();
    MetricsRegistry::new().unwrap();
    REGISTERED_METRICS.take().into_iter().chain([("up".to_owned(), Vec::new())]).collect()
}

/// Returns every `expr` of the rules. After a `|`, the expression consists of the indented lines that follow.
fn expressions(rules: &str) -> Vec<String> {
    let deep = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = rules.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("expr:") else { continue };
        if rest.trim() == "|" {
            let more = lines[at + 1..].iter().take_while(|next| deep(next) > deep(line));
            found.push(more.copied().collect::<Vec<_>>().join(" "));
        } else {
            found.push(rest.to_owned());
        }
    }
    found
}

/// Returns the names and signs of an expression; strings, and numbers with their units, are left out.
fn tokens(expression: &str) -> Vec<ExprToken> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let mut length = first.len_utf8();
        if first == '"' {
            length = 2 + rest[1..].find('"').unwrap();
        } else if word(first) {
            length = rest.find(|c| !word(c)).unwrap_or(rest.len());
            if !first.is_ascii_digit() {
                tokens.push(ExprToken::Word(rest[..length].to_owned()));
            }
        } else if !first.is_whitespace() {
            tokens.push(ExprToken::Sign(first));
        }
        rest = &rest[length..];
    }
    tokens
}

/// Returns the tokens between the bracket at the start of `tokens` and its closing bracket.
fn bracketed(tokens: &[ExprToken], open: char, close: char) -> &[ExprToken] {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            ExprToken::Sign(sign) if *sign == open => depth += 1,
            ExprToken::Sign(sign) if *sign == close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { &[] } else { &tokens[1..at] };
        }
    }
    panic!("a bracket is not closed: {tokens:?}");
}

fn words(tokens: &[ExprToken]) -> impl Iterator<Item = &str> {
    tokens.iter().filter_map(|token| match token {
        ExprToken::Word(word) => Some(word.as_str()),
        ExprToken::Sign(_) => None,
    })
}

fn is_metric(word: &str) -> bool {
    word == "up"
        || word.starts_with("penstock_")
        || word.starts_with("gen_ai_server_")
        || word.starts_with("gen_ai_client_")
}

/// Returns the labels of a metric, or of the histogram to which the series belongs.
fn labels(metrics: &KnownMetrics, name: &str) -> Option<Vec<String>> {
    let part = |end: &str| metrics.get(name.strip_suffix(end)?).cloned();
    let mut labels = metrics.get(name).cloned().or_else(|| part("_sum")).or_else(|| part("_count"));
    if labels.is_none() {
        labels = part("_bucket").map(|labels| labels.into_iter().chain(["le".to_owned()]).collect());
    }
    labels.map(|labels| labels.into_iter().chain(ADDED_LABELS.map(str::to_owned)).collect())
}

/// Returns the metrics and labels of an expression that do not exist.
fn unknown_names(metrics: &KnownMetrics, expression: &str) -> Vec<String> {
    let all = tokens(expression);
    let mut unknown = Vec::new();
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let mut need = |scope: &[ExprToken], asked: &[&str]| {
        for metric in words(scope).filter(|word| is_metric(word)) {
            match labels(metrics, metric) {
                None => unknown.push(metric.to_owned()),
                Some(has) => unknown.extend(
                    asked
                        .iter()
                        .filter(|label| !has.iter().any(|one| one == *label))
                        .map(|l| format!("{metric}: {l}")),
                ),
            }
        }
    };
    for (at, token) in all.iter().enumerate() {
        let ExprToken::Word(word) = token else { continue };
        let after = &all[at + 1..];
        if is_metric(word) {
            let asked = match after.first() {
                Some(ExprToken::Sign('{')) => words(bracketed(after, '{', '}')).collect(),
                _ => Vec::new(),
            };
            need(&all[at..=at], &asked);
        } else if word == "by" || word == "on" {
            let group = bracketed(after, '(', ')');
            let asked: Vec<&str> = words(group).collect();
            if word == "on" {
                need(&all, &asked);
                continue;
            }
            // In `sum by (…) (…)`, every metric in the second brackets has to have the labels in the first brackets.
            let summed = bracketed(&after[group.len() + 2..], '(', ')');
            assert!(!summed.is_empty(), "write `by` before what is summed: {expression}");
            need(summed, &asked);
            groups.push(asked);
        }
    }
    if groups.windows(2).any(|two| two[0] != two[1]) {
        unknown.push(format!("sides that do not match: {groups:?}"));
    }
    unknown
}

#[test]
fn the_alert_rules_use_existing_metrics() {
    let known = known_metrics();
    let expressions = expressions(RULES);
    assert_eq!(expressions.len(), RULES.matches("- alert:").count());
    for expression in expressions {
        let unknown = unknown_names(&known, &expression);
        assert!(unknown.is_empty(), "{expression}\n{unknown:?}");
    }
}

#[test]
fn every_metric_in_the_operations_page_has_an_alert() {
    // An operator who stops a gateway reads this metric manually, so it needs no alert.
    const BY_HAND: &str = "penstock_requests_open";
    let asked: Vec<ExprToken> = expressions(RULES).iter().flat_map(|expression| tokens(expression)).collect();
    let watched = PAGE.split("## Monitoring").nth(1).unwrap().split("| Log line |").next().unwrap();
    let cells: Vec<ExprToken> =
        watched.lines().filter_map(|row| row.split('|').nth(1)).flat_map(tokens).collect();
    let metrics: Vec<&str> = words(&cells).filter(|word| is_metric(word) && *word != BY_HAND).collect();
    assert!(metrics.len() > 5 && metrics.contains(&"penstock_clock_ahead_seconds"), "{metrics:?}");
    for metric in metrics {
        assert!(words(&asked).any(|word| word == metric), "no rule on {metric}");
    }
}

#[test]
fn the_metrics_table_of_the_operations_page_has_existing_metrics_with_their_labels() {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let known = known_metrics();
    let table = PAGE.split("\n## Metrics\n").nth(1).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().filter(|row| row.starts_with("| `")).map(|row| row.split('|').collect()).collect();
    assert!(rows.len() > 20, "{table}");
    for row in rows {
        let mut documented = quoted(row[2]);
        documented.sort();
        // The label of the build information is constant, so it is not registered.
        for metric in quoted(row[1]).into_iter().filter(|metric| metric != "penstock_build_info") {
            let mut actual = known.get(&metric).unwrap_or_else(|| panic!("there is no {metric}")).clone();
            actual.sort();
            assert_eq!(actual, documented, "{metric}");
        }
    }
}

#[test]
fn a_rule_that_cannot_fire_is_found() {
    let known = known_metrics();
    for (expression, found) in [
        ("penstock_never_total > 0", "penstock_never_total"),
        (r#"up{job="x",model="y"} == 0"#, "up: model"),
        (
            "sum by (provider, model) (rate(penstock_attempts_total[1h])) > 0",
            "penstock_attempts_total: model",
        ),
        ("sum by (le) (rate(penstock_attempts_total[1h])) > 0", "penstock_attempts_total: le"),
    ] {
        assert_eq!(unknown_names(&known, expression), [found]);
    }
    let sides =
        "sum by (provider, model) (penstock_credits_total) / sum by (provider) (penstock_attempts_total)";
    assert_eq!(unknown_names(&known, sides).len(), 1);
    assert!(unknown_names(&known, "sum by (le) (rate(penstock_overhead_seconds_bucket[1h])) > 1").is_empty());
}

#[test]
fn every_alerting_metric_exists_from_the_start_and_has_an_alert() {
    let metrics = MetricsRegistry::new().unwrap();
    metrics.create_provider_series("here");
    let text = String::from_utf8(metrics.encode()).unwrap();
    let expressions = expressions(RULES);
    for (name, label) in [
        ("penstock_config_reloads_total", r#"result="refused""#),
        ("penstock_exports_total", r#"result="failed""#),
        ("penstock_attempts_total", r#"outcome="credentials""#),
    ] {
        let there = |line: &str| line.starts_with(name) && line.contains(label) && line.ends_with(" 0");
        assert!(text.lines().any(there), "{name} {label}\n{text}");
        let asked = format!("{name}{{{label}}}");
        assert!(expressions.iter().any(|expression| expression.contains(&asked)), "no rule on {asked}");
    }
    for reason in ["process", "heads"] {
        let series = format!("penstock_connections_refused_total{{reason=\"{reason}\"}} 0");
        assert!(text.lines().any(|line| line == series), "{series}\n{text}");
    }
    let old = |expression: &String| expression.contains("time() - penstock_export_last_timestamp_seconds");
    assert!(expressions.iter().any(old), "nor one on archives that are not even begun");
}

#[test]
fn lines_of_batches_are_no_requests_of_users() {
    let metrics = MetricsRegistry::new().unwrap();
    let mut record = AccessRecord::new(RequestId::random(), Dialect::Chat);
    (record.status, record.outcome, record.kind) = (503, ExchangeOutcome::Refused, ExchangeKind::BatchLine);
    metrics.record_exchange(&record, Duration::ZERO);
    let text = String::from_utf8(metrics.encode()).unwrap();
    assert!(text.contains(r#"outcome="refused",status="503",work="batch"} 1"#), "{text}");
    let alert = expressions(RULES).into_iter().find(|expression| expression.contains("5..")).unwrap();
    assert_eq!(alert.matches("penstock_requests_total").count(), alert.matches(r#"work="request""#).count());
}
