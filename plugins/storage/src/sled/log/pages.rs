//! Table of sled's pages: the messages from which each page is read. sled writes it to a snapshot file when it opens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::format::{Body, FieldReader, Message, MessageKind};
use crate::StoreError;

/// Location of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) lsn: u64,
    /// Offset in the log file.
    pub(crate) offset: u64,
    /// Name of the file with the contents of the message, if it is not in the log.
    pub(crate) blob: Option<u64>,
}

/// Change of a page by a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageChange {
    Replace(u64, Pointer),
    Link(u64, Pointer),
    Free(u64),
}

impl PageChange {
    /// Returns the change by a message at an lsn and an offset of the log file; `None` if it changes no page.
    pub(crate) fn from_message(message: &Message<'_>, lsn: u64, offset: u64) -> Option<PageChange> {
        let pointer = |body| Pointer {
            lsn,
            offset,
            blob: match body {
                Body::Inline => None,
                Body::Blob => FieldReader(message.body).fixed_integer(),
            },
        };
        match message.kind {
            MessageKind::Replace(body) => Some(PageChange::Replace(message.page, pointer(body))),
            MessageKind::Link(body) => Some(PageChange::Link(message.page, pointer(body))),
            MessageKind::Free => Some(PageChange::Free(message.page)),
            MessageKind::Canceled | MessageKind::Cap | MessageKind::Manifest => None,
        }
    }
}

/// Messages of each page, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageTable {
    pages: BTreeMap<u64, Vec<Pointer>>,
}

impl PageTable {
    /// Applies a change.
    pub(crate) fn apply(&mut self, change: PageChange) {
        match change {
            PageChange::Replace(page, pointer) => drop(self.pages.insert(page, vec![pointer])),
            PageChange::Link(page, pointer) => {
                if let Some(page) = self.pages.get_mut(&page) {
                    page.push(pointer);
                }
            }
            PageChange::Free(page) => drop(self.pages.remove(&page)),
        }
    }

    /// Returns the location of every message from which a page is read.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = Pointer> {
        self.pages.values().flatten().copied()
    }
}

/// Contents of a snapshot file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Lsn up to which the table includes the messages of the log.
    pub(crate) lsn: u64,
    pub(crate) pages: PageTable,
}

/// Returns the path of the snapshot file that sled reads in `folder`; `None` if there is none.
///
/// # Errors
/// Returns the I/O error of reading the folder; a missing folder is no error.
pub(crate) fn snapshot_path(folder: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut last = None;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && !name.ends_with(".generating") && Some(&path) > last.as_ref() {
            last = Some(path);
        }
    }
    Ok(last)
}

/// Parses the contents of a snapshot file.
///
/// # Errors
/// Returns `Corrupt` if the checksum differs or the contents end too early.
pub(crate) fn parse_snapshot(file: &Path, bytes: &[u8]) -> Result<Snapshot, StoreError> {
    let parsed = bytes.split_last_chunk::<4>().and_then(|(rest, sum)| {
        let (table, _length) = rest.split_last_chunk::<8>()?;
        (!table.is_empty() && crc32fast::hash(table) == u32::from_le_bytes(*sum)).then_some(table)
    });
    parsed
        .and_then(parse_table)
        .ok_or_else(|| StoreError::corrupt(format!("{} does not match its checksum", file.display())))
}

fn parse_table(table: &[u8]) -> Option<Snapshot> {
    let mut fields = FieldReader(table);
    let mut snapshot = Snapshot { lsn: fields.fixed_integer()?.saturating_sub(1), ..Snapshot::default() };
    let _active_segment = fields.integer()?;
    let mut page = 0;
    while let Some(count) = fields.byte() {
        let count = usize::from(count);
        let mut pointers = Vec::with_capacity(count);
        if count == 0 {
            fields.fixed_integer()?;
            parse_disk_pointer(&mut fields)?;
        }
        for _ in 0..count {
            let lsn = fields.fixed_integer()?;
            let (offset, blob) = parse_disk_pointer(&mut fields)?;
            let _size = fields.integer()?;
            pointers.push(Pointer { lsn, offset, blob });
        }
        if count > 0 {
            snapshot.pages.pages.insert(page, pointers);
        }
        page += 1;
    }
    Some(snapshot)
}

fn parse_disk_pointer(fields: &mut FieldReader<'_>) -> Option<(u64, Option<u64>)> {
    match fields.byte()? {
        0 => Some((fields.integer()?, None)),
        1 => Some((fields.integer()?, Some(fields.fixed_integer()?))),
        _ => None,
    }
}
