//! PostgreSQL server in a temporary folder, on a Unix socket. A shell runs the server and reads commands from a pipe
//! of the test process; when this process ends, the shell stops the server. Each command is a line: `crash` stops the
//! server without a checkpoint, as a power cut does; `start` starts it; `copy` copies its data, as a standby does;
//! `promote` replaces the server by one with the copy.
//!
//! Variables of the environment: `PENSTOCK_POSTGRES_BIN` is a folder with `initdb` and `postgres`, to test another
//! version than Debian's; `PENSTOCK_POSTGRES_POOLER=pgbouncer` puts PgBouncer in transaction mode before the server.

use penstock_storage::PostgresOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SCRIPT: &str = r#"
dir=$1
for bin in /usr/lib/postgresql/*/bin; do [ -d "$bin" ] && PATH=$bin:$PATH; done
PATH=${PENSTOCK_POSTGRES_BIN:+$PENSTOCK_POSTGRES_BIN:}$PATH:/usr/sbin
initdb -D "$dir/data" -U penstock -A trust --no-sync >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
launch() {
    postgres -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off -c max_connections=300 >>"$dir/log" 2>&1 &
    pid=$!
    until pg_isready -q -h "$dir" -d postgres; do
        kill -0 "$pid" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    done
}
stop() { kill "-$1" "$pid" 2>/dev/null && wait "$pid"; }
start_pooler() {
    mkdir "$dir/pooler"
    cat >"$dir/pooler/pgbouncer.ini" <<END
[databases]
* = host=$dir user=penstock
[pgbouncer]
pool_mode = transaction
auth_type = any
listen_addr =
unix_socket_dir = $dir/pooler
listen_port = 5432
max_client_conn = 1000
default_pool_size = 100
server_login_retry = 0.1
END
    pgbouncer -q "$dir/pooler/pgbouncer.ini" >>"$dir/log" 2>&1 &
    pooler=$!
    until pg_isready -q -h "$dir/pooler" -d postgres; do
        kill -0 "$pooler" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    done
}
# With SQL only: pg_basebackup has to be of the server's version.
copy_data() {
    psql -qAt -v ON_ERROR_STOP=1 -h "$dir" -U penstock -d postgres <<END
select pg_backup_start('copy', true);
\! cp -a "$dir/data" "$dir/copy" && rm "$dir/copy/postmaster.pid"
\o $dir/copy/backup_label
select labelfile from pg_backup_stop(false);
\o
\! cp -a "$dir/data/pg_wal/." "$dir/copy/pg_wal/"
END
}
launch
if [ -n "$2" ]; then start_pooler; fi
echo ready
while read -r command; do
    case $command in
        crash) stop QUIT; echo stopped ;;
        start) launch; echo ready ;;
        copy) copy_data >>"$dir/log" 2>&1 && echo copied ;;
        promote) stop QUIT; rm -rf "$dir/lost"; mv "$dir/data" "$dir/lost" && mv "$dir/copy" "$dir/data" && launch && echo ready ;;
    esac
done
[ -z "$pooler" ] || kill -INT "$pooler"
stop INT
rm -rf "$dir"
"#;

/// Running server.
pub struct PostgresServer {
    dir: PathBuf,
    /// Folder of the socket that stores connect to: that of the server, or of the pooler before it.
    host: PathBuf,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    shell: Child,
    schemas: AtomicU32,
}

impl PostgresServer {
    /// Starts a server. If the test runs as root, which PostgreSQL refuses, the server runs as the user postgres.
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
        let pooler = std::env::var("PENSTOCK_POSTGRES_POOLER").unwrap_or_default();
        assert!(matches!(pooler.as_str(), "" | "pgbouncer"), "PENSTOCK_POSTGRES_POOLER: {pooler}");
        let host = if pooler.is_empty() { dir.clone() } else { dir.join("pooler") };
        let mut shell = command
            .args(["-c", SCRIPT, "sh"])
            .arg(&dir)
            .arg(&pooler)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = shell.stdin.take().unwrap();
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut server = PostgresServer { dir, host, commands, answers, shell, schemas: AtomicU32::new(0) };
        server.expect("ready");
        server
    }

    fn expect(&mut self, answer: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), answer, "the PostgreSQL server's shell");
    }

    /// Returns options of a store with its own tables.
    pub fn options(&self) -> PostgresOptions {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        let url = format!("postgresql:///postgres?user=penstock&host={}", self.host.display());
        let folder = std::env::temp_dir().join(format!("penstock-{}-{number}", std::process::id()));
        PostgresOptions { schema: format!("penstock_{number}"), ..PostgresOptions::new(url, folder) }
    }

    /// Path of the socket on which the server listens.
    #[allow(dead_code)]
    pub fn socket(&self) -> PathBuf {
        self.host.join(".s.PGSQL.5432")
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

    /// Copies the current data. The copy is like a standby whose replication stops now.
    #[allow(dead_code)]
    pub fn copy(&mut self) {
        writeln!(self.commands, "copy").unwrap();
        self.expect("copied");
    }

    /// Stops the server and starts one with the copied data, like the promotion of a standby that lacks the commits
    /// since the copy.
    #[allow(dead_code)]
    pub fn promote_copy(&mut self) {
        writeln!(self.commands, "promote").unwrap();
        self.expect("ready");
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
