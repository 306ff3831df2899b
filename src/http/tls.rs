//! TLS of listeners: certificates that can be replaced while connections are accepted, client certificates, TLS
//! versions. Also checks the certificate files of providers.
//!
//! A key pair is validated before it is used: the key must belong to the certificate. A handshake that has begun is
//! completed with the old configuration.

use crate::config::pem_files::{read_key_pair, read_root_certificates};
use crate::config::settings::{ClientCertificatePolicy, Settings, TlsSettings, TlsVersion};
use pingora_core::listeners::tls::Acceptor;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::SupportedProtocolVersion;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// TLS configuration of a listener.
pub struct TlsConfig {
    /// Acceptor of TLS connections.
    pub acceptor: Acceptor,
    /// Expiry of the certificate in Unix seconds; 0 if it is unknown.
    pub expires: i64,
}

impl TlsConfig {
    /// Loads and validates the certificate, its key and the certificates of client authorities. `protocols` are the
    /// application protocols that are offered to clients (ALPN), the preferred first.
    ///
    /// # Errors
    /// Returns a sentence that names the file that cannot be used.
    pub fn from_files(https: &TlsSettings, protocols: &[&[u8]]) -> Result<Self, String> {
        let certified = read_key_pair(&https.certificate, &https.key)?;
        let expires = validity(&certified).map_or(0, |[_, end]| end.try_into().unwrap_or(i64::MAX));
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&protocol_versions(https.min_tls))
            .map_err(|error| format!("TLS cannot be configured: {error}."))?;
        let builder = match &https.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(read_root_certificates(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match https.client_certificate {
                    ClientCertificatePolicy::Required => verifier,
                    ClientCertificatePolicy::Optional => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| format!("{} cannot be used: {error}.", path.display()))?,
                )
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertificate(Arc::new(certified))));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Self { acceptor: Acceptor::from_server_config(Arc::new(config)), expires })
    }
}

/// TLS configurations of the listeners, if they use TLS.
#[derive(Clone, Default)]
pub struct ListenerTlsConfigs {
    /// TLS configuration of the public listener.
    pub public: Option<Arc<TlsConfig>>,
    /// TLS configuration of the account holders' dashboard.
    pub dashboard: Option<Arc<TlsConfig>>,
}

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Listener that may have TLS.
struct ListenerSettings<'s> {
    /// Key of the TLS settings in the configuration file.
    key: &'static str,
    tls: Option<&'s TlsSettings>,
    /// Application protocols (ALPN).
    protocols: &'static [&'static [u8]],
}

fn listeners(settings: &Settings) -> [ListenerSettings<'_>; 2] {
    let https = settings.listen.https.as_ref().map(|https| &https.tls);
    [
        ListenerSettings { key: "listen.https", tls: https, protocols: &[HTTP2, HTTP1] },
        ListenerSettings { key: "console.tls", tls: settings.console.tls.as_ref(), protocols: &[HTTP1] },
    ]
}

/// Loads the TLS configurations of the listeners.
///
/// # Errors
/// Returns a sentence that names the file that cannot be used.
pub fn load_listener_tls_configs(settings: &Settings) -> Result<ListenerTlsConfigs, String> {
    let [public, dashboard] = listeners(settings).map(|ListenerSettings { key, tls, protocols }| {
        let read = |tls| TlsConfig::from_files(tls, protocols).map_err(|why| format!("{key}: {why}"));
        tls.map(read).transpose().map(|loaded| loaded.map(Arc::new))
    });
    Ok(ListenerTlsConfigs { public: public?, dashboard: dashboard? })
}

/// Validates the files of certificates and keys that the configuration names: those of the listeners, of OpenID Connect
/// and of the providers. Returns a warning for each certificate of a listener or a provider that has expired or is not
/// valid yet, which is not an error of the configuration. `now` is in Unix seconds.
///
/// # Errors
/// Returns a sentence for each file that cannot be used.
pub fn check_certificate_files(settings: &Settings, now: u64) -> Result<Vec<String>, Vec<String>> {
    let (mut warnings, mut mistakes) = (Vec::new(), Vec::new());
    let mut warn_if_invalid = |setting: &str, path: &Path, validity: Option<[u64; 2]>| {
        let Some([start, end]) = validity else { return };
        let (verb, day) = match (now < start, now >= end) {
            (true, _) => ("is not valid before", start),
            (false, true) => ("expired on", end),
            (false, false) => return,
        };
        let day = crate::time::format::format_day(day);
        warnings.push(format!("{setting}: The certificate {} {verb} {day}.", path.display()));
    };
    for ListenerSettings { key: setting, tls, protocols } in listeners(settings) {
        let Some(https) = tls else { continue };
        let own = read_key_pair(&https.certificate, &https.key).map(|pair| validity(&pair));
        let clients = https.client_ca.as_deref().map_or(Ok(()), |ca| read_root_certificates(ca).map(drop));
        // A complete TLS configuration can be built only from valid files.
        let complete = if own.is_ok() && clients.is_ok() {
            TlsConfig::from_files(https, protocols).map(drop)
        } else {
            Ok(())
        };
        if let Ok(validity) = &own {
            warn_if_invalid(setting, &https.certificate, *validity);
        }
        let errors = [own.err().map(String::from), clients.err(), complete.err()].into_iter().flatten();
        mistakes.extend(errors.map(|why| format!("{setting}: {why}")));
    }
    if let Some(Err(why)) =
        settings.console.openid.as_ref().and_then(|openid| openid.ca.as_deref()).map(read_root_certificates)
    {
        mistakes.push(format!("console.oidc.ca: {why}"));
    }
    for provider in &settings.providers {
        let setting = |key: &str| format!("providers.{}.{key}", provider.id);
        if let Some(Err(why)) = provider.ca.as_deref().map(read_root_certificates) {
            mistakes.push(format!("{}: {why}", setting("ca")));
        }
        if let Some((certificate, key)) = &provider.client {
            let at = setting("client_certificate");
            match read_key_pair(certificate, key) {
                Ok(pair) => warn_if_invalid(&at, certificate, validity(&pair)),
                Err(why) => mistakes.push(format!("{at}: {why}")),
            }
        }
    }
    if mistakes.is_empty() { Ok(warnings) } else { Err(mistakes) }
}

/// Resolver with one certificate for every name.
#[derive(Debug)]
struct SingleCertificate(Arc<CertifiedKey>);

impl tokio_rustls::rustls::server::ResolvesServerCert for SingleCertificate {
    fn resolve(&self, _hello: tokio_rustls::rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn protocol_versions(min_tls: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    match min_tls {
        TlsVersion::Tls12 => vec![&TLS12, &TLS13],
        TlsVersion::Tls13 => vec![&TLS13],
    }
}

/// Returns the start and the end of the validity of the leaf certificate, in Unix seconds; `None` if the certificate
/// cannot be parsed.
fn validity(certified: &CertifiedKey) -> Option<[u64; 2]> {
    let leaf = certified.cert.first()?;
    let (_, read) = X509Certificate::from_der(leaf).ok()?;
    let validity = read.validity();
    let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or_default();
    Some([seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp())])
}

#[cfg(test)]
mod tests;
