//! Objects and files that remain in the bucket and in the gateways' folders, compared with the file records.

use crate::fleet::gateways::Fleet;
use crate::harness::Client;
use crate::harness::process::Home;
use penstock_object_storage::{Bucket, ContentStore, ObjectInfo};
use std::collections::BTreeSet;

/// Folders of the bucket whose objects may be uploaded in parts.
const FOLDERS: [&str; 4] = ["files", "parts", "responses", "images"];

fn id_of(file: &serde_json::Value) -> String {
    file["id"].as_str().unwrap_or_else(|| panic!("{file}")).to_owned()
}

/// IDs of all files of the key.
pub async fn records(client: &Client) -> BTreeSet<String> {
    let (mut ids, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/files?limit=100{after}")).await.json();
        let files = page["data"].as_array().unwrap_or_else(|| panic!("{page}"));
        ids.extend(files.iter().map(id_of));
        match files.last() {
            Some(last) if page["has_more"] == true => after = format!("&after={}", id_of(last)),
            _ => return ids,
        }
    }
}

/// Objects of the bucket and files in the folders of temporary files.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// IDs of complete objects; an ID occurs once for each of its objects.
    pub objects: Vec<String>,
    /// IDs of files with segments.
    pub segments: BTreeSet<String>,
    pub incomplete: usize,
    pub temporary: usize,
}

impl Stored {
    pub fn read(fleet: &Fleet, bucket: &Bucket) -> Self {
        let mut names = [Vec::new(), Vec::new()];
        for (folder, names) in ["files", "parts"].into_iter().zip(&mut names) {
            let mut add = |object: ObjectInfo| {
                names.push(object.name);
                Ok(())
            };
            bucket.for_each(folder, &mut add).unwrap();
        }
        let [objects, segments] = names;
        let id = |name: &String| name.strip_prefix("files/").unwrap().rsplit_once('-').unwrap().0.to_owned();
        let uploads = |folder: &&str| bucket.list_incomplete_uploads(folder).unwrap().len();
        let temporary = |home: &Home| std::fs::read_dir(home.storage().join("files/aside")).unwrap().count();
        Self {
            objects: objects.iter().map(id).collect(),
            segments: segments.iter().map(|name| name.split('/').nth(1).unwrap().to_owned()).collect(),
            incomplete: FOLDERS.iter().map(uploads).sum(),
            temporary: fleet.homes.iter().map(temporary).sum(),
        }
    }

    /// Number of objects without a record.
    pub fn orphans(&self, records: &BTreeSet<String>) -> usize {
        self.objects.iter().filter(|id| !records.contains(*id)).count()
    }

    /// Compares the stored objects with the file records. Requires that no file is being written.
    pub fn check(&self, records: &BTreeSet<String>) -> Result<(), String> {
        let objects: BTreeSet<&String> = self.objects.iter().collect();
        let missing = records.iter().find(|id| !objects.contains(id));
        match missing {
            Some(id) => Err(format!("record {id} has no object")),
            None if self.orphans(records) > 0 => Err("an object has no record".to_owned()),
            None if objects.len() < self.objects.len() => Err("a record has two objects".to_owned()),
            None if !self.segments.is_empty() => Err(format!("segments of {:?}", self.segments)),
            None if self.incomplete > 0 => Err(format!("{} incomplete uploads", self.incomplete)),
            None if self.temporary > 0 => Err(format!("{} temporary files", self.temporary)),
            None => Ok(()),
        }
    }
}

#[test]
fn each_kind_of_leftover_and_a_missing_object_are_found() {
    let ids = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let records = ids(&["a", "b"]);
    let right = Stored { objects: vec!["a".to_owned(), "b".to_owned()], ..Stored::default() };
    assert_eq!(right.check(&records), Ok(()));
    let with = |change: &dyn Fn(&mut Stored)| {
        let mut stored = right.clone();
        change(&mut stored);
        stored.check(&records).unwrap_err()
    };
    let found = [
        with(&|stored| drop(stored.objects.pop())),
        with(&|stored| stored.objects.push("c".to_owned())),
        with(&|stored| stored.objects.push("a".to_owned())),
        with(&|stored| stored.segments = ids(&["b"])),
        with(&|stored| stored.incomplete = 1),
        with(&|stored| stored.temporary = 1),
    ];
    let expected =
        ["record b has no", "has no record", "two objects", "segments", "1 incomplete", "1 temporary"];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}");
    }
}
