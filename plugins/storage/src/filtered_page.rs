//! Pages of the rows that pass a filter. Rows are read until the page is full, or until a maximum number of rows is
//! read.

use crate::{MAX_PAGE_ROWS, StoreError};

/// Maximum number of rows that are read to fill one filtered page.
pub(crate) const MAX_FILTERED_ROWS: usize = 100_000;

/// Rows of one read, with the result of the filter for each.
pub(crate) struct ScannedRows<C, T> {
    /// Position of each row, and its item if the row passes the filter.
    pub(crate) rows: Vec<(C, Option<T>)>,
    /// True if more rows follow.
    pub(crate) more: bool,
}

/// Page of the items that pass a filter.
pub(crate) struct FilteredPage<C, T> {
    pub(crate) items: Vec<T>,
    /// Position after which the next page starts; `None` on the last page. A page that is not the last one has fewer
    /// items than its limit only if the maximum number of rows was read for it.
    pub(crate) next: Option<C>,
}

/// Reads one page of the rows that pass a filter. Calls `read_rows` with a position and a maximum number of rows until
/// `limit` rows have passed the filter and one more that passes shows that another page follows, or until `max_rows`
/// rows are read.
pub(crate) fn filtered_page<C: Clone, T>(
    mut after: Option<C>,
    limit: usize,
    max_rows: usize,
    mut read_rows: impl FnMut(Option<&C>, usize) -> Result<ScannedRows<C, T>, StoreError>,
) -> Result<FilteredPage<C, T>, StoreError> {
    let (limit, mut rows_left) = (limit.max(1), max_rows);
    let (mut items, mut last_item, mut has_left_out) = (Vec::new(), None, false);
    loop {
        let wanted = if has_left_out { MAX_PAGE_ROWS } else { limit + 1 - items.len() };
        let scanned = read_rows(after.as_ref(), wanted.min(rows_left))?;
        rows_left = rows_left.saturating_sub(scanned.rows.len());
        let has_next = scanned.more && !scanned.rows.is_empty();
        for (position, item) in scanned.rows {
            match item {
                Some(_) if items.len() == limit => return Ok(FilteredPage { items, next: last_item }),
                Some(item) => {
                    items.push(item);
                    last_item = Some(position.clone());
                }
                None => has_left_out = true,
            }
            after = Some(position);
        }
        if !has_next || rows_left == 0 {
            return Ok(FilteredPage { items, next: after.filter(|_| has_next) });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a page of the multiples of `step` among 1 to `end`, the number of rows read, and the number of reads.
    fn page(
        (end, step): (usize, usize),
        after: Option<usize>,
        limit: usize,
        max_rows: usize,
    ) -> (Vec<usize>, Option<usize>, usize, usize) {
        let (mut rows_read, mut reads) = (0, 0);
        let found = filtered_page(after, limit, max_rows, |after, count| {
            let first = after.map_or(1, |after| after + 1);
            let rows: Vec<_> = (first..=end)
                .take(count.min(MAX_PAGE_ROWS))
                .map(|number| (number, number.is_multiple_of(step).then_some(number)))
                .collect();
            rows_read += rows.len();
            reads += 1;
            let more = rows.last().is_some_and(|(last, _)| *last < end);
            Ok(ScannedRows { rows, more })
        })
        .unwrap();
        (found.items, found.next, rows_read, reads)
    }

    #[test]
    fn every_page_but_the_last_is_full_and_has_a_successor() {
        for (end, step) in [(0, 1), (1, 1), (30, 1), (30, 3), (31, 3), (30, 31), (5_000, 1_700), (40, 20)] {
            for limit in [1, 2, 10, 1_000] {
                let (mut all, mut after) = (Vec::new(), None);
                loop {
                    let (items, next, ..) = page((end, step), after, limit, usize::MAX);
                    assert!(items.len() <= limit);
                    assert!(next.is_none() || items.len() == limit, "{end} {step} {limit}");
                    assert!(
                        !items.is_empty() || all.is_empty(),
                        "{end} {step} {limit}: an empty page follows"
                    );
                    all.extend(items);
                    after = next;
                    if next.is_none() {
                        break;
                    }
                }
                let expected: Vec<usize> = (1..=end).filter(|number| number.is_multiple_of(step)).collect();
                assert_eq!(all, expected, "{end} {step} {limit}");
            }
        }
    }

    #[test]
    fn a_page_reads_a_bounded_number_of_rows() {
        assert_eq!(page((9_000, 10_000), None, 10, 2_500), (vec![], Some(2_500), 2_500, 4));
        assert_eq!(page((9_000, 10_000), Some(7_500), 10, 2_500), (vec![], None, 1_500, 3));
        assert_eq!(page((9_000, 2_000), None, 1, 2_500), (vec![2_000], Some(2_500), 2_500, 4));
    }

    #[test]
    fn a_page_without_omissions_reads_one_row_more_than_it_returns() {
        assert_eq!(page((9_000, 1), None, 20, usize::MAX).2, 21);
        let (items, next, rows, reads) = page((9_000, 1), None, 1_000, usize::MAX);
        assert_eq!((items.len(), next, rows, reads), (1_000, Some(1_000), 1_001, 2));
    }
}
