//! Tests of the command line, used as by a person in a shell.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::client::{AdminClient, AdminClientError, connectable_address, gateway_access};
use super::configuration::{check, settings_summary};
use super::table::format_table;
use super::{Cli, run_cli};
use crate::config::ConfigSource;
use crate::time::format::format_day;
use clap::{CommandFactory, Parser};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

/// Writes a configuration with this admin address into a folder; returns its path.
fn written(folder: &Path, admin: &str) -> PathBuf {
    let path = folder.join("penstock.toml");
    // The provider's secret is not set: commands that do not need it must not require it.
    let text = format!(
        "[listen]\nadmin = \"{admin}\"\n[[providers]]\nid = \"p\"\noperator = \"P\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"https://a.example.eu\"\napi_key = {{ env = \"PENSTOCK_TEST_UNSET\" }}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn command(line: &[&str]) -> Result<(), String> {
    run_cli(Cli::try_parse_from(line).unwrap()).map_err(|failure| failure.why)
}

#[test]
fn every_command_parses_and_explains_itself() {
    Cli::command().debug_assert();
    for command in [
        "run",
        "check",
        "schema",
        "keys",
        "credits",
        "statement",
        "models",
        "providers",
        "reload",
        "simulate",
        "batches",
        "files",
        "completions",
        "manual",
    ] {
        let help = Cli::try_parse_from(["penstock", command, "--help"]).unwrap_err().to_string();
        assert!(help.contains("Usage:"), "{help}");
        assert!(help.lines().next().unwrap().len() > 20, "{help}");
    }
    for line in [
        &["penstock"][..],
        &["penstock", "run", "-c", "x"],
        &[
            "penstock",
            "keys",
            "--config",
            "x",
            "create",
            "--name",
            "a",
            "--scope",
            "inference.chat",
            "--expires",
            "30d",
        ],
        &["penstock", "keys", "create", "--config", "x"],
        &["penstock", "keys", "revoke", "0123456789abcdef"],
        &["penstock", "simulate", "--listen", "127.0.0.1:0", "--first-token", "0"],
        &["penstock", "credits", "grant", "acme", "--credits", "100", "--id", "invoice-7", "--config", "x"],
        &["penstock", "credits", "correct", "7", "--kwh", "0", "--note", "counted wrong"],
        &["penstock", "credits", "export", "--format", "csv", "--after", "9", "--output", "x"],
        &["penstock", "credits", "export", "--format", "table"],
        &["penstock", "statement", "--month", "2026-11", "--account", "acme", "--format", "csv"],
        &["penstock", "statement", "--format", "text"],
        &["penstock", "batches", "list", "--account", "acme", "--state", "failed", "--format", "csv"],
        &["penstock", "files", "list", "--purpose", "batch_output", "--json"],
        &["penstock", "completions", "zsh"],
        &["penstock", "manual", "--to", "x"],
    ] {
        assert!(Cli::try_parse_from(line).is_ok(), "{line:?}");
    }
    for line in [
        &["penstock", "run"][..],
        &["penstock", "keys", "create", "--expires", "soon"],
        &["penstock", "simulate", "--certificate", "x"],
        &["penstock", "credits", "grant", "acme"],
        &["penstock", "credits", "grant", "acme", "--credits", "1", "--kwh", "1"],
        &["penstock", "keys", "list", "--json", "--format", "csv"],
        &["penstock", "completions", "tcsh"],
    ] {
        assert!(Cli::try_parse_from(line).is_err(), "{line:?}");
    }
}

#[test]
fn a_bad_configuration_is_refused_with_all_its_mistakes_and_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    std::fs::write(&path, "[listen]\nhtpp = 1\n[routing]\nattempts = 0\n").unwrap();
    let why = command(&["penstock", "check", "--config", path.to_str().unwrap()]).unwrap_err();
    assert!(why.contains("Did you mean `http`?") && why.contains("from 1 to 16"), "{why}");
    assert!(why.ends_with("2 mistakes in the configuration: it would not start."), "{why}");
    let why = command(&["penstock", "run", "--config", path.to_str().unwrap()]).unwrap_err();
    assert!(why.ends_with("nothing was started."), "{why}");
    let why = command(&["penstock", "check", "--config", "/nonexistent.toml"]).unwrap_err();
    assert!(why.contains("it does not exist") && why.contains("One mistake"), "{why}");
}

