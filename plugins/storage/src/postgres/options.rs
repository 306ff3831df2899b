//! Options of a PostgreSQL store: address, credentials and TLS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use penstock_regular_file::{MAX_PEM_BYTES, read_regular_file, read_text_file};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::StoreError;

/// Maximum size of a password file, in bytes.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;
/// Timeout of a TCP connection to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Port for URLs that do not contain one.
const DEFAULT_PORT: u16 = 5_432;
/// Parameters that tokio-postgres reads from a URL.
const URL_PARAMETERS: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Source of the password of the database's user.
#[derive(Clone, Default)]
pub enum PasswordSource {
    /// Password that the database URL contains, if it has one.
    #[default]
    Url,
    /// Password in plain text.
    Text(String),
    /// File that is read for every connection, so that the password can change while the store is open.
    File(PathBuf),
}

/// Options of a store in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresOptions {
    /// URL as for libpq: `postgresql://user@host:5432/database?sslmode=verify-full&sslrootcert=/etc/ca.pem`.
    pub url: String,
    /// Source of the password.
    pub password: PasswordSource,
    /// Schema of the tables, of lower-case letters, digits and `_`. Default `penstock`.
    pub schema: String,
    /// Folder of this process's lock and identity, created if missing. After a crash, the next process with the same
    /// folder takes over the database at once; a process with another folder waits for `takeover_after`.
    pub folder: PathBuf,
    /// Number of processes that may use the database at the same time. Default [`StoreSharing::Exclusive`].
    pub sharing: StoreSharing,
    /// Time without a heartbeat after which another process counts as dead. Default 10 s. Each process sends ten
    /// heartbeats in this time.
    pub takeover_after: Duration,
    /// Timeout of a call: `apply` then returns `Stuck`, a read `Unreachable`. Default 30 s.
    pub timeout: Duration,
    /// Time without a connection, or without an answer to a group of transactions, after which calls fail immediately.
    /// Default 5 s.
    pub fail_fast_after: Duration,
}

/// Sharing mode of a database: one process, or several at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSharing {
    /// One process. Opening fails if another live process uses the database; if that process is dead, the new one
    /// takes over the database.
    Exclusive,
    /// Several processes. Each transaction locks the rows of its guards until it commits, also rows that do not
    /// exist.
    Shared,
}

impl PostgresOptions {
    /// Creates the options of a database with their defaults.
    #[must_use]
    pub fn new(url: impl Into<String>, folder: impl Into<PathBuf>) -> PostgresOptions {
        PostgresOptions {
            url: url.into(),
            password: PasswordSource::Url,
            schema: "penstock".to_owned(),
            folder: folder.into(),
            sharing: StoreSharing::Exclusive,
            takeover_after: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            fail_fast_after: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &"***")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Connection settings, parsed from the options.
#[derive(Clone)]
pub(super) struct ConnectSettings {
    config: Config,
    password: PasswordSource,
    /// TLS configuration; `None` for connections without TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// True if the database server is on this machine.
    pub(super) is_local: bool,
}

/// TLS parameters of a URL.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl ConnectSettings {
    /// Parses the options.
    ///
    /// # Errors
    /// Returns `Database` with a description that does not repeat the URL.
    pub(super) fn new(options: &PostgresOptions) -> Result<ConnectSettings, StoreError> {
        if !(options.url.starts_with("postgresql://") || options.url.starts_with("postgres://")) {
            return Err(option_error("its URL has to start with postgresql://"));
        }
        let schema = options.schema.as_bytes();
        let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
        if schema.is_empty() || schema.len() > 40 || !schema.iter().all(is_name) {
            return Err(option_error("its schema has to be of lower-case letters, digits and _"));
        }
        let (url, tls) = split_tls_parameters(&options.url);
        let mut config: Config = url.parse().map_err(|_| url_error(&url))?;
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(option_error("its URL has no name of a database"));
        }
        let is_local = config.get_hosts().iter().all(is_local_host);
        let tls = match tls.mode.as_deref() {
            None if is_local => None,
            Some("disable") => None,
            None | Some("verify-full") => Some(Arc::new(tls_config(&tls)?)),
            Some(_) => return Err(option_error("sslmode has to be verify-full, or disable")),
        };
        config
            .ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable })
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .application_name("penstock")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(options.timeout)
            .keepalives_idle(Duration::from_secs(10));
        Ok(ConnectSettings { config, password: options.password.clone(), tls, is_local })
    }

    /// Returns the hosts and ports of the server, without credentials.
    pub(super) fn address(&self) -> String {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let address = |(index, host): (usize, &Host)| match host {
            Host::Unix(folder) => format!("{}, port {}", folder.display(), port(index)),
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
            Host::Tcp(name) => format!("{name}:{}", port(index)),
        };
        hosts.iter().enumerate().map(address).collect::<Vec<_>>().join(", ")
    }

    /// Returns the name of the database.
    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// Returns the settings of a new connection, with the current password.
    ///
    /// # Errors
    /// Returns `Database` if the password file cannot be read.
    pub(super) fn config(&self) -> Result<Config, StoreError> {
        let mut config = self.config.clone();
        match &self.password {
            PasswordSource::Url => {}
            PasswordSource::Text(password) => drop(config.password(password)),
            PasswordSource::File(path) => {
                let text = read_text_file(path, MAX_PASSWORD_BYTES).map_err(|why| {
                    option_error(&format!("the file of its password cannot be read: {why}"))
                })?;
                // Some editors write a byte order mark at the start of a file.
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                config.password(text.trim_end_matches(['\r', '\n']));
            }
        }
        Ok(config)
    }
}

