//! Retention of result files.

use super::*;

#[test]
fn results_are_retained_from_their_last_line_on() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let record = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
    directory.store.apply(FileStore::insert_operations(&record).unwrap()).unwrap();
    // The batch took longer than the retention period.
    let (end, retention) = (NOW.as_secs() + 90_000, 3_600);
    let whole = files.open_output(&record).unwrap().finalize(&record, Duration::from_secs(end)).unwrap();
    replace_record(&*directory.store, &record, &whole);
    let when = |now| FileExpiryContext { now, retention: Some(retention) };
    assert_eq!(when(end).expires_at(&whole), Some(end + retention));
    assert_eq!(files.delete_expired(when(end + retention - 1)).unwrap(), 0);
    assert!(
        files.file_record_store().get(&whole.id).unwrap().is_some_and(|there| !when(end).is_expired(&there))
    );
    assert_eq!(files.delete_expired(when(end + retention)).unwrap(), 1);
}