#[test]
fn a_good_configuration_is_summed_up() {
    check(&ConfigSource::Demo, false, false).unwrap();
    let settings = ConfigSource::Demo.load().unwrap().settings;
    let text = settings_summary(&settings);
    let offers = format!("3 with {} offers", settings.offers.len());
    for word in ["http 127.0.0.1:8080", "admin 127.0.0.1:9090", "sim-paris in Paris, France", &offers] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn check_takes_a_file_and_fails_on_warnings_only_with_strict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.toml");
    std::fs::write(&path, "[storage]\npath = \"data\"\n").unwrap();
    let path = path.to_str().unwrap();
    command(&["penstock", "check", path]).unwrap();
    command(&["penstock", "check", "--config", path]).unwrap();
    for line in [&["penstock", "check", path, "--strict"][..], &["penstock", "check", "--strict", "-c", path]]
    {
        let failure = run_cli(Cli::try_parse_from(line).unwrap()).unwrap_err();
        assert_eq!(failure.code, 78);
        assert!(failure.why.contains("--strict allows none"), "{}", failure.why);
    }
    for line in [&["penstock", "check"][..], &["penstock", "check", path, "--config", path]] {
        assert!(Cli::try_parse_from(line).is_err(), "{line:?}");
    }
    let missing = command(&["penstock", "check", "/nonexistent.toml"]).unwrap_err();
    assert!(missing.contains("it does not exist"), "{missing}");
}

#[test]
fn the_demo_is_meant_only_where_it_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let why = super::check_demo_folder(folder.path()).unwrap_err();
    assert!(why.contains("No configuration is named") && why.contains("--config FILE"), "{why}");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::create_dir(folder.path().join("data/store")).unwrap();
    std::fs::write(folder.path().join("penstock.toml"), "").unwrap();
    let why = super::check_demo_folder(folder.path()).unwrap_err();
    assert!(why.contains("--config penstock.toml"), "another store is none of the demo's: {why}");
    std::fs::write(folder.path().join("data").join(crate::storage::stores::DEMO_MARKER_FILE), "").unwrap();
    super::check_demo_folder(folder.path()).unwrap();
    // conf/demo.toml and the command line mean the same folder.
    let path = ConfigSource::Demo.load().unwrap().settings.storage.path;
    assert_eq!(path, Path::new(super::DEMO_STORAGE));
}

#[test]
fn a_gateway_that_does_not_run_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = written(folder.path(), &free.to_string());
    for asked in ["models", "providers", "reload"] {
        let why = command(&["penstock", asked, "--config", path.to_str().unwrap()]).unwrap_err();
        let (first, advice) = why.split_once('\n').unwrap_or((&why, ""));
        assert_eq!(
            first,
            format!("No gateway answers at {free}. Is it running, and with this configuration?")
        );
        assert_eq!(advice.contains("`kill -HUP PID`"), asked == "reload", "{asked}: {advice}");
    }
}

#[test]
fn keys_are_made_listed_and_revoked_in_the_store_when_no_gateway_runs() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = written(folder.path(), &free.to_string());
    let keys = |line: &[&str]| {
        let start = ["penstock", "keys", "--config", path.to_str().unwrap()];
        command(&[&start[..], line].concat())
    };
    keys(&["create", "--name", "alice", "--expires", "1d", "--model", "m1"]).unwrap();
    keys(&["list"]).unwrap();
    let id = {
        let reach = gateway_access(&ConfigSource::File(path.clone())).unwrap();
        let stores = crate::storage::stores::OpenStorage::open(&reach.storage.unwrap()).unwrap();
        let all = crate::admin::keys::all_keys_json(&stores).unwrap();
        assert_eq!((all.len(), &all[0]["name"]), (1, &json!("alice")));
        all[0]["id"].as_str().unwrap().to_owned()
    };
    keys(&["revoke", &id]).unwrap();
    keys(&["revoke", &id]).unwrap();
    assert_eq!(keys(&["revoke", "0123456789abcdef"]).unwrap_err(), "There is no key of this id.");
    let whole = keys(&["revoke", "sk-svc-0123456789abcdefSECRET"]).unwrap_err();
    assert!(whole.contains("16 letters and digits") && !whole.contains("SECRET"), "{whole}");
    let scope = keys(&["create", "--scope", "inference.chats"]).unwrap_err();
    assert!(scope.contains("inference.chats"), "{scope}");
    let held = {
        let reach = gateway_access(&ConfigSource::File(path.clone())).unwrap();
        crate::storage::stores::OpenStorage::open(&reach.storage.unwrap()).unwrap()
    };
    let why = keys(&["list"]).unwrap_err();
    assert!(why.to_lowercase().contains("another process") || why.contains("lock"), "{why}");
    drop(held);
}

#[test]
fn a_store_without_a_gateway_is_read_with_the_retention_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = written(folder.path(), &free.to_string());
    let reach = gateway_access(&ConfigSource::File(path)).unwrap();
    assert_eq!(reach.file_retention, Some(30 * 86_400));
    let backend =
        super::backend::AdminBackend::connect(&reach, super::backend::ExpectedStore::ExistingOrNew).unwrap();
    assert!(matches!(backend, super::backend::AdminBackend::Store(_, Some(2_592_000))));
}

