//! Energy that a provider states in the head of its response.

use crate::harness::script::{Script, ScriptStep, completion, done, finish, role, text, usage};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

const FACILITY: &str = "measured = \"facility\"";

/// Returns an answer with these headers, plain or as a stream; `member` is added to it if it is plain.
fn script(is_stream: bool, headers: &[(&'static str, &str)], member: Option<Value>) -> Script {
    let mut named: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let kind = if is_stream { "text/event-stream" } else { "application/json" };
    named.push(("content-type", kind.to_owned()));
    if is_stream {
        named.push(("transfer-encoding", "chunked".to_owned()));
        let head = ScriptStep::Head(200, named);
        return vec![head, role(), text("Hello"), finish("stop"), usage(11, 1), done(), ScriptStep::End];
    }
    let mut answer = completion("Hello");
    if let Some(energy) = member {
        answer["energy"] = energy;
    }
    vec![ScriptStep::Head(200, named), ScriptStep::Body(answer.to_string().into_bytes())]
}

async fn impact(is_stream: bool, script: Script, n: u32) -> Value {
    let provider = Provider::start().await;
    provider.always(script);
    let offer = if n > 1 { "max_n = 1" } else { "" };
    let running = Bench::new().provider_with("a", &provider, FACILITY, offer).start().await;
    let mut ask = if is_stream { running.ask_stream() } else { running.ask() };
    ask["n"] = json!(n);
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let last = if is_stream { answer.events().last().unwrap().clone() } else { answer.json() };
    last["environment_impact"].clone()
}

/// Asserts that the energy is that of a meter of the building which measured so many joules.
fn is_measured(impact: &Value, joules: f64) {
    assert_eq!(impact["provenance"]["method"], "measured", "{impact}");
    assert_eq!(impact["provenance"]["boundary"], "facility", "{impact}");
    let energy = impact["energy_kwh"].as_f64().unwrap();
    assert!((energy - joules / 3.6e6).abs() < 1e-12, "{energy}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_in_the_head_is_taken_over_the_formula() {
    for is_stream in [false, true] {
        for headers in
            [&[("X-Energy-Joules", "2.0"), ("X-Energy-Method", "counter")][..], &[("x-energy-joules", "2.0")]]
        {
            is_measured(&impact(is_stream, script(is_stream, headers, None), 1).await, 2.0);
            is_measured(&impact(is_stream, script(is_stream, headers, None), 3).await, 6.0);
        }
        for headers in [
            &[("x-energy-joules", "2.0"), ("x-energy-method", "estimate")][..],
            &[("x-energy-joules", "-2.0")],
            &[("x-energy-joules", "many")],
            &[("x-energy-joules", "0")],
            &[("x-energy-joules", "1e9")],
            &[("x-energy-method", "counter")],
        ] {
            let impact = impact(is_stream, script(is_stream, headers, None), 1).await;
            assert_eq!(impact["provenance"]["method"], "benchmark", "{headers:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_in_the_body_comes_before_that_of_the_head() {
    let energy = json!({"energy_joules": 3.0});
    let script = script(false, &[("x-energy-joules", "2.0")], Some(energy));
    is_measured(&impact(false, script, 1).await, 3.0);
}
