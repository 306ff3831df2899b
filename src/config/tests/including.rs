//! Included files.

use super::super::{ConfigSource, Diagnostics, LoadedConfig, ResolveEnv};
use super::with;
use std::fs;
use std::path::Path;

fn load(folder: &Path) -> Result<LoadedConfig, Diagnostics> {
    ConfigSource::File(folder.join("penstock.toml")).load_with_env(ResolveEnv { env: &|_| None })
}

const OTHER: &str = "[[providers]]\nid = \"p2\"\noperator = \"Q\"\ncountry = \"DE\"\ncity = \"Berlin\"\npue = 1.1\n\
                     base_url = \"https://b.example.eu\"\n[[providers.offers]]\nmodel = \"m1\"\n";

#[test]
fn blocks_of_included_files_are_joined_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("providers.d")).unwrap();
    fs::write(folder.path().join("penstock.toml"), with("include = [\"providers.d/*.toml\"]", "", "", ""))
        .unwrap();
    fs::write(folder.path().join("providers.d/b.toml"), OTHER).unwrap();
    fs::write(folder.path().join("providers.d/a.toml"), OTHER.replace("p2", "p3")).unwrap();
    fs::write(folder.path().join("providers.d/note.txt"), "not TOML").unwrap();
    let settings = load(folder.path()).unwrap().settings;
    let ids: Vec<&str> = settings.providers.iter().map(|provider| &*provider.id).collect();
    assert_eq!(ids, ["p1", "p3", "p2"]);
    assert!(settings.offers.iter().enumerate().all(|(index, offer)| offer.index == index));
    assert!(settings.providers.iter().enumerate().all(|(index, provider)| provider.index == index));
}

#[test]
fn a_mistake_in_an_included_file_names_that_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("penstock.toml"), with("include = [\"more.toml\"]", "", "", "")).unwrap();
    fs::write(folder.path().join("more.toml"), OTHER.replace("DE", "NO")).unwrap();
    let report = load(folder.path()).unwrap_err();
    assert_eq!(report.mistakes.len(), 1);
    assert!(report.mistakes[0].file.ends_with("more.toml"));
    assert_eq!(report.mistakes[0].line, Some(4));
}

#[test]
fn a_key_stands_in_one_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let top = "include = [\"more.toml\"]\n[routing]\nattempts = 3";
    fs::write(folder.path().join("penstock.toml"), with(top, "", "", "")).unwrap();
    fs::write(folder.path().join("more.toml"), "[routing]\nattempts = 2\ntotal = \"1m\"\n").unwrap();
    let report = load(folder.path()).unwrap_err();
    assert_eq!(report.mistakes.len(), 1);
    assert_eq!(report.mistakes[0].key, "routing.attempts");
    assert!(report.mistakes[0].reason.contains("penstock.toml:4"), "{}", report.mistakes[0]);
}

#[test]
fn files_that_include_each_other_are_read_once_and_missing_ones_are_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("penstock.toml"), with("include = [\"more.toml\"]", "", "", "")).unwrap();
    fs::write(folder.path().join("more.toml"), "include = [\"penstock.toml\"]\n").unwrap();
    assert!(load(folder.path()).is_ok());
    fs::remove_file(folder.path().join("more.toml")).unwrap();
    let report = load(folder.path()).unwrap_err();
    assert_eq!(report.mistakes[0].key, "include");
    assert!(report.mistakes[0].reason.contains("it does not exist"));
    fs::remove_file(folder.path().join("penstock.toml")).unwrap();
    let report = load(folder.path()).unwrap_err();
    assert_eq!(report.mistakes.len(), 1);
    assert!(report.mistakes[0].reason.contains("cannot be read: it does not exist"));
}

#[test]
fn an_endless_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    for (top, key, why) in [
        ("include = [\"/dev/zero\"]", "include", "must be a regular file"),
        ("[grid]\nforecast = \"/dev/zero\"", "grid.forecast", "must be a regular file"),
    ] {
        fs::write(folder.path().join("penstock.toml"), with(top, "", "", "")).unwrap();
        let report = load(folder.path()).unwrap_err();
        assert_eq!(report.mistakes.len(), 1, "{top}");
        assert_eq!(report.mistakes[0].key, key);
        assert!(report.mistakes[0].reason.contains(why), "{}", report.mistakes[0]);
    }
}
