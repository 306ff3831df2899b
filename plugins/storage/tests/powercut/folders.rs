//! Creation of directories: the entry of each is synced before anything is acknowledged.

use penstock_storage::ledger::journal::{JournalId, LedgerJournal, push_frame};
use penstock_storage::{StoreTable, Transaction, open};

use crate::trace::Event;
use crate::{Acks, as_child, options, record};

const ID: JournalId = JournalId { generation: 1, incarnation: 1, chain: 1 };

#[test]
#[ignore = "run by other tests as a child process"]
fn child_in_nested_directories() {
    let Some(root) = as_child() else { return };
    let acks = Acks::open(&root);
    let store = open(&root.join("a/b/store"), options()).unwrap();
    store.apply(Transaction::new().put(StoreTable::Meta, b"k", b"v")).unwrap();
    acks.write(0, 1);
    let mut journal = LedgerJournal::open(&root.join("c/d/journal"), ID).unwrap();
    let mut frames = Vec::new();
    push_frame(1, b"record", &mut frames);
    journal.append(&frames, 1, 0, u64::MAX).unwrap();
    acks.write(0, 2);
}

#[test]
fn new_directories_survive_a_power_cut_with_what_is_in_them() {
    let recorded = record("folders::child_in_nested_directories");
    let mut created = Vec::new();
    for (at, event) in recorded.events.iter().enumerate() {
        let Event::Folder(path) = event else { continue };
        created.push(path.as_str());
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let later = &recorded.events[at..];
        let acknowledged = later.iter().position(|event| matches!(event, Event::Acknowledged { .. }));
        let synced = later.iter().position(|event| matches!(event, Event::Sync(path) if path == parent));
        assert!(
            synced.is_some() && synced < acknowledged,
            "{parent:?} is not synced after {path:?} is created"
        );
    }
    for path in ["a", "a/b", "a/b/store", "c", "c/d", "c/d/journal"] {
        assert!(created.contains(&path), "{path} of {created:?}");
    }
}
