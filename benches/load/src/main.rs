//! Load test of Penstock compared with nginx and with a plain Pingora proxy:
//!
//! ```text
//! cargo build --release
//! cargo run --release --manifest-path benches/load/Cargo.toml -- target/release/penstock
//! ```
//!
//! Options: `--rounds 3`, `--seconds 3` for each sample, `--rate 1` as a factor of the built-in rates, `--only TEXT`
//! for the rows whose title contains the text, `--streams 9500` for that number of open streams instead, with `--alone`
//! only for Penstock, `--consoles 100` for Penstock with and without that number of open consoles, `--check` to fail if a goal is missed. A mock provider and the proxies run on loopback, are
//! measured one after the other at the same fixed rate, and end with this program.
//!
//! Processor time of each process is the most reliable figure, since other work on the machine changes it least. Times
//! are medians over the rounds; added times are relative to direct requests to the provider in the same round.

mod consoles;
mod events;
mod goals;
mod load;
mod mock;
mod pass;
mod process;
mod report;
mod streams;
mod targets;

use goals::Goals;
use load::{Connection, Plan, request};
use report::{Row, Sample};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use targets::{Bench, Target};

const USAGE: &str = "usage: penstock-load PENSTOCK [--rounds 3] [--seconds 3] [--rate 1] [--only TEXT] [--check]\n       \
    penstock-load PENSTOCK --streams 9500 [--seconds 3] [--alone] [--check]\n       \
    penstock-load PENSTOCK --consoles 100 [--rounds 3] [--seconds 3] [--rate 1] [--check]";

struct Options {
    penstock: PathBuf,
    rounds: usize,
    seconds: f64,
    rate: f64,
    only: String,
    /// Number of streams to open at the same time; `None` to measure single requests.
    streams: Option<usize>,
    /// Number of consoles to open beside single requests; `None` to measure without consoles.
    consoles: Option<usize>,
    /// True if only Penstock is measured with streams.
    alone: bool,
    /// True if the program fails when a goal is missed.
    check: bool,
}

/// Kind of request, and its load.
struct Scenario {
    name: &'static str,
    body: String,
    /// Requests per second.
    rate: f64,
    connections: usize,
    /// Goal: maximum of Penstock's processor time divided by plain Pingora's.
    goal: f64,
}

