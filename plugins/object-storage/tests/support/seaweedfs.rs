//! SeaweedFS, a real S3-compatible server, on ports of this machine. A shell runs the server. The shell reads
//! commands from a pipe of the test process, and ends the server when that process ends. Commands are lines: `kill`
//! ends the server at once; `start` starts it.

use penstock_object_storage::{AddressingStyle, BucketCredentials, BucketOptions, BucketTimeouts};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Name of the bucket.
pub const BUCKET: &str = "penstock";
/// ID and secret of the access key.
pub const ACCESS_KEY: [&str; 2] = ["test-access-key", "test-secret-key"];

/// Maximum number of attempts to start the server.
const MAX_STARTS: usize = 3;

const SCRIPT: &str = r#"
dir=$1 weed=$2
shift 2
start() {
    "$weed" server "-dir=$dir/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 "-master.port=$1" "-master.port.grpc=$2" \
        "-volume.port=$3" "-volume.port.grpc=$4" -filer "-filer.port=$5" "-filer.port.grpc=$6" -s3 "-s3.port=$7" \
        "-s3.port.grpc=$8" -s3.port.iceberg=0 -s3.port.lance=0 -master.volumeSizeLimitMB=64 -volume.max=30 \
        >>"$dir/log" 2>&1 &
    pid=$!
    until curl -fsS -F file=@/etc/hostname "http://127.0.0.1:$5/buckets/penstock/ready" >/dev/null 2>&1 &&
        curl -s "http://127.0.0.1:$7/" >/dev/null 2>&1; do
        kill -0 "$pid" 2>/dev/null || { tail -n 20 "$dir/log" >&2; exit 1; }
        sleep 0.1
    done
    echo ready
}
stop() { kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; }
mkdir "$dir/data"
start "$@"
while read -r command; do
    case $command in
        kill) stop; echo stopped ;;
        start) start "$@" ;;
    esac
done
stop
"#;

/// Running server.
pub struct SeaweedServer {
    pub port: u16,
    /// Input of the shell; `None` once the shell has to end.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    shell: Child,
    _folder: TempDir,
}

impl SeaweedServer {
    /// Starts a server with a bucket.
    pub fn start() -> SeaweedServer {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = root.ancestors().map(|folder| folder.join(".ci/seaweedfs")).find(|path| path.exists());
        let found = Command::new(script.unwrap()).stderr(Stdio::inherit()).output().unwrap();
        assert!(found.status.success(), "SeaweedFS is installed");
        let weed = String::from_utf8(found.stdout).unwrap();
        // Another process may take a chosen port before the server starts, so the start is retried.
        (0..MAX_STARTS).find_map(|_| Self::try_start(weed.trim())).unwrap()
    }

    /// Starts a server on free ports; `None` if it ends at once.
    fn try_start(weed: &str) -> Option<SeaweedServer> {
        let folder = tempfile::Builder::new().prefix("penstock-s3").tempdir().unwrap();
        let ports = free_ports::<8>();
        let mut shell = Command::new("bash")
            .args(["-c", SCRIPT, "bash"])
            .args([folder.path(), Path::new(weed)])
            .args(ports.map(|port| port.to_string()))
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY[0])
            .env("AWS_SECRET_ACCESS_KEY", ACCESS_KEY[1])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut server = SeaweedServer { port: ports[6], commands, answers, shell, _folder: folder };
        (server.answer() == "ready").then_some(server)
    }

    fn send(&mut self, command: &str) {
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
    }

    fn expect(&mut self, answer: &str) {
        assert_eq!(self.answer(), answer, "the shell of SeaweedFS");
    }

    /// Returns the next line of the shell.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Options of the bucket.
    pub fn options(&self, prefix: &str) -> BucketOptions {
        options(&format!("http://127.0.0.1:{}", self.port), prefix)
    }

    /// Ends the server at once.
    #[allow(dead_code)]
    pub fn kill(&mut self) {
        self.send("kill");
        self.expect("stopped");
    }

    /// Starts the server again.
    #[allow(dead_code)]
    pub fn restart(&mut self) {
        self.send("start");
        self.expect("ready");
    }
}

impl Drop for SeaweedServer {
    fn drop(&mut self) {
        // The shell ends the server at the end of its input; the folder has to outlive the server.
        self.commands = None;
        self.shell.wait().ok();
    }
}

/// Options of a bucket at this endpoint.
pub fn options(endpoint: &str, prefix: &str) -> BucketOptions {
    BucketOptions {
        endpoint: endpoint.to_owned(),
        bucket: BUCKET.to_owned(),
        region: "eu-test".to_owned(),
        prefix: prefix.to_owned(),
        style: AddressingStyle::Path,
        credentials: BucketCredentials::AccessKey {
            id: ACCESS_KEY[0].to_owned(),
            secret: ACCESS_KEY[1].to_owned(),
        },
        ca_file: None,
        timeouts: BucketTimeouts::default(),
    }
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
