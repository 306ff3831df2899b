//! Model of the disk contents after a power cut at a given event.
//!
//! The model is ext4-like: a sync of any file or directory also commits every earlier change of names; data of a file
//! is durable once the file was synced after the write; changes of names become durable in their order. The rest is
//! not guaranteed, and each policy treats it differently.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use rand::Rng;
use rand::rngs::StdRng;

use crate::trace::Event;

/// Fate of the unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Retains all changes that were not synced, as after a kill of the process.
    KeepAll,
    /// Loses all of them.
    LoseUnsynced,
    /// Retains changes of names and sizes. New data are zeros; overwritten data have their old content.
    MetadataOnly,
    /// Retains changes of names up to a random moment, and a random subset of the written 512-byte sectors; the other
    /// sectors have their old content or zeros.
    Torn,
}

pub const POLICIES: [Policy; 4] = [Policy::KeepAll, Policy::LoseUnsynced, Policy::MetadataOnly, Policy::Torn];

const SECTOR: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder,
    /// File, identified by the index of the event that created it, because its name may change.
    File(usize),
}

type Names = BTreeMap<String, Node>;

enum Change<'a> {
    Write(usize, &'a [u8]),
    Truncate(usize),
}

#[derive(Default)]
struct File<'a> {
    changes: Vec<(usize, Change<'a>)>,
    /// Number of events whose changes are durable.
    synced: usize,
}

/// Writes the disk contents after a power cut before event `cut` to the new directory `folder`.
pub fn image(events: &[Event], cut: usize, policy: Policy, random: &mut StdRng, folder: &Path) {
    let events = &events[..cut];
    let committed = events.iter().rposition(|event| matches!(event, Event::Sync(_))).unwrap_or(0);
    let named = match policy {
        Policy::KeepAll | Policy::MetadataOnly => cut,
        Policy::LoseUnsynced => committed,
        Policy::Torn => random.random_range(committed..=cut),
    };
    let mut names = Names::new();
    let mut surviving = if named == 0 { Some(Names::new()) } else { None };
    let mut files: HashMap<usize, File<'_>> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        change(&mut names, &mut files, index, event);
        if index + 1 == named {
            surviving = Some(names.clone());
        }
    }
    fs::create_dir_all(folder).unwrap();
    // In ascending name order, so that directories come before their contents.
    for (name, node) in surviving.unwrap() {
        match node {
            Node::Folder => fs::create_dir_all(folder.join(name)).unwrap(),
            Node::File(id) => {
                let content = files.get(&id).map(|file| content(file, policy, random)).unwrap_or_default();
                fs::write(folder.join(name), content).unwrap();
            }
        }
    }
}

fn change<'a>(names: &mut Names, files: &mut HashMap<usize, File<'a>>, index: usize, event: &'a Event) {
    let file = |names: &Names, path: &str| match names.get(path) {
        Some(Node::File(id)) => Some(*id),
        _ => None,
    };
    match event {
        Event::Create(path) => drop(names.insert(path.clone(), Node::File(index))),
        Event::Folder(path) => drop(names.insert(path.clone(), Node::Folder)),
        Event::Remove(path) => drop(names.remove(path)),
        Event::Rename { from, to } => rename(names, from, to),
        Event::Write { path, at, bytes } => {
            let id = file(names, path).unwrap_or_else(|| panic!("{path} was written before it was made"));
            files.entry(id).or_default().changes.push((index, Change::Write(*at, bytes)));
        }
        Event::Truncate { path, size } => {
            let id = file(names, path).unwrap_or_else(|| panic!("{path} was cut before it was made"));
            files.entry(id).or_default().changes.push((index, Change::Truncate(*size)));
        }
        Event::Sync(path) => {
            if let Some(id) = file(names, path) {
                files.entry(id).or_default().synced = index;
            }
        }
        Event::Acknowledged { .. } => {}
    }
}

fn rename(names: &mut Names, from: &str, to: &str) {
    let below = format!("{from}/");
    let moved: Vec<String> =
        names.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
    for name in moved {
        let node = names.remove(&name).unwrap();
        names.insert(format!("{to}{}", &name[from.len()..]), node);
    }
}

fn content(file: &File<'_>, policy: Policy, random: &mut StdRng) -> Vec<u8> {
    let mut content = Vec::new();
    let keeps = [0.1, 0.5, 0.9][random.random_range(0..3)];
    let mut size = 0;
    for (index, change) in &file.changes {
        let safe = *index < file.synced;
        match change {
            Change::Truncate(to) if safe || policy != Policy::LoseUnsynced => {
                content.resize(*to, 0);
                size = *to;
            }
            Change::Truncate(_) => {}
            Change::Write(at, bytes) if safe || policy == Policy::KeepAll => write(&mut content, *at, bytes),
            Change::Write(..) if policy == Policy::LoseUnsynced => {}
            Change::Write(at, bytes) => {
                size = size.max(at + bytes.len());
                if policy == Policy::Torn {
                    torn(&mut content, *at, bytes, keeps, random);
                }
            }
        }
    }
    let grown = policy == Policy::MetadataOnly || (policy == Policy::Torn && random.random_bool(0.5));
    if grown && size > content.len() {
        content.resize(size, 0);
    }
    content
}

fn write(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

fn torn(content: &mut Vec<u8>, at: usize, bytes: &[u8], keeps: f64, random: &mut StdRng) {
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min((at + start) / SECTOR * SECTOR + SECTOR - at);
        if random.random_bool(keeps) {
            write(content, at + start, &bytes[start..end]);
        }
        start = end;
    }
}
