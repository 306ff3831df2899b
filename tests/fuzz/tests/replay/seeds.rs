//! Seed files as listed in `seeds.txt`, which `tests/fuzz/run` reads too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the fuzz targets.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn lines() -> Vec<Vec<String>> {
    let text = fs::read_to_string(here().join("seeds.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The targets that are listed.
pub fn listed() -> BTreeSet<String> {
    lines().into_iter().map(|line| line[0].clone()).collect()
}

/// Names of the files in a folder that have this extension, without the extension.
pub fn names(folder: &Path, ending: &str) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| name.strip_suffix(ending).unwrap().to_owned()).collect()
}

/// The seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let lines = lines();
    let line = lines.iter().find(|line| line[0] == target).expect("a line");
    let front = vec![0; line[1].parse().unwrap()];
    let own = format!("tests/fuzz/seeds/{target}/*");
    let patterns = line[2..].iter().chain([&own]);
    let files: BTreeSet<PathBuf> = patterns
        .flat_map(|pattern| {
            let found = matching(pattern);
            assert!(*pattern == own || !found.is_empty(), "no file is {pattern}");
            found
        })
        .collect();
    files.iter().map(|file| [front.clone(), fs::read(file).unwrap()].concat()).collect()
}

/// Files of the repository that match a pattern.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![here().join("../..")];
    for part in pattern.split('/') {
        found = match part.split_once('*') {
            None => found.into_iter().map(|folder| folder.join(part)).filter(|path| path.exists()).collect(),
            Some(_) => found.iter().flat_map(|folder| inside(folder, part)).collect(),
        };
    }
    found.retain(|path| path.is_file());
    found
}

fn inside(folder: &Path, part: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| fits(name, part)).map(|name| folder.join(name)).collect()
}

/// Returns true if a name matches a pattern; `*` matches any text.
fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => {
            let rest = name.strip_prefix(before);
            rest.is_some_and(|rest| {
                (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(&rest[at..], after))
            })
        }
    }
}
