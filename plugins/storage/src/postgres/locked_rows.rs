//! Rows of a group of transactions that one database transaction commits. First the rows that the guards and
//! additions of the group need are locked and read; last, the results of the group are written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connection::DatabaseError;
use super::options::option_error;
use super::rows::{row_checksum, unpack_row};
use super::schema::TableNames;
use crate::transaction_group::WritesByKey;
use crate::{StoreError, StoreTable, Transaction, TransactionOp, row};

/// Rows that a group has read and locked.
pub(super) struct LockedRows {
    /// Rows by disk key; `None` for a row that does not exist.
    stored: HashMap<Vec<u8>, Option<Result<Vec<u8>, StoreError>>>,
    /// Disk keys of the rows that a guard requires to be absent.
    absent: BTreeSet<Vec<u8>>,
}

/// Rows to write to one table.
#[derive(Default)]
struct TableWrites {
    /// Rows that a guard requires to be absent and that the group does not create. A missing row cannot be locked, so
    /// each is inserted and deleted again. If another process created such a row after it was read, the insertion
    /// reports a conflict.
    missing: BTreeSet<Vec<u8>>,
    deletes: BTreeSet<Vec<u8>>,
    /// Rows to create, which did not exist when they were read. If another process created one since then, the
    /// insertion reports a conflict.
    inserts: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Rows to write with `on conflict do update`: rows that this transaction has locked, and rows that it replaces
    /// without reading them.
    upserts: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl LockedRows {
    /// Reads and locks the rows that the guards and additions of the group refer to. Tables and keys are locked in
    /// ascending order, so that writers of several processes do not deadlock.
    pub(super) async fn read_and_lock(
        client: &Client,
        names: &TableNames,
        group: &[&Transaction],
    ) -> Result<Self, DatabaseError> {
        let mut wanted: BTreeMap<StoreTable, BTreeSet<&[u8]>> = BTreeMap::new();
        let mut rows = Self { stored: HashMap::new(), absent: BTreeSet::new() };
        for operation in group.iter().flat_map(|transaction| transaction.operations()) {
            if !matches!(operation.op, TransactionOp::Put(_) | TransactionOp::Delete) {
                wanted.entry(operation.table).or_default().insert(&operation.key);
            }
            if operation.op == TransactionOp::Absent {
                rows.absent.insert(row::disk_key(operation.table, &operation.key));
            }
        }
        for (table, keys) in wanted {
            rows.stored.extend(keys.iter().map(|key| (row::disk_key(table, key), None)));
            let keys: Vec<&[u8]> = keys.into_iter().collect();
            let statement = format!(
                "select key, value, sum from {} where key = any($1) order by key for update",
                names.row_table(table)
            );
            for found in client.query_typed(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await? {
                let key = row::disk_key(table, found.try_get(0)?);
                rows.stored.insert(key, Some(unpack_row(table, &found).map(|(_, value)| value.to_vec())));
            }
        }
        Ok(rows)
    }

    /// Returns a row by disk key.
    pub(super) fn stored_row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.stored.get(key).cloned().flatten().transpose()
    }

    /// Writes the results of the group.
    pub(super) async fn write(
        &self,
        client: &Client,
        names: &TableNames,
        writes: WritesByKey,
    ) -> Result<(), DatabaseError> {
        for (table, writes) in self.by_table(writes)? {
            if !writes.missing.is_empty() {
                let rows = writes.missing.iter().map(|key| (key.clone(), Vec::new())).collect();
                put_rows(client, names, table, rows, "").await?;
                delete_rows(client, names, table, writes.missing).await?;
            }
            delete_rows(client, names, table, writes.deletes).await?;
            put_rows(client, names, table, writes.inserts, "").await?;
            let replace = "on conflict (key) do update set value = excluded.value, sum = excluded.sum";
            put_rows(client, names, table, writes.upserts, replace).await?;
        }
        Ok(())
    }

    fn by_table(&self, writes: WritesByKey) -> Result<BTreeMap<StoreTable, TableWrites>, DatabaseError> {
        let is_missing = |key: &Vec<u8>| matches!(self.stored.get(key), Some(None));
        let mut missing: BTreeSet<&Vec<u8>> = self.absent.iter().filter(|key| is_missing(key)).collect();
        let mut tables: BTreeMap<StoreTable, TableWrites> = BTreeMap::new();
        for (disk_key, value) in writes {
            let (table, key) = split_disk_key(&disk_key)?;
            let table = tables.entry(table).or_default();
            match value {
                None => drop(table.deletes.insert(key)),
                Some(value) => {
                    missing.remove(&disk_key);
                    let rows = if is_missing(&disk_key) { &mut table.inserts } else { &mut table.upserts };
                    rows.insert(key, value);
                }
            }
        }
        for disk_key in missing {
            let (table, key) = split_disk_key(disk_key)?;
            tables.entry(table).or_default().missing.insert(key);
        }
        Ok(tables)
    }
}

fn split_disk_key(disk_key: &[u8]) -> Result<(StoreTable, Vec<u8>), DatabaseError> {
    let split =
        disk_key.split_first().and_then(|(tag, key)| Some((StoreTable::from_tag(*tag)?, key.to_vec())));
    split.ok_or_else(|| DatabaseError::Permanent(option_error("a row is of an unknown table")))
}

async fn delete_rows(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    keys: BTreeSet<Vec<u8>>,
) -> Result<(), DatabaseError> {
    if !keys.is_empty() {
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let statement = format!("delete from {} where key = any($1)", names.row_table(table));
        client.execute_typed(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
    }
    Ok(())
}

async fn put_rows(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    on_conflict: &str,
) -> Result<(), DatabaseError> {
    if rows.is_empty() {
        return Ok(());
    }
    let sums: Vec<i32> = rows.iter().map(|(key, value)| row_checksum(table, key, value)).collect();
    let (keys, values): (Vec<Vec<u8>>, Vec<Vec<u8>>) = rows.into_iter().unzip();
    let statement = format!(
        "insert into {} (key, value, sum) select * from unnest($1::bytea[], $2::bytea[], $3::int[]) {on_conflict}",
        names.row_table(table)
    );
    client
        .execute_typed(
            &statement,
            &[(&keys, Type::BYTEA_ARRAY), (&values, Type::BYTEA_ARRAY), (&sums, Type::INT4_ARRAY)],
        )
        .await?;
    Ok(())
}
