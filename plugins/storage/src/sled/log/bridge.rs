//! Bridges over damaged parts of a log, in a copy of it, so that sled reads the messages behind them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::handle::SEGMENT_BYTES;
use super::file::{LogFile, Segment, for_each_item};
use super::format::{SegmentItem, encode_canceled_message, encode_segment_header};
use crate::StoreError;

/// Overwrites each damaged part in front of messages of the same segment, or in front of a later segment, with a
/// canceled message, and writes lost segment headers again. The messages in the damaged parts are lost.
///
/// # Errors
/// Returns `Io` or `Full` if the log cannot be read or written.
pub(crate) fn bridge_gaps(folder: &Path) -> Result<(), StoreError> {
    let log = LogFile::open(folder)?;
    let segments = log.segments(0)?;
    let last = segments.iter().map(|segment| segment.number).max();
    let failed = |error| StoreError::io("write a copy of its log", &error);
    let copy = File::options().write(true).open(&log.path).map_err(failed)?;
    let mut buffer = Vec::new();
    for segment in &segments {
        log.read_segment(segment.offset, &mut buffer)?;
        let mut bridges = Vec::new();
        for_each_item(segment, &buffer, |item, _, offset| {
            if let SegmentItem::Tear { at, next } = item {
                // Behind the last segment there is nothing to read.
                let end = next.or((Some(segment.number) < last).then_some(SEGMENT_BYTES));
                bridges.extend(end.map(|end| (offset, end - at)));
            }
        });
        if !segment.has_header() {
            copy.write_all_at(&header(segment), segment.offset).map_err(failed)?;
        }
        for (offset, len) in bridges {
            let message = encode_canceled_message(segment.number, len);
            copy.write_all_at(&message, offset).map_err(failed)?;
        }
    }
    Ok(())
}

fn header(segment: &Segment) -> Vec<u8> {
    let first_lsn = segment.number * SEGMENT_BYTES as u64;
    encode_segment_header(first_lsn, first_lsn.saturating_sub(1))
}
