//! Gateway binary in its own process, which a test ends by its process id.

use super::certificates::TestCertificate;
use super::{Client, Provider, until};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the command of the binary with these arguments.
pub fn penstock(arguments: &[&str]) -> Command {
    // The environment variable selects another build of the binary, such as an optimised one.
    let built = || env!("CARGO_BIN_EXE_penstock").into();
    let mut command = Command::new(std::env::var_os("PENSTOCK_BINARY").unwrap_or_else(built));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Returns true if the binary is assumed to be optimised. For a debug build, tests print their measurements, but do
/// not enforce bounds.
pub fn optimised() -> bool {
    std::env::var_os("PENSTOCK_BINARY").is_some() || !cfg!(debug_assertions)
}

/// Runs the binary to its end.
pub fn ended(arguments: &[&str]) -> Output {
    penstock(arguments).output().unwrap()
}

/// Standard error of the command.
pub fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns an unused loopback address that no other test uses.
pub fn address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let [_, _, c, d] = process.to_be_bytes();
    let host = [127, 1 + (number % 250) as u8, c, d.max(1)];
    TcpListener::bind(SocketAddr::from((host, 0))).unwrap().local_addr().unwrap()
}

/// Folder with a configuration, and the addresses of its gateway.
pub struct Home {
    pub http: SocketAddr,
    pub admin: SocketAddr,
    /// Further line of `[listen]`, or an empty string.
    tls: String,
    folder: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// A folder in this one.
    pub fn within(folder: &Path) -> Self {
        let (tls, folder) = (String::new(), tempfile::tempdir_in(folder).unwrap());
        Self { http: address(), admin: address(), tls, folder }
    }

    /// Adds a TLS listener with these files to the configuration that is written next; returns its address.
    pub fn secure(&mut self, files: &TestCertificate) -> SocketAddr {
        let https = address();
        self.tls = files.https_at(https) + "\n";
        https
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn config(&self) -> PathBuf {
        self.path().join("penstock.toml")
    }

    /// Returns the folder of the store.
    pub fn storage(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Writes the configuration; `rest` is everything except listeners and store.
    pub fn write(&self, rest: &str) {
        let text = format!(
            "[listen]\nhttp = \"{}\"\nadmin = \"{}\"\n{}[storage]\npath = \"data\"\nballast = \"0B\"\n{rest}",
            self.http, self.admin, self.tls
        );
        std::fs::write(self.config(), text).unwrap();
    }

    /// Runs one command with this configuration to its end.
    pub fn command(&self, words: &[&str]) -> Output {
        let config = self.config();
        let mut arguments = words.to_vec();
        arguments.extend(["--config", config.to_str().unwrap()]);
        ended(&arguments)
    }

    /// A new key and its id.
    pub fn key(&self) -> (Client, String) {
        let made = self.command(&["keys", "create"]);
        assert!(made.status.success(), "{}", complaint(&made));
        let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let id = key["sk-svc-".len()..][..16].to_owned();
        (Client { address: self.http, key }, id)
    }

    /// The admin listener, without a token.
    pub fn admin(&self) -> Client {
        Client { address: self.admin, key: String::new() }
    }

    /// Starts the gateway and waits until it is ready.
    pub async fn run(&self) -> Process {
        self.run_with(|_| {}).await
    }

    /// Starts the gateway as a service manager does: starts it again if it exits before it is ready.
    pub async fn run_again(&self) -> Process {
        super::within("the gateway to be ready", async {
            loop {
                let mut process = self.spawn();
                while process.ended().is_none() {
                    if self.is_ready().await {
                        return process;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
        })
        .await
    }

    /// Starts the gateway after `around` has changed its command, and waits until it is ready.
    pub async fn run_with(&self, around: impl FnOnce(&mut Command)) -> Process {
        self.until_ready(self.spawn_with(around)).await
    }

    /// Waits until the gateway is ready.
    pub async fn until_ready(&self, mut process: Process) -> Process {
        let ready = async {
            while !self.is_ready().await {
                assert!(process.ended().is_none(), "it ended: {}", process.output());
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        super::within("the gateway to be ready", ready).await;
        process
    }

    /// Starts the gateway.
    pub fn spawn(&self) -> Process {
        self.spawn_with(|_| {})
    }

    fn spawn_with(&self, around: impl FnOnce(&mut Command)) -> Process {
        let config = self.config();
        let out = self.path().join("said");
        let file = File::options().create(true).append(true).open(&out).unwrap();
        let mut command = penstock(&["run", "--config", config.to_str().unwrap()]);
        around(&mut command);
        command.env("PENSTOCK_IT_SECRET", SECRET).stdout(file.try_clone().unwrap()).stderr(file);
        Process { child: command.spawn().unwrap(), out }
    }

    async fn is_ready(&self) -> bool {
        // The connection is refused while no process listens.
        if tokio::net::TcpStream::connect(self.admin).await.is_err() {
            return false;
        }
        // A process that ends during its start gives no answer.
        let mut open = self.admin().open("GET", "/readyz", &[], b"").await;
        open.any("HTTP/1.1 200").await
    }
}

/// Changes a command so that it runs with a soft limit of `now` file descriptors and a hard limit of `most`.
pub fn limited(command: &mut Command, now: u32, most: u32) {
    let line = "ulimit -Sn $0 && ulimit -Hn $1 && shift && exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, &now.to_string(), &most.to_string()]).stdin(Stdio::null());
    shell.arg(command.get_program()).args(command.get_args());
    *command = shell;
}

/// Value of `{ env = "PENSTOCK_IT_SECRET" }` in a gateway's process.
pub const SECRET: &str = "provider-key-that-nobody-may-see";

/// A model `m` and a provider `a` of it, as a complete configuration except listeners and store.
pub fn catalogue(provider: &Provider, lines: &str) -> String {
    format!(
        "[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 131072\n\
         supported_parameters = [\"stream\"]\nprice = {{ input = 1.0, output = 2.0 }}\n\
         [[providers]]\nid = \"a\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         pue = 1.16\nwue = 0.214\n         base_url = \"http://{}/v1\"\n{lines}\n[[providers.offers]]\nmodel = \"m\"\n",
        provider.address
    )
}

/// Gateway in its own process.
pub struct Process {
    child: Child,
    out: PathBuf,
}

impl Process {
    /// Output so far, of stdout and stderr.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    pub async fn wait_for_line(&self, word: &str) {
        until(word, || self.output().contains(word)).await;
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Returns a line of the process's status in the kernel, in KiB: `VmRSS` is the current memory, `VmHWM` the
    /// maximum.
    pub fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|known| known.strip_prefix(line)).unwrap();
        line.trim_matches([':', ' ', '\t']).split(' ').next().unwrap().parse().unwrap()
    }

    /// Returns the used processor time, in ticks of a hundredth of a second.
    pub fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name in brackets may contain blanks. After it, the fields 12 and 13 are the user time and the system
        // time.
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Exit status of the process; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub async fn until_ended(&mut self) -> ExitStatus {
        until("the process to end", || self.ended().is_some()).await;
        self.ended().unwrap()
    }

    /// Kills the process at once, without a graceful stop.
    pub async fn kill(mut self) {
        self.child.kill().unwrap();
        self.until_ended().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
