//! Progress of `penstock store`: lines if standard error is not a terminal, a bar if it is one, no output if
//! disabled. Standard output contains only the results.

use crate::harness::Provider;
use crate::harness::process::{Home, catalogue, complaint, penstock};
use nix::pty::openpty;
use std::fs::File;
use std::io::Read;
use std::process::{Output, Stdio};

async fn home() -> (Home, Provider) {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    home.key();
    assert!(home.command(&["credits", "grant", "default", "--credits", "10"]).status.success());
    (home, provider)
}

/// Returns the names of the progress stages, one per line; each line states an amount with its unit.
fn stages(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", complaint(output));
    let stderr = complaint(output);
    assert!(!stderr.contains(['\r', '\x1b']), "{stderr:?}");
    let units = ["rows", "entries", "batches", "bytes", "KiB", "MiB"];
    let stage = |line: &str| {
        let (name, amount) = line.split_once(": ").unwrap();
        assert!(units.iter().any(|unit| amount.contains(unit)) && amount.ends_with(" s."), "{line}");
        name.to_owned()
    };
    stderr.lines().map(stage).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stage_ends_with_a_line_where_standard_error_is_no_terminal() {
    let (home, provider) = home().await;
    let proof = ["Rows", "Ledger", "File contents", "Batches"];
    let verified = home.command(&["store", "verify"]);
    assert_eq!(stages(&verified), proof);
    let archive = home.path().join("archive");
    let archive = archive.to_str().unwrap();
    let exported = home.command(&["store", "export", archive]);
    assert_eq!(stages(&exported), ["Ledger", "Rows", "File contents"]);
    assert!(String::from_utf8(exported.stdout).unwrap().starts_with("Exported "));
    let elsewhere = Home::new();
    elsewhere.write(&catalogue(&provider, ""));
    let imported = stages(&elsewhere.command(&["store", "import", archive]));
    assert_eq!(imported, [&["Check of the archive", "Files", "Rows"], &proof[..]].concat());
    let saved = home.path().join("saved");
    let repaired = stages(&home.command(&["store", "repair", "--to", saved.to_str().unwrap()]));
    assert_eq!(repaired, [&["Rows", "Ledger", "File contents"], &proof[..]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_shown_beside_json_or_where_none_is_wanted() {
    let (home, _provider) = home().await;
    for words in
        [&["store", "verify", "--json"][..], &["store", "verify", "--quiet"], &["store", "-q", "verify"]]
    {
        let output = home.command(words);
        assert!(output.status.success(), "{}", complaint(&output));
        assert_eq!(complaint(&output), "", "{words:?}");
        assert!(!output.stdout.is_empty());
    }
}

/// Runs a command whose standard error is a terminal; returns the output on the terminal, and its standard output.
fn on_terminal(home: &Home, words: &[&str], kind: &str) -> (String, String) {
    let terminal = openpty(None, None).unwrap();
    let config = home.config();
    let mut command = penstock(words);
    command.args(["--config", config.to_str().unwrap()]).env("TERM", kind);
    command.stdout(Stdio::piped()).stderr(Stdio::from(File::from(terminal.slave)));
    let mut child = command.spawn().unwrap();
    // Closes this process's descriptor of the terminal. The child has its own; if this one stayed open, the read
    // below would never end.
    drop(command);
    let mut shown = Vec::new();
    // On Linux, reading a terminal without any writer ends with an error.
    File::from(terminal.master).read_to_end(&mut shown).ok();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    (String::from_utf8(shown).unwrap(), out)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_shows_a_bar_and_is_left_clean() {
    let (home, _provider) = home().await;
    let (shown, out) =
        on_terminal(&home, &["store", "export", home.path().join("a").to_str().unwrap()], "xterm");
    assert!(shown.contains("\r\x1b[KLedger [------------------------]   0 % 0 bytes"), "{shown:?}");
    assert!(shown.contains("\r\x1b[KRows ") && shown.ends_with("\r\x1b[K"), "{shown:?}");
    assert!(!shown.contains('\n'), "{shown:?}");
    assert!(out.starts_with("Exported "), "{out}");
    let (shown, _) = on_terminal(&home, &["store", "verify"], "dumb");
    assert!(shown.starts_with("Rows: ") && !shown.contains('\x1b'), "{shown:?}");
}
