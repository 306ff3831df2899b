//! Snapshot of all rows of the database at one instant, read page by page.

use std::sync::mpsc::SyncSender;

use super::connection::{DatabaseError, connect};
use super::reader::Reader;
use super::rows::{ScanStart, scan_rows, split_page, unpack_row};
use crate::{StoreError, StoreTable, StoredRow};

/// Maximum number of rows of a page; its bytes are limited too.
const PAGE_ROWS: usize = 256;
/// Maximum number of findings of a verification.
pub(super) const MAX_FINDINGS: usize = 100;

/// Page of a table: for each row, the row or the error of its checksum. `None` after the last page.
pub(super) type SnapshotPage = Option<(StoreTable, Vec<Result<StoredRow, StoreError>>)>;

/// Sends the pages of all tables. Stops early if the receiver was dropped.
pub(super) async fn send_pages(reader: &Reader, pages: &SyncSender<Result<SnapshotPage, StoreError>>) {
    let last = read_pages(reader, pages).await.map(|()| None).map_err(StoreError::from);
    let _ = tokio::task::block_in_place(|| pages.send(last));
}

async fn read_pages(
    reader: &Reader,
    pages: &SyncSender<Result<SnapshotPage, StoreError>>,
) -> Result<(), DatabaseError> {
    let mut client = connect(&reader.settings).await?;
    let snapshot = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    for table in StoreTable::ALL {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = ScanStart::After(after.take());
            let found = scan_rows(snapshot.client(), &reader.names, table, b"", from, PAGE_ROWS).await?;
            let (page, has_next) = split_page(&found, PAGE_ROWS)?;
            let rows: Vec<_> = page
                .iter()
                .map(|found| {
                    let (key, value) = unpack_row(table, found)?;
                    Ok(StoredRow { key: key.to_vec(), value: value.to_vec() })
                })
                .collect();
            after = page.last().map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?;
            // `block_in_place`, because `send` blocks for a slow receiver and must not block the other tasks of this
            // worker.
            if tokio::task::block_in_place(|| pages.send(Ok(Some((table, rows))))).is_err() {
                return Ok(());
            }
            if !has_next {
                break;
            }
        }
    }
    Ok(())
}
