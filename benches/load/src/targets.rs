//! Measured targets: the provider itself and the proxies before it, each with two threads.

use crate::load::{Connection, holds, request};
use crate::process::Process;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of threads of each target.
pub const THREADS: usize = 2;
/// Limits of the key, each so high that it is checked and counted but never reached.
const LIMITS: [&str; 8] = [
    "--requests-per-minute",
    "1000000000",
    "--tokens-per-minute",
    "1000000000000",
    "--concurrent",
    "1000000",
    "--budget-per-day",
    "1000000000",
];
/// Credits of the prepaid account.
const CREDITS: &str = "1000000000";
/// Timeout of a start.
const START: Duration = Duration::from_secs(30);

/// Measured target.
pub struct Target {
    pub name: &'static str,
    pub address: SocketAddr,
    pub key: Option<String>,
    /// Process of the target; `None` for the provider, which is not measured itself.
    pub process: Option<Process>,
}

/// All targets, and the provider behind them, which has to outlive them.
pub struct Bench {
    pub targets: Vec<Target>,
    folder: PathBuf,
    _mock: Process,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.targets.clear();
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Bench {
    /// Starts all targets and waits until each has answered.
    pub fn start(penstock: &Path) -> Result<Self, String> {
        let (mut bench, provider) = Self::before("mock")?;
        bench.targets.push(Target { name: "direct", address: provider, key: None, process: None });
        bench.nginx(provider)?;
        bench.pass(provider)?;
        bench.penstock(penstock, provider, 1000)?;
        Ok(bench)
    }

    /// Starts the targets for this number of open streams; only Penstock if `alone` is true.
    pub fn streams(penstock: &Path, streams: usize, alone: bool) -> Result<Self, String> {
        let (mut bench, provider) = Self::before("events")?;
        if !alone {
            bench.pass(provider)?;
        }
        bench.penstock(penstock, provider, streams + 100)?;
        Ok(bench)
    }

    /// Starts Penstock alone, and invites a user of its console; returns the link of the invitation too.
    pub fn console(penstock: &Path) -> Result<(Self, String), String> {
        let (mut bench, provider) = Self::before("mock")?;
        bench.penstock(penstock, provider, 1000)?;
        let file = bench.folder.join("penstock.toml");
        let link = run_cli(penstock, &file, &["users", "invite", "--role", "viewer", "load"])?;
        let link = link.split_whitespace().find(|word| word.starts_with("http://"));
        let link = link.ok_or("`penstock users invite` printed no link")?.to_owned();
        Ok((bench, link))
    }

    /// Creates a folder and starts the mock provider: this program with the role `role`.
    fn before(role: &str) -> Result<(Self, SocketAddr), String> {
        let folder = std::env::temp_dir().join(format!("penstock-load-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let provider = free()?;
        let program = std::env::current_exe().map_err(|why| why.to_string())?;
        let mut command = Command::new(program);
        let mut mock = Process::start(command.args([role, &provider.to_string()]), &folder.join("mock.log"))?;
        await_answer("the mock provider", provider, None, &mut mock)?;
        Ok((Self { targets: Vec::new(), folder, _mock: mock }, provider))
    }

    fn pass(&mut self, provider: SocketAddr) -> Result<(), String> {
        let address = free()?;
        let program = std::env::current_exe().map_err(|why| why.to_string())?;
        let mut pass = Command::new(program);
        pass.args(["pass", &address.to_string(), &provider.to_string(), &THREADS.to_string()]);
        self.add("bare Pingora", address, None, &mut pass)
    }

    fn add(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        key: Option<String>,
        command: &mut Command,
    ) -> Result<(), String> {
        let log = self.folder.join(format!("{name}.log"));
        let mut process = Process::start(command, &log)?;
        await_answer(name, address, key.as_deref(), &mut process)
            .map_err(|why| format!("{why}\n{}", fs::read_to_string(&log).unwrap_or_default()))?;
        self.targets.push(Target { name, address, key, process: Some(process) });
        Ok(())
    }

    fn nginx(&mut self, provider: SocketAddr) -> Result<(), String> {
        if Command::new("nginx").arg("-v").output().is_err() {
            return Err("nginx is not on the PATH; `apt-get install nginx-light` brings it".into());
        }
        let address = free()?;
        let (folder, file) = (self.folder.display().to_string(), self.folder.join("nginx.conf"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
            .concat();
        let text = format!(
            "worker_processes {THREADS};\npid {folder}/nginx.pid;\nerror_log stderr crit;\ndaemon off;\n\
             events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n{temporary}\
             keepalive_requests 100000000;\nclient_max_body_size 0;\n\
             upstream provider {{ server {provider}; keepalive 256; keepalive_requests 100000000; }}\n\
             server {{ listen {address};\nlocation / {{ proxy_pass http://provider; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_buffering off; proxy_request_buffering off; }} }} }}\n"
        );
        fs::write(&file, text).map_err(|why| format!("{}: {why}", file.display()))?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-e").arg("stderr").arg("-p").arg(&self.folder).arg("-c").arg(&file);
        self.add("nginx", address, None, &mut nginx)
    }

    /// Starts Penstock with all features: a key with limits of each kind and a budget, of a prepaid account, two
    /// providers with health checks, footprint and price, and a log line per request.
    fn penstock(&mut self, binary: &Path, provider: SocketAddr, max_in_flight: usize) -> Result<(), String> {
        let (address, admin) = (free()?, free()?);
        let file = self.folder.join("penstock.toml");
        let text = configuration(&self.folder, address, admin, provider, max_in_flight);
        fs::write(&file, text).map_err(|why| format!("{}: {why}", file.display()))?;
        let key = run_cli(binary, &file, &[&["keys", "create", "--name", "load"], &LIMITS[..]].concat())?;
        run_cli(binary, &file, &["credits", "grant", "--credits", CREDITS, "default"])?;
        let mut run = Command::new(binary);
        run.args(["run", "--config"]).arg(&file);
        self.add("Penstock", address, Some(key), &mut run)
    }
}

/// Runs a command of Penstock with a configuration file; returns its output.
fn run_cli(binary: &Path, configuration: &Path, words: &[&str]) -> Result<String, String> {
    let done = Command::new(binary).args(words).arg("--config").arg(configuration).output();
    let done = done.map_err(|why| format!("{}: {why}", binary.display()))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr))),
    }
}

/// Returns the configuration of Penstock. The context window is so large that a prompt of 200 KiB cannot exceed it.
/// The gateway then counts no tokens, which `benches/hot.rs` measures.
fn configuration(
    folder: &Path,
    http: SocketAddr,
    admin: SocketAddr,
    provider: SocketAddr,
    max_in_flight: usize,
) -> String {
    let providers = ["a", "b"].map(|id| {
        format!(
            "[[providers]]\nid = \"{id}\"\noperator = \"Load\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
             base_url = \"http://{provider}/v1\"\npue = 1.16\nwue = 0.2\nmax_in_flight = {max_in_flight}\n\
             health = {{ path = \"/models\", interval = \"1s\" }}\ntimeouts = {{ total = \"1h\" }}\n\
             [[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n"
        )
    });
    let storage = folder.join("data");
    // All requests belong to one account, and one account gets at most seven eighths of the permits.
    let max_requests = (max_in_flight * 2).max(10_000);
    format!(
        "[listen]\nhttp = \"{http}\"\nadmin = \"{admin}\"\n[storage]\npath = {storage:?}\nballast = \"0B\"\n\
         [process]\nthreads = {THREADS}\ndrain = \"1s\"\n[overload]\nrequests = {max_requests}\n[routing]\ntotal = \"1h\"\n\
         [billing]\ncredit = \"prepaid\"\n\
         [[models]]\nid = \"m\"\nname = \"M\"\nkind = \"chat\"\ncreated = 1700000000\ncontext_length = 262144\n\
         input_modalities = [\"text\", \"image\"]\nsupported_parameters = [\"temperature\", \"stream\", \"max_tokens\"]\n\
         price = {{ input = 0.05, output = 0.15 }}\n\
         energy = {{ active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.119 }}\n{}",
        providers.concat()
    )
}

/// Returns a loopback address with a free port.
fn free() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map_err(|why| format!("no free port: {why}"))
}

/// Waits until a target answers a request correctly. Penstock, which requires a key, must add its own members and
/// headers.
fn await_answer(
    name: &str,
    address: SocketAddr,
    key: Option<&str>,
    process: &mut Process,
) -> Result<(), String> {
    let hello = request(address, key, r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#);
    let deadline = Instant::now() + START;
    let mut last = String::from("it did not answer");
    while Instant::now() < deadline {
        if process.ended() {
            return Err(format!("{name} ended by itself"));
        }
        match Connection::new(address).ask(&hello) {
            Ok(answer) if answer.status == 200 => {
                let annotated = holds(&answer.body, b"environment_impact");
                let limited = answer.head.contains("x-ratelimit-");
                return if (annotated, limited) == (key.is_some(), key.is_some()) {
                    Ok(())
                } else {
                    Err(format!("{name} answers, but not as it should"))
                };
            }
            Ok(answer) => last = format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)),
            Err(why) => last = why.to_string(),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!("{name} did not start: {last}"))
}
