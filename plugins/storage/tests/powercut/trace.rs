//! Parser of the shim's log: events with paths relative to the recorded directory.

use std::path::Path;

/// File with the child's acknowledgements, `worker n` a line, inside the recorded directory.
pub const ACKS: &str = "acks";

/// Recorded call of the child.
#[derive(Debug)]
pub enum Event {
    Create(String),
    Folder(String),
    Write {
        path: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        path: String,
        size: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove(String),
    /// Sync of one file or directory.
    Sync(String),
    /// Acknowledgement of transaction `n` of a worker.
    Acknowledged {
        worker: u8,
        n: u32,
    },
}

/// Parses a log.
pub fn read(log: &Path, root: &Path) -> Vec<Event> {
    read_placed(log, root).into_iter().map(|(_, event)| event).collect()
}

/// Parses a log; returns each event with the offset of its end.
pub fn read_placed(log: &Path, root: &Path) -> Vec<(u64, Event)> {
    let bytes = std::fs::read(log).unwrap();
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(21);
        let size = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap()) as usize;
        let number = usize::try_from(u64::from_ne_bytes(head[13..21].try_into().unwrap())).unwrap();
        let (path, tail) = tail.split_at(size(1));
        let (second, tail) = tail.split_at(size(5));
        let (content, tail) = tail.split_at(size(9));
        rest = tail;
        let name = |path: &[u8]| {
            let path = String::from_utf8(path.to_vec()).unwrap();
            let name = path.strip_prefix(root.to_str().unwrap()).map(|name| name.trim_start_matches('/'));
            name.unwrap_or("outside").to_owned()
        };
        let path = name(path);
        let event = match head[0] {
            _ if path.ends_with(" (deleted)") => continue,
            b'w' if path == ACKS => acknowledged(content),
            _ if path == ACKS => continue,
            b'c' => Event::Create(path),
            b'm' => Event::Folder(path),
            b'w' => Event::Write { path, at: number, bytes: content.to_vec() },
            b't' => Event::Truncate { path, size: number },
            b'r' => Event::Rename { from: path, to: name(second) },
            b'u' => Event::Remove(path),
            b's' => Event::Sync(path),
            other => panic!("the shim met a call it has no word for: {} {path}", char::from(other)),
        };
        events.push(((bytes.len() - rest.len()) as u64, event));
    }
    events
}

fn acknowledged(line: &[u8]) -> Event {
    let line = std::str::from_utf8(line).unwrap().trim();
    let (worker, n) = line.split_once(' ').unwrap();
    Event::Acknowledged { worker: worker.parse().unwrap(), n: n.parse().unwrap() }
}
