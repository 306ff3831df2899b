//! `[storage.export]`: checks of the folder of archives.

use super::super::raw::ConfigFile;
use super::super::settings::{FileSettings, StoreExportSettings};
use super::SettingsResolver;
use super::folder::overlaps;
use super::key_path::KeyPath;

impl SettingsResolver<'_> {
    /// Resolves `[storage.export]`; `None` if the folder cannot be used. The folder must not be inside or above an
    /// archived folder, such as that of `files`.
    pub fn resolve_store_exports(
        &mut self,
        raw: &ConfigFile,
        top: &KeyPath<'_>,
        files: Option<&FileSettings>,
    ) -> Option<StoreExportSettings> {
        let (export, storage) = (&raw.storage.export, top.child("storage"));
        let (store, spot) = (
            storage.child("path").resolve_file_path(&raw.storage.path),
            storage.child("export").child("path"),
        );
        let path = match &export.path {
            Some(path) => spot.resolve_file_path(path),
            None => store.join("exports"),
        };
        let other = "Write the path of another folder, best on another disk.";
        if path.exists() && !path.is_dir() {
            self.report_mistake(&spot, "It is a file, and must be a folder.", other);
            return None;
        }
        let own = ["store", "ledger", "files", "responses"].map(|name| store.join(name));
        if own.iter().chain(files.map(|files| &files.path)).any(|own| overlaps(own, &path)) {
            self.report_mistake(
                &spot,
                "It is inside or above an archived folder, and must be a separate one.",
                other,
            );
            return None;
        }
        if export.path.is_some() {
            self.check_folder_creatable(&path, &spot);
        }
        Some(StoreExportSettings {
            path,
            every: (!export.every.0.is_zero()).then_some(export.every.0),
            keep: usize::try_from(export.keep).unwrap_or(usize::MAX),
        })
    }
}
