//! Rows of the database: reads of single rows and pages, and the checksum of each row.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connection::DatabaseError;
use super::schema::TableNames;
use crate::store::{PageBuilder, prefix_end};
use crate::{MAX_PAGE_BYTES, MAX_PAGE_ROWS, RowPage, RowScan, StoreError, StoreTable, row};

/// Direction of a scan, with the last key of the previous page, after which the scan starts; `None` for the first page.
#[derive(Clone, Debug)]
pub(super) enum ScanStart {
    After(Option<Vec<u8>>),
    Before(Option<Vec<u8>>),
}

/// Returns the checksum of a row, as stored in the column `sum`.
pub(super) fn row_checksum(table: StoreTable, key: &[u8], value: &[u8]) -> i32 {
    row::checksum(&row::disk_key(table, key), value).cast_signed()
}

/// Returns key and value of a database row after checking its checksum.
pub(super) fn unpack_row(table: StoreTable, found: &Row) -> Result<(&[u8], &[u8]), StoreError> {
    let parts =
        (|| Some((found.try_get(0).ok()?, found.try_get(1).ok()?, found.try_get::<_, i32>(2).ok()?)))();
    match parts {
        Some((key, value, sum)) if row_checksum(table, key, value) == sum => Ok((key, value)),
        _ => Err(StoreError::corrupt(format!("a row of {} does not match its checksum", table.name()))),
    }
}

pub(super) async fn get(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    key: &[u8],
) -> Result<Option<Vec<u8>>, DatabaseError> {
    let statement = format!("select key, value, sum from {} where key = $1", names.row_table(table));
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
    let statement = format!("select key, value, sum from {} where key = any($1)", names.row_table(table));
    let found = client.query_typed(&statement, &[(&keys, Type::BYTEA_ARRAY)]).await?;
    let mut rows = std::collections::HashMap::with_capacity(found.len());
    for found in &found {
        let (key, value) = unpack_row(table, found).map_err(DatabaseError::Permanent)?;
        rows.insert(key, value);
    }
    Ok(keys.iter().map(|key| rows.get(key.as_slice()).map(|value| value.to_vec())).collect())
}

/// Reads one page of the rows of a table whose keys begin with `prefix`.
pub(super) async fn scan(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    prefix: &[u8],
    from: ScanStart,
    limit: usize,
) -> Result<RowPage, DatabaseError> {
    let rows = scan_rows(client, names, table, prefix, from, limit).await?;
    build_page(table, limit, &rows).map_err(DatabaseError::Permanent)
}

/// Reads the pages of several scans with one statement, which is one transaction of the server.
pub(super) async fn scan_many(
    client: &Client,
    names: &TableNames,
    scans: &[RowScan],
) -> Result<Vec<RowPage>, DatabaseError> {
    let selections: Vec<Selection<'_>> = scans
        .iter()
        .map(|scan| Selection::new(&scan.prefix, ScanStart::After(scan.after.clone()), scan.limit))
        .collect();
    let (mut parts, mut parameters) = (Vec::new(), Vec::new());
    for (number, (selection, scan)) in selections.iter().zip(scans).enumerate() {
        let query = selection.query(names, scan.table, &mut parameters);
        parts.push(format!("(select *, {number} from ({query}) as scan_{number})"));
    }
    let mut rows: Vec<Vec<Row>> = scans.iter().map(|_| Vec::new()).collect();
    if !parts.is_empty() {
        for row in client.query_typed(&parts.join(" union all "), &parameters).await? {
            let number = usize::try_from(row.try_get::<_, i32>(3)?).ok();
            let rows = number.and_then(|number| rows.get_mut(number));
            let unknown = || DatabaseError::Permanent(StoreError::corrupt("the number of a scan"));
            rows.ok_or_else(unknown)?.push(row);
        }
    }
    let pages = scans.iter().zip(&mut rows).map(|(scan, rows)| {
        // The rows are sorted again, because the server need not keep the order of the parts of a union.
        rows.sort_by_cached_key(|row| row.try_get::<_, Vec<u8>>(0).unwrap_or_default());
        build_page(scan.table, scan.limit, rows)
    });
    pages.collect::<Result<_, _>>().map_err(DatabaseError::Permanent)
}

