//! Rows of the database: reads of single rows and pages, and the checksum of each row.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connection::DatabaseError;
use super::schema::TableNames;
use crate::store::{PageBuilder, prefix_end};
use crate::{MAX_PAGE_ROWS, RowPage, StoreError, StoreTable, row};

/// Direction of a scan with its exclusive start: the last key of the previous page.
#[derive(Clone, Debug)]
pub(super) enum ScanFrom {
    After(Option<Vec<u8>>),
    Before(Option<Vec<u8>>),
}

/// Returns the checksum of a row, as stored in the column `sum`.
pub(super) fn row_sum(table: StoreTable, key: &[u8], value: &[u8]) -> i32 {
    row::checksum(&row::disk_key(table, key), value).cast_signed()
}

/// Returns key and value of a database row after checking its checksum.
pub(super) fn unpack_row(table: StoreTable, found: &Row) -> Result<(&[u8], &[u8]), StoreError> {
    let parts =
        (|| Some((found.try_get(0).ok()?, found.try_get(1).ok()?, found.try_get::<_, i32>(2).ok()?)))();
    match parts {
        Some((key, value, sum)) if row_sum(table, key, value) == sum => Ok((key, value)),
        _ => Err(StoreError::corrupt(format!("a row of {} does not match its checksum", table.name()))),
    }
}

pub(super) async fn get(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    key: &[u8],
) -> Result<Option<Vec<u8>>, DatabaseError> {
    let statement = format!("select key, value, sum from {} where key = $1", names.rows(table));
    let found = client.query_typed_opt(&statement, &[(&key, Type::BYTEA)]).await?;
    let Some(found) = found else { return Ok(None) };
    let (_, value) = unpack_row(table, &found).map_err(DatabaseError::Permanent)?;
    Ok(Some(value.to_vec()))
}

pub(super) async fn get_many(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    keys: &[Vec<u8>],
) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
    let statement = format!("select key, value, sum from {} where key = any($1)", names.rows(table));
    let found = client.query_typed(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
    let mut rows = std::collections::HashMap::with_capacity(found.len());
    for found in &found {
        let (key, value) = unpack_row(table, found).map_err(DatabaseError::Permanent)?;
        rows.insert(key, value);
    }
    Ok(keys.iter().map(|key| rows.get(key.as_slice()).map(|value| value.to_vec())).collect())
}

/// Reads the page of a scan.
pub(super) async fn scan(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    prefix: &[u8],
    from: ScanFrom,
    limit: usize,
) -> Result<RowPage, DatabaseError> {
    let rows = scan_rows(client, names, table, prefix, from, limit).await?;
    let mut page = PageBuilder::new(limit);
    for found in &rows {
        let (key, value) = unpack_row(table, found).map_err(DatabaseError::Permanent)?;
        if !page.has_capacity() {
            break;
        }
        page.push(key, value);
    }
    Ok(page.finish())
}

/// Reads the rows of a page and one more, unchecked.
pub(super) async fn scan_rows(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    prefix: &[u8],
    from: ScanFrom,
    limit: usize,
) -> Result<Vec<Row>, DatabaseError> {
    let past = prefix_end(prefix);
    let (lower, upper, order) = match from {
        ScanFrom::After(after) => (after, past, "asc"),
        ScanFrom::Before(before) => (None, before.into_iter().chain(past).min(), "desc"),
    };
    let limit = i64::try_from(limit.clamp(1, MAX_PAGE_ROWS) + 1).unwrap_or(i64::MAX);
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![(&prefix, Type::BYTEA), (&limit, Type::INT8)];
    let mut condition = "key >= $1".to_owned();
    for (bound, operator) in [(&lower, ">"), (&upper, "<")] {
        if let Some(bound) = bound {
            parameters.push((bound, Type::BYTEA));
            condition += &format!(" and key {operator} ${}", parameters.len());
        }
    }
    let statement = format!(
        "select key, value, sum from {} where {condition} order by key {order} limit $2",
        names.rows(table)
    );
    Ok(client.query_typed(&statement, &parameters).await?)
}