/// Returns a listener, and a function that answers one request with these bytes and returns the text of the request.
fn once(answer: &'static [u8]) -> (TcpListener, impl FnOnce(TcpListener) -> thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener, move |listener: TcpListener| {
        thread::spawn(move || {
            // The first connection only checks that a process listens.
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            let mut piece = [0; 4096];
            while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
                let length = stream.read(&mut piece).unwrap();
                seen.extend_from_slice(&piece[..length]);
            }
            stream.write_all(answer).unwrap();
            String::from_utf8(seen).unwrap()
        })
    })
}

fn asked(answer: &'static [u8]) -> (Result<serde_json::Value, AdminClientError>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (listener, serve) = once(answer);
    let path = written(folder.path(), &listener.local_addr().unwrap().to_string());
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(folder.path().join("data/admin.token"), "t0ken\n").unwrap();
    let server = serve(listener);
    let reach = gateway_access(&ConfigSource::File(path)).unwrap();
    let answer = AdminClient::connect(&reach).and_then(|client| client.send("GET", "/admin/models", None));
    (answer, server.join().unwrap())
}

#[test]
fn the_running_gateway_is_asked_with_its_token_and_its_sentence_is_passed_on() {
    let (answer, request) = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}");
    assert_eq!(answer, Ok(json!({ "data": [] })));
    assert!(request.starts_with("GET /admin/models HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer t0ken\r\n"), "{request}");
    let (answer, _) = asked(b"HTTP/1.1 400 Bad Request\r\n\r\n{\"error\":{\"message\":\"2 mistakes\"}}");
    assert_eq!(answer, Err(AdminClientError::Other("2 mistakes".to_owned())));
    let (answer, _) = asked(b"SSH-2.0-OpenSSH\r\n\r\n\r\n");
    assert!(matches!(answer, Err(AdminClientError::Other(why)) if why.contains("does not speak HTTP")));
    let (answer, _) = asked(b"HTTP/1.1 404 Not Found\r\n\r\n<html>");
    assert!(matches!(answer, Err(AdminClientError::Other(why)) if why.contains("Is it the gateway?")));
}

#[test]
fn a_gateway_with_another_storage_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = written(folder.path(), &listener.local_addr().unwrap().to_string());
    let why = command(&["penstock", "models", "--config", path.to_str().unwrap()]).unwrap_err();
    assert!(why.contains("admin.token cannot be read: it does not exist"), "{why}");
}

#[test]
fn answers_in_chunks_are_put_together_and_cut_ones_are_errors() {
    let (answer, _) = asked(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n",
    );
    assert_eq!(answer, Ok(json!({ "a": 1 })));
    for cut in [
        &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffff\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n",
    ] {
        let (answer, _) = asked(cut);
        assert!(
            matches!(&answer, Err(AdminClientError::Other(why)) if why.contains("gateway")),
            "{answer:?}"
        );
    }
}

#[test]
fn a_gateway_that_listens_everywhere_is_reached_on_loopback() {
    assert_eq!(connectable_address("0.0.0.0:1".parse().unwrap()).to_string(), "127.0.0.1:1");
    assert_eq!(connectable_address("[::]:1".parse().unwrap()).to_string(), "[::1]:1");
}

#[test]
fn tables_align_and_days_are_those_of_the_calendar() {
    let rows = [vec!["a".to_owned(), "bb".to_owned()], vec!["ccccc".to_owned()]];
    assert_eq!(format_table(&["X", "Y"], &rows), "X      Y\na      bb\nccccc\n");
    assert_eq!(format_day(0), "1970-01-01");
    assert_eq!(format_day(951_782_400), "2000-02-29");
    assert_eq!(format_day(1_798_761_599), "2026-12-31");
}

/// Every command that lists something, as a path of subcommands.
fn listing_commands(command: &clap::Command, path: &str, found: &mut Vec<(String, bool)>) {
    for inner in command.get_subcommands() {
        let path = format!("{path} {}", inner.get_name());
        let lists = inner.get_about().is_some_and(|about| about.to_string().starts_with("Lists "));
        if lists && inner.get_subcommands().next().is_none() {
            let formats = inner.get_arguments().find(|argument| argument.get_id() == "format");
            let names: Vec<String> = formats
                .iter()
                .flat_map(|format| format.get_possible_values())
                .map(|value| value.get_name().to_owned())
                .collect();
            found.push((path.clone(), names == ["table", "json", "csv"]));
        }
        listing_commands(inner, &path, found);
    }
}

#[test]
fn every_command_that_lists_has_the_three_formats() {
    let mut found = Vec::new();
    listing_commands(&Cli::command(), "penstock", &mut found);
    assert!(found.len() >= 8, "{found:?}");
    let without: Vec<_> = found.iter().filter(|(_, formats)| !formats).collect();
    assert!(without.is_empty(), "{without:?}");
}
