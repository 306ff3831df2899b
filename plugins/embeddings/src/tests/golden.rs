//! Tests only: `testdata/<kind>_<shape>/<case>/`.
//!
//! | file | |
//! |---|---|
//! | `ask.json` | what the client sends |
//! | `target.json` | properties of the offer that differ from the default; `headers` of the answers |
//! | `sent.json` | requests to the provider, one line for each call |
//! | `got.json`, `got.2.json` … | the provider's answer to each call |
//! | `answered.json` | the client's answer with its metadata, or the error of the provider's answer |
//!
//! With `PENSTOCK_BLESS` set, `sent.json` and `answered.json` are written.

use super::*;
use std::path::{Path, PathBuf};

fn golden(path: &Path, got: &str) {
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(path, got).unwrap();
    }
    let want = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
    assert_eq!(got, want, "{}", path.display());
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn json(path: &Path) -> Value {
    std::fs::read(path).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap())
}

/// Returns the answers of a case, with their headers.
fn answers(case: &Path, target: &Value) -> Vec<UpstreamAnswer> {
    let names = std::iter::once("got.json".to_owned()).chain((2..).map(|part| format!("got.{part}.json")));
    let bodies = names.map_while(|name| std::fs::read(case.join(name)).ok());
    let headers = target["headers"].as_array().cloned().unwrap_or_default();
    bodies
        .enumerate()
        .map(|(index, body)| UpstreamAnswer {
            body: Bytes::from(body),
            headers: vec![headers.get(index).and_then(Value::as_str).map(Into::into)],
            measured_energy: None,
        })
        .collect()
}

fn run(shape: &dyn ProviderAdapter, case: &Path) -> bool {
    let body = std::fs::read_to_string(case.join("ask.json")).unwrap();
    let ask = ask(shape.kind(), body.trim_end());
    let special = json(&case.join("target.json"));
    let abilities = abilities(&special);
    let target = target(&abilities);
    let calls = match shape.build_requests(&ask, &target) {
        Ok(calls) => calls,
        Err(refusal) => {
            let formatted = format!("{:?} {:?}: {}\n", refusal.code, refusal.param, refusal.message);
            golden(&case.join("sent.json"), &formatted);
            return false;
        }
    };
    let mut sent = String::new();
    for call in &calls {
        assert_eq!(call.content_type, "application/json");
        let body = String::from_utf8(call.body.concat()).unwrap();
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "{}: {body}", case.display());
        sent += &(body + "\n");
    }
    golden(&case.join("sent.json"), &sent);
    let answers = answers(case, &special);
    assert_eq!(answers.len(), calls.len(), "{}: an answer for each call", case.display());
    let answered = match shape.translate(&ask, &target, answers) {
        Err(fault) => format!("{:?}\n", fault.kind),
        Ok(whole) => {
            let body = String::from_utf8(whole.body.concat()).unwrap();
            let value: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(value["model"], "org/model");
            assert_eq!(value["object"] == "list", shape.kind() != ModelKind::Moderation);
            assert!(body.ends_with('}'));
            format!("{body}\n{:?} {:?}\n", whole.work, whole.measured_energy)
        }
    };
    golden(&case.join("answered.json"), &answered);
    true
}

#[test]
fn every_shape_asks_and_answers_as_its_cases_say() {
    let mut answered = 0;
    for shape in crate::ADAPTERS {
        let folder = root().join(format!("{}_{}", shape.kind().name(), shape.name()));
        let cases = folders(&folder);
        assert!(!cases.is_empty(), "{} has cases", folder.display());
        answered += cases.iter().filter(|case| run(*shape, case)).count();
    }
    assert!(answered > 25, "the cases are there");
    assert_eq!(folders(&root()).len(), crate::ADAPTERS.len(), "no folder without a shape");
}
