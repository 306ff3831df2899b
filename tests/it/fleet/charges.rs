//! Requests that may end without an answer, and the comparison of the answers with the entries of the ledger.

use super::gateways::question;
use crate::harness::{Answer, Client};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for an answer; a suspended gateway never answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// End of a request.
#[derive(Debug)]
pub enum Outcome {
    /// No gateway listened.
    NotSent,
    /// The connection ended before the answer.
    Lost,
    /// Answer with a status other than 200.
    Refused(u16),
    Answered(ChargedAnswer),
}

/// Answer with status 200.
#[derive(Clone, Debug)]
pub struct ChargedAnswer {
    pub request: String,
    pub micro_credits: i64,
}

impl ChargedAnswer {
    /// Reads request and charge of an answer with status 200.
    pub fn from_answer(answer: &Answer) -> Self {
        let credits = answer.json()["billing_cost"]["credits"].as_f64().unwrap();
        let request = answer.header("x-request-id").unwrap().to_owned();
        Self { request, micro_credits: (credits * 1e6).round() as i64 }
    }
}

/// Charges that the ledger must have, by the answers.
#[derive(Debug, Default)]
pub struct Charges {
    /// Charges of answers, by request.
    certain: BTreeMap<String, i64>,
    /// Charges of answers of gateways that may have been evicted; the ledger may lack them.
    uncertain: BTreeMap<String, i64>,
    /// Number of requests without an answer; each of them may have been charged.
    pub lost: usize,
    /// Highest charge of an answer in micro-credits.
    highest: i64,
}

impl Charges {
    pub fn add(&mut self, answer: ChargedAnswer, is_certain: bool) {
        self.highest = self.highest.max(answer.micro_credits);
        let charges = if is_certain { &mut self.certain } else { &mut self.uncertain };
        assert!(charges.insert(answer.request, answer.micro_credits).is_none(), "an id was given twice");
    }

    /// Returns the number of answers whose charges the ledger must have.
    pub fn certain(&self) -> usize {
        self.certain.len()
    }

    /// Returns the lowest and the highest possible sum of all charges, in micro-credits.
    pub fn bounds(&self) -> RangeInclusive<i64> {
        let least: i64 = self.certain.values().sum();
        let possible = self.uncertain.values().sum::<i64>() + self.lost as i64 * self.highest;
        least..=least + possible
    }

    /// Compares the charges with the entries of an exported ledger.
    pub fn check(&self, entries: &[Value]) -> Result<(), String> {
        let mut missing = self.certain.clone();
        let mut seen = BTreeMap::new();
        let mut unanswered = 0;
        for entry in entries.iter().filter(|entry| entry["act"] == "settle") {
            let request = entry["request"].as_str().unwrap_or_default();
            let amount = entry["amount"].as_i64().unwrap_or_default();
            if seen.insert(request, amount).is_some() {
                return Err(format!("request {request} is charged twice"));
            }
            match missing.remove(request).or_else(|| self.uncertain.get(request).copied()) {
                Some(expected) if expected != amount => {
                    return Err(format!("request {request} is charged {amount} for {expected}"));
                }
                Some(_) => {}
                None => unanswered += usize::from(amount > 0),
            }
        }
        if let Some(request) = missing.keys().next() {
            return Err(format!("{} answers are not charged, such as {request}", missing.len()));
        }
        if unanswered > self.lost {
            return Err(format!("{unanswered} charges without an answer, {} requests lost", self.lost));
        }
        Ok(())
    }
}

impl fmt::Display for Charges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (certain, uncertain, lost) = (self.certain.len(), self.uncertain.len(), self.lost);
        write!(f, "{certain} answers, {uncertain} of gateways that were evicted, {lost} requests lost")
    }
}

/// Sends a request.
pub async fn try_ask(client: &Client) -> Outcome {
    let Ok(mut socket) = TcpStream::connect(client.address).await else { return Outcome::NotSent };
    let body = question().to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        client.key,
        body.len()
    );
    let mut bytes = Vec::new();
    let exchange = async {
        socket.write_all(request.as_bytes()).await?;
        socket.read_to_end(&mut bytes).await
    };
    // An answer that arrived completely before an error or the timeout is valid.
    tokio::time::timeout(PATIENCE, exchange).await.ok();
    parse(&bytes).unwrap_or(Outcome::Lost)
}

/// Parses an answer; `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Option<Outcome> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status: u16 = head.split(' ').nth(1)?.parse().ok()?;
    let body: Value = serde_json::from_str(body.get(body.find('{')?..=body.rfind('}')?)?).ok()?;
    if status != 200 {
        return Some(Outcome::Refused(status));
    }
    let field = |line: &str| line.to_ascii_lowercase().strip_prefix("x-request-id: ").map(str::to_owned);
    let micro_credits = (body["billing_cost"]["credits"].as_f64()? * 1e6).round() as i64;
    Some(Outcome::Answered(ChargedAnswer { request: head.lines().find_map(field)?, micro_credits }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settle(request: &str, amount: i64) -> Value {
        json!({"act": "settle", "request": request, "amount": amount})
    }

    #[test]
    fn each_kind_of_mismatched_charge_is_found() {
        let mut charges = Charges { lost: 1, ..Charges::default() };
        let answer = |request: &str| ChargedAnswer { request: request.to_owned(), micro_credits: 7 };
        charges.add(answer("a"), true);
        charges.add(answer("b"), true);
        charges.add(answer("c"), false);
        assert_eq!(charges.bounds(), 14..=28);
        let right = [settle("a", 7), json!({"act": "void", "request": "x"}), settle("b", 7)];
        let with = |more: &[Value]| charges.check(&[&right[..], more].concat());
        assert_eq!(with(&[]), Ok(()));
        assert_eq!(with(&[settle("c", 7), settle("lost", 6)]), Ok(()));
        let mismatches = [
            (charges.check(&right[..2]), "1 answers are not charged"),
            (with(&[settle("a", 7)]), "request a is charged twice"),
            (with(&[settle("c", 8)]), "request c is charged 8 for 7"),
            (with(&[settle("d", 7), settle("e", 7)]), "2 charges without an answer"),
        ];
        for (found, expected) in mismatches {
            assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{found:?}");
        }
    }
}
