//! Pages of rows: ascending and descending order, prefixes, limits, and every row exactly once.

use crate::each_engine;
use penstock_storage::{MAX_OPERATIONS, MAX_PAGE_ROWS, MAX_VALUE_BYTES, RowScan, StoreTable, Transaction};

#[test]
fn a_scan_gives_the_rows_of_a_prefix_in_order_after_a_key_up_to_a_limit() {
    each_engine(|store| {
        let mut batch = Transaction::new();
        for key in ["b", "a/3", "a/1", "a/2", "a", "a0", "a/\u{ff}"] {
            batch = batch.put(StoreTable::Files, key, key);
        }
        store.apply(batch.put(StoreTable::Batches, b"a/9", b"")).unwrap();
        let scan = |prefix: &[u8], after: Option<&[u8]>, limit| {
            let page = store.scan(StoreTable::Files, prefix, after, limit).unwrap();
            let keys: Vec<_> =
                page.rows.iter().map(|row| String::from_utf8(row.key.clone()).unwrap()).collect();
            (keys.join(" "), page.more)
        };
        assert_eq!(scan(b"a/", None, 10), ("a/1 a/2 a/3 a/\u{ff}".to_owned(), false));
        assert_eq!(scan(b"a/", None, 2), ("a/1 a/2".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"a/2"), 10), ("a/3 a/\u{ff}".to_owned(), false));
        assert_eq!(scan(b"a/", Some(b"a/25"), 1), ("a/3".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"Z"), 1), ("a/1".to_owned(), true), "after a key before the prefix");
        assert_eq!(scan(b"a/", Some(b"z"), 1), (String::new(), false), "after a key past the prefix");
        assert_eq!(scan(b"", None, 3), ("a a/1 a/2".to_owned(), true));
        assert_eq!(scan(b"c", None, 3), (String::new(), false));
        assert!(!scan(b"", None, 7).1, "a page that ends with the last row is the last");
    });
}

#[test]
fn several_scans_give_the_pages_of_each_alone() {
    each_engine(|store| {
        let mut batch = Transaction::new();
        for key in [&b"b"[..], b"a/3", b"a/1", b"a/2", b"a/\xff", b"\xff"] {
            batch = batch.put(StoreTable::Files, key, [key, b"!"].concat());
        }
        store.apply(batch.put(StoreTable::Meta, b"a/9", b"9")).unwrap();
        let scan = |table, prefix: &[u8], after: Option<&[u8]>, limit| RowScan {
            table,
            prefix: prefix.to_vec(),
            after: after.map(<[u8]>::to_vec),
            limit,
        };
        let scans = [
            scan(StoreTable::Files, b"a/", None, 2),
            scan(StoreTable::Meta, b"a/", Some(b"a/8"), 10),
            scan(StoreTable::Files, b"c", None, 10),
            scan(StoreTable::Files, b"a/", Some(b"a/2"), 10),
            scan(StoreTable::Files, b"\xff", None, 0),
            RowScan::of_prefix(StoreTable::Files, b""),
        ];
        let alone =
            |scan: &RowScan| store.scan(scan.table, &scan.prefix, scan.after.as_deref(), scan.limit).unwrap();
        let pages = store.scan_many(&scans).unwrap();
        assert_eq!(pages, scans.iter().map(alone).collect::<Vec<_>>());
        assert_eq!(pages.iter().map(|page| page.rows.len()).collect::<Vec<_>>(), [2, 1, 0, 2, 1, 6]);
        assert!(pages[0].more && !pages[3].more);
        assert!(store.scan_many(&[]).unwrap().is_empty());
    });
}

#[test]
fn a_scan_back_gives_the_same_rows_from_the_other_end() {
    each_engine(|store| {
        let mut batch = Transaction::new();
        for key in [&b"b"[..], b"a/3", b"a/1", b"a/2", b"a", b"a0", b"a/\xff", b"\xff", b"\xff\xff1"] {
            batch = batch.put(StoreTable::Files, key, key);
        }
        store
            .apply(batch.put(StoreTable::Batches, b"a/9", b"").put(StoreTable::Reserves, b"a/9", b""))
            .unwrap();
        let scan = |prefix: &[u8], before: Option<&[u8]>, limit| {
            let page = store.scan_back(StoreTable::Files, prefix, before, limit).unwrap();
            let keys: Vec<_> = page.rows.iter().map(|row| row.key.escape_ascii().to_string()).collect();
            (keys.join(" "), page.more)
        };
        assert_eq!(scan(b"a/", None, 10), ("a/\\xff a/3 a/2 a/1".to_owned(), false));
        assert_eq!(scan(b"a/", None, 2), ("a/\\xff a/3".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"a/3"), 10), ("a/2 a/1".to_owned(), false));
        assert_eq!(scan(b"a/", Some(b"a/25"), 1), ("a/2".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"Z"), 1), (String::new(), false), "before a key before the prefix");
        assert_eq!(scan(b"a/", Some(b"z"), 1), ("a/\\xff".to_owned(), true), "before a key past the prefix");
        assert_eq!(scan(b"", None, 3), ("\\xff\\xff1 \\xff b".to_owned(), true));
        assert_eq!(scan(b"\xff", None, 3), ("\\xff\\xff1 \\xff".to_owned(), false));
        assert_eq!(scan(b"c", None, 3), (String::new(), false));
        assert!(!scan(b"", None, 9).1, "a page that ends with the first row is the last");
    });
}

#[test]
fn pages_are_capped_and_together_give_every_row_once() {
    each_engine(|store| {
        let total = MAX_PAGE_ROWS + 200;
        for start in (0..total).step_by(MAX_OPERATIONS) {
            let mut batch = Transaction::new();
            for n in start..total.min(start + MAX_OPERATIONS) {
                batch = batch.put(StoreTable::Lines, u32::try_from(n).unwrap().to_be_bytes(), b"");
            }
            store.apply(batch).unwrap();
        }
        let first = store.scan(StoreTable::Lines, b"", None, usize::MAX).unwrap();
        assert!(first.more && first.rows.len() == MAX_PAGE_ROWS);
        let last = first.rows.last().map(|row| row.key.as_slice());
        let second = store.scan(StoreTable::Lines, b"", last, usize::MAX).unwrap();
        assert!(!second.more && second.rows.len() == total - MAX_PAGE_ROWS);
        for (n, row) in first.rows.iter().chain(&second.rows).enumerate() {
            assert_eq!(row.key, u32::try_from(n).unwrap().to_be_bytes());
        }
    });
}

#[test]
fn a_page_of_large_rows_ends_early_and_says_so() {
    each_engine(|store| {
        for n in 0..80_u8 {
            store.apply(Transaction::new().put(StoreTable::Files, [n], vec![n; MAX_VALUE_BYTES])).unwrap();
        }
        let page = store.scan(StoreTable::Files, b"", None, 80).unwrap();
        assert!(page.more && page.rows.len() < 80, "{} rows", page.rows.len());
    });
}
