//! Entries of a replica file that the store lacks.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use super::replica::read_error;
use crate::StoreError;

/// Maximum number of bytes of a line that are read. Lines of entries are shorter.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Returns true if the file has a complete line of an entry whose number exceeds `last`. Reads the file from one line
/// before `offset` on. Other bytes, such as a torn line or a repeated one, are no such entry; neither is a missing file.
///
/// # Errors
/// Returns `Io` if the file cannot be read.
pub(super) fn contains_entry_after(path: &Path, offset: u64, last: u64) -> Result<bool, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(read_error(error)),
    };
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(offset.saturating_sub(MAX_LINE_BYTES))).map_err(read_error)?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(read_error)?;
        if read == 0 {
            return Ok(false);
        }
        if entry_number(&line).is_some_and(|number| number > last) {
            return Ok(true);
        }
    }
}

/// Returns the number of the entry in a complete line, with or without its line end; `None` for anything else.
fn entry_number(line: &[u8]) -> Option<u64> {
    let members = line.trim_ascii_end().strip_prefix(br#"{"seq":"#)?.strip_suffix(b"}")?;
    let digits = members.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(members.get(..digits)?).ok()?.parse().ok()
}