impl Scenario {
    /// Returns the title of the scenario's table.
    fn title(&self) -> String {
        match self.rate.is_finite() {
            true => format!("{}, {:.0} a second", self.name, self.rate),
            false => format!("{} on {} connections", self.name, self.connections),
        }
    }
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match role(&given).unwrap_or_else(|| options(&given).and_then(|options| compare(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Runs the role that the arguments name: this program is also the mock provider and the pass-through proxy, each in a
/// separate process.
fn role(given: &[String]) -> Option<Result<(), String>> {
    let address = |at: usize| given.get(at).and_then(|text| text.parse::<SocketAddr>().ok());
    match given.first()?.as_str() {
        "mock" => Some(mock::serve(address(1)?)),
        "events" => Some(events::serve(address(1)?)),
        "pass" => pass::serve(address(1)?, address(2)?, given.get(3)?.parse().ok()?),
        _ => None,
    }
}

fn options(given: &[String]) -> Result<Options, String> {
    let mut options = Options {
        penstock: PathBuf::new(),
        rounds: 3,
        seconds: 3.0,
        rate: 1.0,
        only: String::new(),
        streams: None,
        consoles: None,
        alone: false,
        check: false,
    };
    let mut words = given.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|text| text.parse::<f64>().ok());
            number.filter(|number| *number > 0.0).ok_or(format!("{word} takes a number above 0\n{USAGE}"))
        };
        match word.as_str() {
            "--rounds" => options.rounds = number()?.ceil() as usize,
            "--seconds" => options.seconds = number()?,
            "--rate" => options.rate = number()?,
            "--only" => {
                options.only = words.next().cloned().ok_or(format!("--only takes a text\n{USAGE}"))?
            }
            "--alone" => options.alone = true,
            "--check" => options.check = true,
            "--streams" => options.streams = Some(number()?.ceil() as usize),
            "--consoles" => options.consoles = Some(number()?.ceil() as usize),
            path if options.penstock.as_os_str().is_empty() && !path.starts_with('-') => {
                options.penstock = path.into();
            }
            other => return Err(format!("{other}: not understood\n{USAGE}")),
        }
    }
    if !options.penstock.is_file() {
        return Err(format!("{:?} is no file; `cargo build --release` makes it\n{USAGE}", options.penstock));
    }
    Ok(options)
}

fn compare(options: &Options) -> Result<(), String> {
    if let Some(streams) = options.streams {
        return streams::compare(options, streams)?.verdict(options.check);
    }
    if let Some(consoles) = options.consoles {
        return consoles::compare(options, consoles)?.verdict(options.check);
    }
    let mut chosen = scenarios(options.rate);
    chosen.retain(|scenario| scenario.title().contains(&options.only));
    if chosen.is_empty() {
        let titles: Vec<String> = scenarios(options.rate).iter().map(Scenario::title).collect();
        return Err(format!(
            "--only {:?}: no row is called so; they are: {}",
            options.only,
            titles.join("; ")
        ));
    }
    let mut goals = Goals::default();
    let bench = Bench::start(&options.penstock)?;
    for scenario in chosen {
        let mut rows: Vec<Row> = bench.targets.iter().map(|target| Row::new(target.name)).collect();
        // Warm-up: fills pools and touches pages before the measurement.
        bench.targets.iter().for_each(|target| drop(sample(target, &scenario, 0.5)));
        for round in 0..options.rounds {
            for offset in 0..rows.len() {
                let at = (offset + round) % rows.len();
                let (Some(row), Some(target)) = (rows.get_mut(at), bench.targets.get(at)) else { continue };
                row.samples.push(sample(target, &scenario, options.seconds));
            }
        }
        reach(&scenario, &rows, &mut goals);
        println!("{}{}", report::table(&scenario.title(), &rows), goals.take_text());
    }
    goals.verdict(options.check)
}

/// Checks a scenario's rows against the goals.
fn reach(scenario: &Scenario, rows: &[Row], goals: &mut Goals) {
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    let ratio = |of: Option<f64>, to: Option<f64>| Some(of? / to?);
    let (own, bare, nginx, direct) = (row("Penstock"), row("bare Pingora"), row("nginx"), row("direct"));
    let cpu = ratio(own.and_then(Row::cpu), bare.and_then(Row::cpu));
    goals.check_max("processor time beside the bare Pingora", cpu, scenario.goal);
    goals.check_max("failed", own.map(|row| row.failed() as f64), 0.0);
    if scenario.rate.is_finite() && scenario.rate >= 3_000.0 {
        let p99 = own.and_then(Row::p99);
        let added = p99.zip(direct.and_then(Row::p99)).map(|(own, direct)| own - direct);
        goals.check_either(
            ("added p99, ms", added, goals::ADDED_P99),
            ("beside nginx", ratio(p99, nginx.and_then(Row::p99)), goals::P99_BESIDE_NGINX),
        );
    }
}

/// Measures one target under load for some seconds.
fn sample(target: &Target, scenario: &Scenario, seconds: f64) -> Sample {
    let request = request(target.address, target.key.as_deref(), &scenario.body);
    // Detects a server that hangs. The measurement itself would show it only as a queue of late answers.
    let alive = Connection::new(target.address).ask(&request).is_ok();
    let before = target.process.as_ref().map(process::Process::spent);
    let (connections, rate) = (scenario.connections, scenario.rate);
    let seconds = if alive { seconds } else { 0.0 };
    let times = load::run(&Plan { to: target.address, request: &request, connections, rate, seconds });
    let spent = target.process.as_ref().zip(before).map(|(process, before)| process.spent().since(&before));
    let resident_kib = target.process.as_ref().map(process::Process::resident_kib);
    Sample { times, spent, resident_kib }
}

fn scenarios(factor: f64) -> Vec<Scenario> {
    let prose = "Please weigh what speaks for and against a dam above the old mill. ";
    let text = |size: usize| prose.chars().cycle().take(size).collect::<String>();
    let body = |content: Value, stream: bool| {
        let mut body = json!({"model": "m", "temperature": 0.7, "max_tokens": 256,
            "messages": [{"role": "user", "content": content}]});
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        body.to_string()
    };
    let image: String = "iVBORw0KGgoAAAANSUhEUgAAB9AAAAfQ".chars().cycle().take(2 << 20).collect();
    let picture = json!([{"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{image}")}}]);
    let scenario = |name, body, rate: f64, connections, goal| Scenario {
        name,
        body,
        rate: rate * factor,
        connections,
        goal,
    };
    vec![
        scenario("1 KiB", body(text(900).into(), false), 3_000.0, 16, 0.9),
        scenario("1 KiB, one after the other", body(text(900).into(), false), f64::INFINITY, 32, 0.9),
        scenario("1 KiB, low load", body(text(900).into(), false), 400.0, 16, 0.9),
        scenario("200 KiB", body(text(200 << 10).into(), false), 100.0, 16, 1.0),
        scenario("2 MiB, a data: image", body(picture, false), 15.0, 8, 1.0),
        scenario("streams of 64 tokens", body(text(900).into(), true), 30.0, 32, 0.85),
    ]
}
