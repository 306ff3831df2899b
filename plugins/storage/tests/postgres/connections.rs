//! Connections through a proxy, which counts their bytes and limits their number.

use crate::{TAKEOVER, elsewhere, server::PostgresServer};
use penstock_storage::{
    MAX_PAGE_BYTES, MAX_VALUE_BYTES, PostgresOptions, RowScan, StoreError, StoreTable, Transaction,
    open_postgres,
};
use std::io::copy;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writer that counts the bytes of the server's answers.
struct CountingWriter(UnixStream, Arc<AtomicUsize>);

impl std::io::Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.fetch_add(bytes.len(), Ordering::SeqCst);
        std::io::Write::write(&mut self.0, bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Proxy {
    folder: tempfile::TempDir,
    /// Bytes of all answers of the server.
    bytes: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy that closes all connections but the first `limit`.
    fn start(server: PathBuf, limit: usize) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let bytes = Arc::new(AtomicUsize::new(0));
        let counter = bytes.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten().take(limit) {
                let server = UnixStream::connect(&server).unwrap();
                let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                let answers = CountingWriter(client, counter.clone());
                std::thread::spawn(move || forward(&ends[0], &ends[1]));
                std::thread::spawn(move || forward(&server, answers));
            }
        });
        Proxy { folder, bytes }
    }

    fn options(&self, options: &PostgresOptions) -> PostgresOptions {
        let url = format!("postgresql:///postgres?user=penstock&host={}", self.folder.path().display());
        PostgresOptions { url, ..options.clone() }
    }

    /// Returns the bytes of the answers during a call, and the result of the call.
    fn count<T>(&self, call: impl FnOnce() -> T) -> (usize, T) {
        let before = self.bytes.load(Ordering::SeqCst);
        let result = call();
        (self.bytes.load(Ordering::SeqCst) - before, result)
    }
}

fn forward(mut from: &UnixStream, mut to: impl std::io::Write) {
    copy(&mut from, &mut to).ok();
    from.shutdown(Shutdown::Both).ok();
}

#[test]
fn a_process_that_cannot_open_a_second_connection_leaves_at_once() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = elsewhere(&server.options(), &folder);
    options.takeover_after = TAKEOVER;
    options.folder = folder.path().join("a/b");
    drop(open_postgres(&options).unwrap());
    for path in ["a", "a/b", "a/b/strand"] {
        let mode = std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path} is for its owner only");
    }
    let proxy = Proxy::start(server.socket(), 1);
    let refused = open_postgres(&proxy.options(&options)).unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable { .. }), "{refused:?}");
    let incarnations = |column: &str| {
        server.query(&format!("select {column} from {}.strands order by id desc limit 1", options.schema))
    };
    assert_eq!(incarnations("live"), "f");
    let token = std::fs::read_to_string(options.folder.join("strand")).unwrap();
    assert_eq!(token, incarnations("token"), "the next process of the folder would take over from this one");
}

#[test]
fn a_page_of_large_rows_transfers_no_more_than_its_limit() {
    const ROWS: usize = 150;
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(server.socket(), usize::MAX);
    let store = open_postgres(&proxy.options(&elsewhere(&server.options(), &folder))).unwrap();
    let table = StoreTable::Files;
    for number in 0..ROWS {
        // Values that the server cannot compress.
        let value: Vec<u8> = (0..MAX_VALUE_BYTES).map(|_| rand::random()).collect();
        store.apply(Transaction::new().put(table, [number as u8], value)).unwrap();
    }
    let limit = MAX_PAGE_BYTES + 2 * MAX_VALUE_BYTES;
    let mut keys = Vec::new();
    loop {
        let after = keys.last().map(|key: &u8| [*key]);
        let (bytes, page) = proxy.count(|| store.scan(table, b"", after.as_ref().map(|key| &key[..]), 1_000));
        let page = page.unwrap();
        assert!(bytes <= limit && page.rows.len() <= MAX_PAGE_BYTES / MAX_VALUE_BYTES, "{bytes}");
        keys.extend(page.rows.iter().map(|row| row.key[0]));
        if !page.more {
            break;
        }
    }
    assert_eq!(keys, (0..ROWS as u8).collect::<Vec<_>>());
    let (bytes, page) = proxy.count(|| store.scan_back(table, b"", Some(&[100]), 1_000).unwrap());
    assert!(bytes <= limit && page.more && page.rows[0].key == [99], "{bytes}");
    let (bytes, page) = proxy.count(|| store.scan(table, b"", None, 10).unwrap());
    assert!(bytes <= 12 * MAX_VALUE_BYTES && page.more && page.rows.len() == 10, "{bytes}");
    let scans = [RowScan::of_prefix(table, b""), RowScan::of_prefix(StoreTable::Keys, b"")];
    let (bytes, pages) = proxy.count(|| store.scan_many(&scans).unwrap());
    assert!(bytes <= limit && pages[0].more && !pages[1].more, "{bytes}");
    let mut copied = Vec::new();
    let copy = store.copy_rows(&mut |row| {
        copied.push(row.key[0]);
        Ok(())
    });
    assert_eq!((copy, copied), (Ok(()), keys));
}
