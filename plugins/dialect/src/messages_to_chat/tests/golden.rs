//! Golden cases: requests, and streamed and buffered answers.

use super::{admitted_request, case_dirs, translated_pairs};
use crate::{conformance, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::Value;
use std::path::Path;

struct GoldenCase {
    ask: InferenceRequest,
    abilities: OfferCapabilities,
    max_tokens: Option<u64>,
    provider: Dialect,
}

impl GoldenCase {
    fn load(folder: &Path, client: Dialect, provider: Dialect) -> Self {
        let ask = admitted_request(client, std::fs::read(folder.join("ask.json")).unwrap().trim_ascii());
        let target = std::fs::read(folder.join("target.json")).unwrap_or_else(|_| b"{}".to_vec());
        let target: Value = serde_json::from_slice(&target).unwrap();
        Self {
            ask,
            abilities: test_support::parse_capabilities(&target),
            max_tokens: target["max_tokens"].as_u64(),
            provider,
        }
    }

    fn target(&self) -> AttemptTarget<'_> {
        AttemptTarget {
            max_tokens: self.max_tokens,
            ..test_support::sample_target(self.provider, &self.abilities)
        }
    }
}

#[test]
fn requests_match_the_golden_case_each_time() {
    for (pair, translator) in translated_pairs() {
        let (client, provider) = (translator.client_dialect(), translator.provider_dialect());
        for folder in case_dirs(&pair) {
            let case = GoldenCase::load(&folder, client, provider);
            let speak = || match translator.build_request(&case.ask, &case.target()) {
                Ok(sent) => {
                    let sent = sent.concat();
                    let value: Value = serde_json::from_slice(&sent)
                        .unwrap_or_else(|error| panic!("{error}: {}", folder.display()));
                    assert_eq!(value["model"], "engine/model", "{}", folder.display());
                    sent
                }
                Err(refusal) => {
                    let param = refusal.param.as_deref().unwrap_or_default();
                    format!("refused {} {param}: {}", refusal.spec().code, refusal.message).into_bytes()
                }
            };
            test_support::assert_golden(&folder.join("sent.json"), &[&speak()[..], b"\n"].concat());
            assert_eq!(speak(), speak(), "{}", folder.display());
        }
    }
}

#[test]
fn streams_follow_the_grammar_at_every_split() {
    for (pair, translator) in translated_pairs() {
        let (client, provider) = (translator.client_dialect(), translator.provider_dialect());
        let mut count = 0;
        for folder in case_dirs(&pair) {
            let Ok(got) = std::fs::read(folder.join("got.sse")) else { continue };
            count += 1;
            let case = GoldenCase::load(&folder, client, provider);
            let run = test_support::run_all_splits(
                &|| translator.translate_stream(&case.ask, &case.target()),
                &got,
            );
            let figures = format!(
                ": fault {:?}, finish {:?}, bytes {}\n: {:?}\n\n",
                run.fault, run.finish_reason, run.output_bytes, run.usage
            );
            test_support::assert_golden(
                &folder.join("answered.sse"),
                &[figures.as_bytes(), &run.out].concat(),
            );
            if !run.out.is_empty() {
                let checked = conformance::check_stream(client, &run.out, case.ask.include_usage);
                assert_eq!(checked, Ok(()), "{}\n{}", folder.display(), String::from_utf8_lossy(&run.out));
            }
        }
        assert!(count > 4, "the cases of {pair} are there");
    }
}

#[test]
fn buffered_answers_match_the_golden_case() {
    for (pair, translator) in translated_pairs() {
        let (client, provider) = (translator.client_dialect(), translator.provider_dialect());
        let mut count = 0;
        for folder in case_dirs(&pair) {
            let Ok(got) = std::fs::read(folder.join("got.json")) else { continue };
            count += 1;
            let case = GoldenCase::load(&folder, client, provider);
            let answered = match translator.translate_buffered(&case.ask, &case.target(), Bytes::from(got)) {
                Ok(whole) => {
                    let body = whole.body.concat();
                    let value: Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(value["model"], "org/model", "{}", folder.display());
                    assert_eq!(body.last(), Some(&b'}'), "objects go before the last brace");
                    let figures = format!(
                        "\n{:?} {:?} bytes {}\n",
                        whole.finish_reason,
                        whole.usage(),
                        whole.output_bytes
                    );
                    [body, figures.into_bytes()].concat()
                }
                Err(fault) => format!("{:?}\n", fault.kind).into_bytes(),
            };
            test_support::assert_golden(&folder.join("answered.json"), &answered);
        }
        assert!(count > 2, "the cases of {pair} are there");
    }
}
