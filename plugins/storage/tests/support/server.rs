//! PostgreSQL server in a temporary folder, on a Unix socket. A shell runs it and ends it with the test process, whose pipe
//! it reads. Commands are lines: `crash` stops the server without a checkpoint, as a power cut does; `start` starts it.

use penstock_storage::PostgresOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SCRIPT: &str = r#"
dir=$1
for bin in /usr/lib/postgresql/*/bin; do [ -d "$bin" ] && PATH=$bin:$PATH; done
initdb -D "$dir/data" -U penstock -A trust --no-sync >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
start() {
    postgres -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off -c max_connections=200 >>"$dir/log" 2>&1 &
    pid=$!
    until pg_isready -q -h "$dir" -d postgres; do
        kill -0 "$pid" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    done
    echo ready
}
stop() { kill "-$1" "$pid" 2>/dev/null && wait "$pid"; }
start
while read -r command; do
    case $command in
        crash) stop QUIT; echo stopped ;;
        start) start ;;
    esac
done
stop INT
rm -rf "$dir"
"#;

/// Running server.
pub struct PostgresServer {
    dir: PathBuf,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    shell: Child,
    schemas: AtomicU32,
}

impl PostgresServer {
    /// Starts a server. The root user, whom PostgreSQL refuses, becomes the user postgres.
    pub fn start() -> PostgresServer {
        let dir = tempfile::Builder::new().prefix("penstock-pg").tempdir().unwrap().keep();
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut command = if is_root {
            let owned = Command::new("chown").arg("postgres:").arg(&dir).status().unwrap();
            assert!(owned.success(), "the Debian package postgresql is installed");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let mut shell = command
            .args(["-c", SCRIPT, "sh"])
            .arg(&dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = shell.stdin.take().unwrap();
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut server = PostgresServer { dir, commands, answers, shell, schemas: AtomicU32::new(0) };
        server.expect("ready");
        server
    }

    fn expect(&mut self, answer: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), answer, "the PostgreSQL server's shell");
    }

    /// Options of a store with tables of its own.
    pub fn options(&self) -> PostgresOptions {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        let url = format!("postgresql:///postgres?user=penstock&host={}", self.dir.display());
        let folder = std::env::temp_dir().join(format!("penstock-{}-{number}", std::process::id()));
        PostgresOptions { schema: format!("penstock_{number}"), ..PostgresOptions::new(url, folder) }
    }

    /// Path of the socket on which the server listens.
    #[allow(dead_code)]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(".s.PGSQL.5432")
    }

    /// Returns the first column of the only row of a query.
    #[allow(dead_code)]
    pub fn query(&self, statement: &str) -> String {
        let run = Command::new("psql")
            .args(["-qAt", "-U", "penstock", "-d", "postgres", "-c", statement, "-h"])
            .arg(&self.dir)
            .output()
            .unwrap();
        assert!(run.status.success());
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }

    /// Runs a statement as an operator would.
    #[allow(dead_code)]
    pub fn execute(&self, statement: &str) {
        let run = Command::new("psql")
            .args(["-q", "-U", "penstock", "-d", "postgres", "-c", statement, "-h"])
            .arg(&self.dir)
            .status();
        assert!(run.unwrap().success());
    }

    /// Stops the server without a checkpoint.
    #[allow(dead_code)]
    pub fn crash(&mut self) {
        writeln!(self.commands, "crash").unwrap();
        self.expect("stopped");
    }

    /// Starts the stopped server.
    #[allow(dead_code)]
    pub fn restart(&mut self) {
        writeln!(self.commands, "start").unwrap();
        self.expect("ready");
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let _ = self.shell.try_wait();
    }
}
