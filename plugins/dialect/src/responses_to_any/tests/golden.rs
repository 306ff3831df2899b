//! Golden cases: `ask.json` as the client sends it; `sent.json`, what a provider gets; `got.sse` and `got.json`, what
//! it answers; `answered.sse` and `answered.json`, what the client gets.

use super::admitted_request;
use crate::{conformance, find_translator, test_support, translators};
use bytes::Bytes;
use penstock_core::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

struct GoldenCase {
    folder: PathBuf,
    provider: Dialect,
    ask: InferenceRequest,
    abilities: OfferCapabilities,
}

impl GoldenCase {
    fn all() -> Vec<Self> {
        let pairs = translators().filter(|pair| pair.client_dialect() == Dialect::Responses);
        pairs.flat_map(|pair| Self::load(pair.provider_dialect())).collect()
    }

    fn load(provider: Dialect) -> Vec<Self> {
        let pair = format!("responses_{}", provider.name());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(&pair);
        let mut folders: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        assert!(folders.len() > 4, "the cases of {pair} were found");
        let read = |folder: PathBuf| {
            let json = |name: &str| {
                let text = std::fs::read(folder.join(name)).unwrap_or_else(|_| b"{}".to_vec());
                serde_json::from_slice::<Value>(&text).unwrap()
            };
            let (ask, abilities) =
                (admitted_request(&json("ask.json")), test_support::parse_capabilities(&json("target.json")));
            Self { folder, provider, ask, abilities }
        };
        folders.into_iter().map(read).collect()
    }

    fn target(&self) -> AttemptTarget<'_> {
        test_support::sample_target(self.provider, &self.abilities)
    }

    fn translator(&self) -> &'static dyn Translator {
        find_translator(Dialect::Responses, self.provider).unwrap()
    }
}

#[test]
fn requests_match_the_golden_case() {
    for case in GoldenCase::all() {
        let sent = match case.translator().build_request(&case.ask, &case.target()) {
            Ok(sent) => sent.concat(),
            Err(refusal) => {
                let param =
                    Dialect::Responses.client_member_name(refusal.param.as_deref().unwrap_or_default());
                format!("refused {} {param}: {}", refusal.spec().code, refusal.message).into_bytes()
            }
        };
        test_support::assert_golden(&case.folder.join("sent.json"), &[&sent[..], b"\n"].concat());
    }
}

#[test]
fn streams_match_the_golden_case_at_every_split() {
    let mut count = 0;
    for case in GoldenCase::all() {
        let Ok(got) = std::fs::read(case.folder.join("got.sse")) else { continue };
        count += 1;
        let run = test_support::run_all_splits(
            &|| case.translator().translate_stream(&case.ask, &case.target()),
            &got,
        );
        test_support::assert_golden(&case.folder.join("answered.sse"), &run.out);
        if run.out.is_empty() {
            // The provider failed before its first token, so another provider would be asked.
            continue;
        }
        let checked = conformance::check_responses_stream(&run.out);
        assert_eq!(checked, Ok(()), "{}", case.folder.display());
    }
    assert!(count > 6, "{count} streams");
}

#[test]
fn buffered_answers_match_the_golden_case() {
    let mut count = 0;
    for case in GoldenCase::all() {
        let Ok(got) = std::fs::read(case.folder.join("got.json")) else { continue };
        count += 1;
        let answer =
            case.translator().translate_buffered(&case.ask, &case.target(), Bytes::from(got)).unwrap();
        let body = answer.body.concat();
        test_support::assert_golden(&case.folder.join("answered.json"), &[&body[..], b"\n"].concat());
        let checked = conformance::check_response(&serde_json::from_slice(&body).unwrap());
        assert_eq!(checked, Ok(()), "{}", case.folder.display());
        assert_eq!(body.last(), Some(&b'}'), "objects go before the last brace");
    }
    assert!(count > 3, "{count} answers");
}
