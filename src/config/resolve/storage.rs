//! `[storage]`: checks of the folder, the database and the pepper.

use super::super::raw::{ConfigFile, StorageEngineName};
use super::super::settings::{DatabasePassword, DatabaseSettings, StorageEngine, StorageSettings};
use super::SettingsResolver;
use super::key_path::KeyPath;

impl SettingsResolver<'_> {
    /// Resolves `[storage]` and `[fleet]`; `None` if a secret, the database or the fleet has a mistake. Other mistakes
    /// are only reported: a path that is a file, and a pepper of a wrong format.
    pub fn resolve_storage(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<StorageSettings> {
        let spot = top.child("storage");
        let path = spot.child("path").resolve_file_path(&raw.storage.path);
        if path.exists() && !path.is_dir() {
            self.report_mistake(
                &spot.child("path"),
                "It is a file, and must be a folder.",
                "Write the path of a folder, or of one to be made.",
            );
        }
        if !path.exists() || path.is_dir() {
            self.check_folder_creatable(&path, &spot.child("path"));
        }
        let at = spot.child("pepper");
        let pepper = raw.storage.pepper.as_ref().map(|reference| self.read_secret(reference, &at));
        if let Some(Some(pepper)) = &pepper {
            let text = pepper.reveal();
            if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                self.report_secret_mistake(
                    &at,
                    "It must be 64 hexadecimal digits (32 bytes).",
                    "Generate one with `openssl rand -hex 32` and keep it: without it no key is valid any more.",
                );
            }
        }
        let engine = self.storage_engine(raw, &spot);
        let fleet = self.resolve_fleet(raw, top);
        let pepper = pepper.map_or(Some(None), |pepper| pepper.map(Some))?;
        Some(StorageSettings {
            path,
            ballast_bytes: raw.storage.ballast.0,
            engine: engine?,
            fleet: fleet?,
            pepper,
        })
    }

    fn storage_engine(&mut self, raw: &ConfigFile, spot: &KeyPath<'_>) -> Option<StorageEngine> {
        let storage = &raw.storage;
        match (storage.engine, &storage.url) {
            (StorageEngineName::Folder(engine), None) if storage.password.is_none() => {
                Some(StorageEngine::Folder(engine))
            }
            (StorageEngineName::Folder(_), _) => {
                let key = if storage.url.is_some() { "url" } else { "password" };
                self.report_secret_mistake(
                    &spot.child(key),
                    "The embedded store has no database.",
                    "Remove it, or write `engine = \"postgres\"`.",
                );
                None
            }
            (StorageEngineName::Postgres, None) if self.is_reported(&["storage.url"]) => None,
            (StorageEngineName::Postgres, None) => {
                self.report_mistake(
                    &spot.child("engine"),
                    "A PostgreSQL store needs the URL of its database.",
                    "Write `url = { env = \"PENSTOCK_DATABASE\" }` or `url = { file = \"…\" }`.",
                );
                None
            }
            (StorageEngineName::Postgres, Some(url)) => {
                let url = self.read_unicode_secret(url, &spot.child("url"));
                let at = spot.child("password");
                let password = match &storage.password {
                    None => Some(None),
                    Some(reference) => self.read_unicode_secret(reference, &at).map(|text| {
                        Some(match &reference.file {
                            Some(file) => DatabasePassword::File(at.child("file").resolve_file_path(file)),
                            None => DatabasePassword::Text(text),
                        })
                    }),
                };
                Some(StorageEngine::Postgres(DatabaseSettings { url: url?, password: password? }))
            }
        }
    }
}