/// Describes a URL that cannot be parsed. The description repeats the names of its parameters, but not their values.
fn url_error(url: &str) -> StoreError {
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters).split('&');
    let names = parameters.map(|parameter| parameter.split('=').next().unwrap_or_default());
    let is_name = |name: &&str| {
        !name.is_empty()
            && name.len() <= 40
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    match names.filter(is_name).find(|name| !URL_PARAMETERS.contains(name)) {
        Some(name) => option_error(&format!("its URL has the parameter {name}, which does not exist")),
        None => option_error(
            "its URL is not of the form postgresql://user@host:5432/database?sslmode=verify-full",
        ),
    }
}

/// Creates the error for an invalid option, with this description.
pub(super) fn option_error(description: &str) -> StoreError {
    StoreError::Database { what: description.to_owned() }
}

fn is_local_host(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Removes the TLS parameters that tokio-postgres does not know from the URL. Returns the rest of the URL and these
/// parameters. Paths in them are not percent-decoded.
fn split_tls_parameters(url: &str) -> (String, TlsParameters) {
    let mut tls = TlsParameters::default();
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), tls) };
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => tls.mode = Some(mode.to_owned()),
            Some(("sslrootcert", path)) => tls.root = Some(path.into()),
            Some(("sslcert", path)) => tls.certificate = Some(path.into()),
            Some(("sslkey", path)) => tls.key = Some(path.into()),
            _ => rest.push(pair),
        }
    }
    (format!("{base}?{}", rest.join("&")), tls)
}

