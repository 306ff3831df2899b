//! Settings that a reload cannot change: a process opens its sockets and folders and starts its threads only once.

use super::super::secret::SecretText;
use super::{
    BucketCredentialSettings, ConsoleSettings, DatabasePassword, FileSettings, LedgerSettings,
    ListenSettings, Settings, SimulatorSettings, SpoolSettings, StorageEngine, StorageSettings,
    StoreExportSettings,
};
use sha2::{Digest, Sha256};

/// Values of the settings that a reload cannot change, by configuration key, as the process started with them.
#[derive(Debug)]
pub struct RestartOnlySettings(Vec<(&'static str, String)>);

impl Settings {
    /// Collects the settings that take effect only at the next start or upgrade. The pattern below names every field,
    /// so that the compiler demands a decision for each new field. The fields that the pattern ignores can be changed
    /// by a reload.
    #[must_use]
    pub fn restart_only(&self) -> RestartOnlySettings {
        let Self {
            listen,
            console,
            storage,
            exports: StoreExportSettings { path: exports, every: _, keep: _ },
            spool: SpoolSettings { path: spool, memory, disk },
            files,
            ledger:
                LedgerSettings {
                    window: _,
                    answers_wait_for_disk: _,
                    debt: _,
                    backlog: _,
                    slow: _,
                    max_clock_lead,
                },
            drain,
            core_dumps,
            threads,
            simulators,
            version: _,
            shared: _,
            responses: _,
            limits: _,
            overload: _,
            routing: _,
            impact: _,
            images: _,
            billing: _,
            invoice: _,
            batches: _,
            document: _,
            compatibility: _,
            grid: _,
            watch_interval: _,
            watched_files: _,
            log: _,
            default_models: _,
            models: _,
            providers: _,
            offers: _,
        } = self;
        let mut values = storage_values(storage);
        values.extend(listen_values(listen));
        values.extend(console_values(console));
        values.extend(file_values(files));
        values.extend([
            ("storage.export.path", exports.display().to_string()),
            ("spool.path", spool.display().to_string()),
            ("spool.memory", memory.to_string()),
            ("spool.disk", disk.to_string()),
            ("ledger.ahead", format!("{max_clock_lead:?}")),
            ("process.threads", threads.to_string()),
            ("process.drain", format!("{drain:?}")),
            ("process.core_dumps", core_dumps.to_string()),
            ("simulated", simulated_providers(simulators)),
        ]);
        RestartOnlySettings(values)
    }
}

/// Returns the digest of a secret, to detect a change.
fn secret_digest(secret: Option<&SecretText>) -> String {
    format!("{:?}", secret.map(|secret| Sha256::digest(secret.reveal())))
}

impl RestartOnlySettings {
    /// Returns the keys of the restart-only settings that differ in `fresh`, a newer configuration.
    #[must_use]
    pub fn changed_keys(&self, fresh: &Settings) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(fresh.restart_only().0);
        pairs.filter(|(now, then)| now.1 != then.1).map(|(now, _)| now.0).collect()
    }
}

/// Returns the addresses of the listeners as text.
fn listen_values(listen: &ListenSettings) -> [(&'static str, String); 3] {
    let ListenSettings { http, https, public_url: _, hosts: _, cors: _, documentation: _, admin } = listen;
    [
        ("listen.http", format!("{http:?}")),
        ("listen.https", format!("{:?}", https.as_ref().map(|https| https.address))),
        ("listen.admin", admin.to_string()),
    ]
}

/// Returns the listeners of the dashboard as text.
fn console_values(console: &ConsoleSettings) -> [(&'static str, String); 2] {
    let ConsoleSettings { listen, public_url: _, hosts: _, tls, openid: _ } = console;
    [("console.listen", format!("{listen:?}")), ("console.tls", tls.is_some().to_string())]
}

/// Returns the settings of the store as text; secrets are replaced by their digests.
fn storage_values(storage: &StorageSettings) -> Vec<(&'static str, String)> {
    let StorageSettings { path, ballast_bytes, engine, fleet, pepper } = storage;
    let (database, password) = database_digests(engine);
    vec![
        ("storage.path", path.display().to_string()),
        ("storage.ballast", ballast_bytes.to_string()),
        ("storage.engine", engine_name(engine).to_owned()),
        ("storage.url", format!("{database:?}")),
        ("storage.password", format!("{password:?}")),
        ("storage.pepper", secret_digest(pepper.as_ref())),
        ("fleet", format!("{fleet:?}")),
    ]
}

const fn engine_name(engine: &StorageEngine) -> &'static str {
    match engine {
        StorageEngine::Folder(engine) => engine.name,
        StorageEngine::Postgres(_) => "postgres",
    }
}

/// Returns digests of the database's URL and of its password (of a password file, the path), to detect a change; `None`
/// for the embedded store, and for a password that is not configured.
fn database_digests(engine: &StorageEngine) -> (Option<String>, Option<String>) {
    let StorageEngine::Postgres(database) = engine else { return (None, None) };
    let digest = |text: &str| format!("{:?}", Sha256::digest(text));
    let password = database.password.as_ref().map(|password| match password {
        DatabasePassword::Text(text) => digest(text.reveal()),
        DatabasePassword::File(path) => path.display().to_string(),
    });
    (Some(digest(database.url.reveal())), password)
}

/// Returns the folder and the bucket of file contents as text; the access key is replaced by digests.
fn file_values(files: &FileSettings) -> [(&'static str, String); 3] {
    let FileSettings { path, store, leftovers, upload: _, disk: _, per_key: _, keep_free: _, retention: _ } =
        files;
    let bucket = store.as_ref().map(|bucket| {
        let digest = |secret: &SecretText| secret_digest(Some(secret));
        let key = match &bucket.credentials {
            BucketCredentialSettings::AccessKey { id, secret } => {
                format!("{} {}", digest(id), digest(secret))
            }
            BucketCredentialSettings::WebIdentity { .. } => String::new(),
        };
        format!("{bucket:?} {key}")
    });
    [
        ("files.path", path.display().to_string()),
        ("files.leftovers", format!("{leftovers:?}")),
        ("files.store", bucket.unwrap_or_default()),
    ]
}

/// Returns the simulated providers as text, without ports. A configured port 0 was replaced by a free port at the
/// start, so ports cannot be compared.
fn simulated_providers(simulators: &[SimulatorSettings]) -> String {
    let simulated = simulators
        .iter()
        .map(|one| (&one.name, one.address.ip(), one.seed, one.first_token, one.tokens_per_second.to_bits()));
    format!("{:?}", simulated.collect::<Vec<_>>())
}
