//! `[storage.export]`: checks of the folder of archives.

use super::super::raw::Raw;
use super::super::settings::{Exports, Files};
use super::Proof;
use super::key_path::Spot;

impl Proof<'_> {
    pub fn exports(&mut self, raw: &Raw, top: &Spot<'_>, files: Option<&Files>) -> Option<Exports> {
        let (export, storage) = (&raw.storage.export, top.key("storage"));
        let (store, spot) = (storage.key("path").file(&raw.storage.path), storage.key("export").key("path"));
        let path = match &export.path {
            Some(path) => spot.file(path),
            None => store.join("exports"),
        };
        let other = "Write the path of another folder, best on another disk.";
        if path.exists() && !path.is_dir() {
            self.wrong(&spot, "It is a file, and must be a folder.", other);
            return None;
        }
        let own = ["store", "ledger", "files"].map(|name| store.join(name));
        let within = own.iter().chain(files.map(|files| &files.path)).any(|own| path.starts_with(own));
        if within || store.starts_with(&path) {
            self.wrong(&spot, "It is inside or above an archived folder, and must be a separate one.", other);
            return None;
        }
        Some(Exports {
            path,
            every: (!export.every.0.is_zero()).then_some(export.every.0),
            keep: usize::try_from(export.keep).unwrap_or(usize::MAX),
        })
    }
}