/// Reads the rows of a page, and one more row if another page follows. Does not verify checksums.
pub(super) async fn scan_rows(
    client: &Client,
    names: &TableNames,
    table: StoreTable,
    prefix: &[u8],
    from: ScanStart,
    limit: usize,
) -> Result<Vec<Row>, DatabaseError> {
    let (selection, mut parameters) = (Selection::new(prefix, from, limit), Vec::new());
    let statement = selection.query(names, table, &mut parameters);
    Ok(client.query_typed(&statement, &parameters).await?)
}

/// Parameter of a statement with its type.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Bounds of the query for the rows of a page plus one more row, which shows that another page follows. The limits
/// are those of [`PageBuilder`].
struct Selection<'a> {
    prefix: &'a [u8],
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    order: &'static str,
    limit: i64,
}

impl<'a> Selection<'a> {
    fn new(prefix: &'a [u8], from: ScanStart, limit: usize) -> Selection<'a> {
        let past = prefix_end(prefix);
        let (lower, upper, order) = match from {
            ScanStart::After(after) => (after, past, "asc"),
            ScanStart::Before(before) => (None, before.into_iter().chain(past).min(), "desc"),
        };
        let limit = i64::try_from(limit.clamp(1, MAX_PAGE_ROWS) + 1).unwrap_or(i64::MAX);
        Selection { prefix, lower, upper, order, limit }
    }

    /// Returns the query of the rows, and appends its parameters to the parameters of the statement. The server
    /// computes a running sum of the row sizes to limit the bytes of the page; for this it need not read long values,
    /// which PostgreSQL stores separately (TOAST). The window frame ends two rows before the current row, because the
    /// query returns one row more than the page.
    fn query<'s>(
        &'s self,
        names: &TableNames,
        table: StoreTable,
        parameters: &mut Vec<Parameter<'s>>,
    ) -> String {
        let mut parameter = |value: &'s (dyn ToSql + Sync), of_type| {
            parameters.push((value, of_type));
            parameters.len()
        };
        let mut condition = format!("key >= ${}", parameter(&self.prefix, Type::BYTEA));
        for (bound, operator) in [(&self.lower, ">"), (&self.upper, "<")] {
            if let Some(bound) = bound {
                condition += &format!(" and key {operator} ${}", parameter(bound, Type::BYTEA));
            }
        }
        let limit = parameter(&self.limit, Type::INT8);
        let (rows, order) = (names.row_table(table), self.order);
        format!(
            "select key, value, sum from (
                 select key, value, sum, sum(octet_length(key) + octet_length(value)) over (
                     order by key {order} rows between unbounded preceding and 2 preceding) as bytes
                 from (
                     select key, value, sum from {rows} where {condition} order by key {order} limit ${limit}
                 ) as limited
             ) as sized where coalesce(bytes, 0) < {MAX_PAGE_BYTES} order by key {order}"
        )
    }
}

/// Removes the row after the page from the rows that [`scan_rows`] has read. Returns the rows of the page, and true
/// if there was such a row.
pub(super) fn split_page(rows: &[Row], limit: usize) -> Result<(&[Row], bool), DatabaseError> {
    let (mut count, mut bytes) = (0, 0);
    for row in rows {
        if count == limit || bytes >= MAX_PAGE_BYTES {
            break;
        }
        let (key, value): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        count += 1;
        bytes += key.len() + value.len();
    }
    Ok((rows.get(..count).unwrap_or_default(), count < rows.len()))
}

/// Builds a page of rows after checking their checksums.
fn build_page(table: StoreTable, limit: usize, rows: &[Row]) -> Result<RowPage, StoreError> {
    let mut page = PageBuilder::new(limit);
    for found in rows {
        if !page.has_capacity() {
            break;
        }
        let (key, value) = unpack_row(table, found)?;
        page.push(key, value);
    }
    Ok(page.finish())
}
