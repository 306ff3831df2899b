//! Entries of all chains in the order of time, with one page of blocks of each chain in memory.

use super::report::{ReportError, parse_entry};
use penstock_core::entry_number::number_before_chain;
use penstock_ledger::{LedgerEntry, split_lines};
use penstock_storage::ledger::{EntryBlock, LedgerStore};
use std::ops::Range;

/// Number of blocks that are read from a chain at a time.
const PAGE_BLOCKS: usize = 64;

/// Reader of one chain.
struct ChainReader<'a> {
    store: &'a LedgerStore,
    /// Months after the current one, which are read next.
    months: std::vec::IntoIter<String>,
    /// Current month; `None` before the first month and after the last.
    month: Option<String>,
    /// Number of the last entry in the blocks that were read.
    read: u64,
    /// Number of the entry before the first one to return.
    after: u64,
    blocks: std::vec::IntoIter<EntryBlock>,
    /// Text of the current block, and the offset of its next line.
    text: Vec<u8>,
    offset: usize,
    /// Next entry, and its line in the text; `None` at the end.
    head: Option<(LedgerEntry, Range<usize>)>,
}

impl<'a> ChainReader<'a> {
    fn open(store: &'a LedgerStore, months: Vec<String>, after: u64) -> Result<Self, ReportError> {
        let (months, blocks) = (months.into_iter(), Vec::new().into_iter());
        let (text, offset, month, head) = (Vec::new(), 0, None, None);
        let mut reader = Self { store, months, month, read: after, after, blocks, text, offset, head };
        reader.advance()?;
        Ok(reader)
    }

    /// Reads the next entry of the chain into `head`; `None` at the end of the chain.
    fn advance(&mut self) -> Result<(), ReportError> {
        self.head = None;
        loop {
            let rest = self.text.get(self.offset..).unwrap_or_default();
            if let Some(line) = split_lines(rest).next() {
                let entry = parse_entry(line)?;
                let range = self.offset..self.offset + line.len();
                self.offset = range.end;
                if entry.seq > self.after {
                    self.head = Some((entry, range));
                    return Ok(());
                }
            } else if !self.advance_block()? {
                return Ok(());
            }
        }
    }

    /// Reads the next block; returns false at the end.
    fn advance_block(&mut self) -> Result<bool, ReportError> {
        loop {
            if let Some(block) = self.blocks.next() {
                (self.read, self.text, self.offset) = (block.last, block.text, 0);
                return Ok(true);
            }
            if let Some(month) = &self.month {
                let (blocks, _) = self.store.month_blocks_limited(month, self.read, PAGE_BLOCKS)?;
                let blocks: Vec<EntryBlock> = blocks.collect::<Result<_, _>>()?;
                if !blocks.is_empty() {
                    self.blocks = blocks.into_iter();
                    continue;
                }
            }
            self.month = self.months.next();
            if self.month.is_none() {
                return Ok(false);
            }
        }
    }
}

/// Entries of several chains, merged by time and number.
pub(super) struct EntryMerge<'a> {
    readers: Vec<ChainReader<'a>>,
    /// Index of the reader that returned the last entry.
    taken: Option<usize>,
}

impl<'a> EntryMerge<'a> {
    /// Opens the entries of one month, or of all months. `starts` has one entry number for each chain: the merge
    /// returns the entries after it.
    pub(super) fn open(
        store: &'a LedgerStore,
        month: Option<&str>,
        starts: &[u64],
    ) -> Result<Self, ReportError> {
        let months = match month {
            Some(month) => vec![month.to_owned()],
            None => store.months()?,
        };
        Self::open_months(store, &months, starts)
    }

    /// Opens the entries of some months, in ascending order. `starts` has one entry number for each chain: the merge
    /// returns the entries after it.
    pub(super) fn open_months(
        store: &'a LedgerStore,
        months: &[String],
        starts: &[u64],
    ) -> Result<Self, ReportError> {
        let readers = starts.iter().map(|after| ChainReader::open(store, months.to_vec(), *after));
        Ok(Self { readers: readers.collect::<Result<_, _>>()?, taken: None })
    }

    /// Returns the next entry and its line; `None` at the end.
    pub(super) fn next_entry(&mut self) -> Result<Option<(LedgerEntry, &[u8])>, ReportError> {
        if let Some(reader) = self.taken.take().and_then(|index| self.readers.get_mut(index)) {
            reader.advance()?;
        }
        let heads = self.readers.iter().enumerate().filter_map(|(index, reader)| {
            reader.head.as_ref().map(|(entry, _)| (entry.at, entry.seq, index))
        });
        let Some((_, _, index)) = heads.min() else { return Ok(None) };
        self.taken = Some(index);
        let Some(reader) = self.readers.get_mut(index) else { return Ok(None) };
        let Some((entry, line)) = reader.head.take() else { return Ok(None) };
        Ok(Some((entry, reader.text.get(line).unwrap_or_default())))
    }
}

/// Returns for each chain the number before its first entry.
pub(super) fn chain_start_positions(store: &LedgerStore) -> Result<Vec<u64>, ReportError> {
    Ok(store.chains()?.into_iter().map(|(chain, _)| number_before_chain(chain)).collect())
}