/// Creates the TLS configuration. The server's certificate must be valid for its host name, by the given root
/// certificates or by those of the operating system.
fn tls_config(tls: &TlsParameters) -> Result<ClientConfig, StoreError> {
    let mut roots = RootCertStore::empty();
    let certificates = match &tls.root {
        Some(path) => read_certificates(path)?,
        None => rustls_native_certs::load_native_certs().map_err(|error| {
            option_error(&format!("the system's root certificates cannot be read: {error}"))
        })?,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(option_error("there is no root certificate to verify its certificate with"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| option_error(&format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots);
    match (&tls.certificate, &tls.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let private = PrivateKeyDer::from_pem_slice(&read_pem(key)?).map_err(|_| not_pem(key))?;
            builder
                .with_client_auth_cert(read_certificates(certificate)?, private)
                .map_err(|error| option_error(&format!("its client certificate cannot be used: {error}")))
        }
        _ => Err(option_error("sslcert and sslkey have to be given together")),
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    CertificateDer::pem_slice_iter(&read_pem(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| not_pem(path))
        .and_then(|found| if found.is_empty() { Err(not_pem(path)) } else { Ok(found) })
}

fn read_pem(path: &Path) -> Result<Vec<u8>, StoreError> {
    read_regular_file(path, MAX_PEM_BYTES)
        .map_err(|why| option_error(&format!("the file {} cannot be read: {why}", path.display())))
}

fn not_pem(path: &Path) -> StoreError {
    option_error(&format!("the file {} cannot be read as PEM", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<ConnectSettings, String> {
        ConnectSettings::new(&PostgresOptions::new(url, "unused")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_remote_server_is_verified_unless_tls_is_disabled() {
        assert!(parsed("postgresql://u:p@db.example.eu/x").unwrap().tls.is_some());
        assert!(parsed("postgresql://u@db.example.eu/x?sslmode=disable").unwrap().tls.is_none());
        for local in
            ["postgresql://u@127.0.0.1/x", "postgres:///x?host=/run/postgresql", "postgres://[::1]/x"]
        {
            let settings = parsed(local).unwrap();
            assert!(settings.tls.is_none() && settings.is_local, "{local}");
        }
        assert!(parsed("postgresql://u@127.0.0.1/x?sslmode=verify-full").unwrap().tls.is_some());
    }

    #[test]
    fn an_unsafe_or_malformed_url_is_refused_without_repeating_it() {
        for url in [
            "mysql://u:secret@h/x",
            "postgresql://u:secret@h/x?sslmode=prefer",
            "postgresql://u:secret@h/x?sslmode=require",
            "postgresql://u:secret@h",
            "postgresql://u:secret@h:port/x",
            "postgresql://u:secret@h/x?sslrootcert=/none.pem",
            "postgresql://u:secret@h/x?sslcert=/none.pem",
            "postgresql://u:secret@h/x?ssl_mode=secret",
        ] {
            let error = parsed(url).map(|_| ()).unwrap_err();
            assert!(error.starts_with("the database cannot be used: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_named_and_an_address_has_no_credentials() {
        let error = parsed("postgresql://u@h/x?connect_timeout=5&ssl_mode=disable").map(|_| ()).unwrap_err();
        assert!(error.ends_with("the parameter ssl_mode, which does not exist"), "{error}");
        let settings = parsed("postgresql://u:p@10.0.0.1:5433,[::1]/x?sslmode=disable").unwrap();
        assert_eq!((settings.address().as_str(), settings.database()), ("10.0.0.1:5433, [::1]:5432", "x"));
        assert_eq!(parsed("postgres:///x?host=/run/pg").unwrap().address(), "/run/pg, port 5432");
    }

    #[test]
    fn a_password_file_is_read_for_every_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let mut options = PostgresOptions::new("postgresql://u@127.0.0.1/x", "unused");
        options.password = PasswordSource::File(path.clone());
        let settings = ConnectSettings::new(&options).unwrap();
        assert!(settings.config().is_err());
        for password in ["one", "two"] {
            for text in [format!("{password}\n"), format!("\u{feff}{password}\r\n")] {
                std::fs::write(&path, text).unwrap();
                assert_eq!(settings.config().unwrap().get_password(), Some(password.as_bytes()));
            }
        }
    }

    #[test]
    fn devices_and_large_files_are_refused_without_being_read() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        std::fs::File::create(&large).unwrap().set_len(MAX_PEM_BYTES + 1).unwrap();
        for (path, why) in [(Path::new("/dev/zero"), "must be a regular file"), (&large, "too large")] {
            let shown = path.display();
            let url = |parameter| format!("postgresql://u@db.example.eu/x?{parameter}={shown}");
            for url in [url("sslrootcert"), format!("{}&sslkey={shown}", url("sslcert"))] {
                let error = parsed(&url).map(|_| ()).unwrap_err();
                assert!(error.contains(why), "{error}");
            }
            let mut options = PostgresOptions::new("postgresql://u@127.0.0.1/x", "unused");
            options.password = PasswordSource::File(path.to_owned());
            let error = ConnectSettings::new(&options).unwrap().config().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
