//! Golden cases of the translator. Each stream is sent at once, split at each byte, and in
//! pieces, and is checked against the stream rules. Other rules have tests of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod property;
mod rescue;
mod rules;

use super::TRANSLATOR;
use crate::conformance;
use crate::test_support::{self, assert_golden};
use bytes::Bytes;
use penstock_core::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn case_dirs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/chat_chat");
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn case_capabilities(case: &Path) -> OfferCapabilities {
    let text = std::fs::read(case.join("target.json")).unwrap_or_else(|_| b"{}".to_vec());
    test_support::parse_capabilities(&serde_json::from_slice(&text).unwrap())
}

#[test]
fn requests_match_the_golden_case() {
    for case in case_dirs() {
        let ask = test_support::sample_request(
            Dialect::Chat,
            std::fs::read(case.join("ask.json")).unwrap().trim_ascii(),
        );
        let abilities = case_capabilities(&case);
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let sent = match TRANSLATOR.build_request(&ask, &target) {
            Ok(sent) => sent.concat(),
            Err(refusal) => {
                format!("{:?} {:?} {}", refusal.code, refusal.param, refusal.message).into_bytes()
            }
        };
        if let Ok(value) = serde_json::from_slice::<Value>(&sent) {
            assert_eq!(value["model"], "engine/model", "{}", case.display());
        }
        assert_golden(&case.join("sent.json"), &[&sent[..], b"\n"].concat());
        let again = TRANSLATOR.build_request(&ask, &target).map(|sent| sent.concat()).unwrap_or(sent.clone());
        assert_eq!(again, sent, "the same bytes each time");
    }
}

#[test]
fn streams_match_the_golden_case_at_every_split() {
    let mut count = 0;
    for case in case_dirs() {
        let Ok(got) = std::fs::read(case.join("got.sse")) else { continue };
        count += 1;
        let ask = test_support::sample_request(
            Dialect::Chat,
            std::fs::read(case.join("ask.json")).unwrap().trim_ascii(),
        );
        let abilities = case_capabilities(&case);
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let run = test_support::run_all_splits(&|| TRANSLATOR.translate_stream(&ask, &target), &got);
        let figures = format!(
            ": fault {:?}, finish {:?}, bytes {}\n: {:?}\n: {:?}\n\n",
            run.fault, run.finish_reason, run.output_bytes, run.usage, run.measured_energy
        );
        assert_golden(&case.join("answered.sse"), &[figures.as_bytes(), &run.out].concat());
        if !run.out.is_empty() {
            let checked = conformance::check_chat_stream(&run.out, ask.include_usage);
            assert_eq!(checked, Ok(()), "{}\n{}", case.display(), String::from_utf8_lossy(&run.out));
        }
    }
    assert!(count > 30, "the cases are there");
}

#[test]
fn buffered_answers_match_the_golden_case() {
    let mut count = 0;
    for case in case_dirs() {
        let Ok(got) = std::fs::read(case.join("got.json")) else { continue };
        count += 1;
        let ask = test_support::sample_request(
            Dialect::Chat,
            std::fs::read(case.join("ask.json")).unwrap().trim_ascii(),
        );
        let abilities = case_capabilities(&case);
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let answered = match TRANSLATOR.translate_buffered(&ask, &target, Bytes::from(got)) {
            Ok(whole) => {
                let body = whole.body.concat();
                let value: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(value["object"], "chat.completion");
                assert_eq!(body.last(), Some(&b'}'));
                let figures = format!(
                    "\n{:?} {:?} {:?} bytes {}\n",
                    whole.finish_reason,
                    whole.usage(),
                    whole.measured_energy,
                    whole.output_bytes
                );
                [body, figures.into_bytes()].concat()
            }
            Err(fault) => format!("{:?}\n", fault.kind).into_bytes(),
        };
        assert_golden(&case.join("answered.json"), &answered);
    }
    assert!(count > 8, "the cases are there");
}
