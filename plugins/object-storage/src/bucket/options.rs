//! Options of a bucket: address, credentials, TLS and time limits.

use penstock_regular_file::{MAX_PEM_BYTES, read_regular_file};
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Position of the bucket's name in the URLs of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// Bucket in the path: `https://s3.example.eu/bucket/object`.
    #[default]
    Path,
    /// Bucket in the host name: `https://bucket.s3.example.eu/object`.
    VirtualHost,
}

/// Credentials of a bucket.
#[derive(Clone)]
pub enum BucketCredentials {
    /// Access key that does not expire.
    AccessKey {
        /// ID of the key.
        id: String,
        /// Secret of the key.
        secret: String,
    },
    /// Temporary access keys, which a security token service issues in exchange for a token
    /// (`AssumeRoleWithWebIdentity`). Another service issues and renews this token.
    WebIdentity(WebIdentity),
}

/// Identity that is exchanged for temporary access keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebIdentity {
    /// File with the token; the file is read again for each exchange.
    pub token_file: PathBuf,
    /// Role that the keys have, such as `arn:aws:iam::123456789012:role/penstock`.
    pub role: String,
    /// URL of the security token service.
    pub endpoint: String,
}

/// Options of a bucket.
#[derive(Clone)]
pub struct BucketOptions {
    /// URL of the store without the bucket, such as `https://s3.example.eu`.
    pub endpoint: String,
    /// Name of the bucket, which must exist.
    pub bucket: String,
    /// Region, which is part of each signature.
    pub region: String,
    /// Folder in the bucket; empty for none.
    pub prefix: String,
    /// Position of the bucket's name in the URLs of objects.
    pub style: AddressingStyle,
    /// Credentials that sign requests.
    pub credentials: BucketCredentials,
    /// PEM file of the root certificates; `None` for the certificates of the operating system.
    pub ca_file: Option<PathBuf>,
    /// Time limits.
    pub timeouts: BucketTimeouts,
}

/// Time limits of requests to a bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketTimeouts {
    /// Timeout of a connection attempt.
    pub connect: Duration,
    /// Timeout of a request other than `PUT` and `POST`, including its response of at most 8 MiB.
    pub request: Duration,
    /// Timeout of a `PUT` or `POST` request, which may send a part of an object.
    pub upload: Duration,
    /// Time from the first attempt of a request after which it is not sent again.
    pub retry_period: Duration,
}

impl Default for BucketTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            request: Duration::from_secs(10),
            upload: Duration::from_secs(30),
            retry_period: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketOptions")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("credentials", &"***")
            .finish_non_exhaustive()
    }
}

impl BucketOptions {
    /// Returns true if connections to the store or to the token service use TLS.
    pub(super) fn uses_any_tls(&self) -> bool {
        self.addresses().any(is_https)
    }

    /// Returns true if all connections use TLS.
    pub(super) fn uses_only_tls(&self) -> bool {
        self.addresses().all(is_https)
    }

    /// Returns the URLs of the store and of the token service.
    fn addresses(&self) -> impl Iterator<Item = &str> {
        let token_service = match &self.credentials {
            BucketCredentials::AccessKey { .. } => None,
            BucketCredentials::WebIdentity(identity) => Some(identity.endpoint.as_str()),
        };
        std::iter::once(self.endpoint.as_str()).chain(token_service)
    }

    /// Returns the URL of the store, with the bucket in the host name if the style requires that.
    pub(super) fn base_url(&self) -> String {
        let endpoint = self.endpoint.trim_end_matches('/');
        match (self.style, endpoint.split_once("://")) {
            (AddressingStyle::VirtualHost, Some((scheme, host))) => {
                format!("{scheme}://{}.{host}", self.bucket)
            }
            _ => endpoint.to_owned(),
        }
    }

    /// Returns the TLS configuration: the certificates of the store and of the token service must be valid for their
    /// host names, by the given root certificates or those of the system.
    ///
    /// # Errors
    /// Returns a description if there is no usable root certificate.
    pub(super) fn tls_config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let certificates: Vec<CertificateDer<'static>> = match (&self.ca_file, self.uses_any_tls()) {
            (_, false) => Vec::new(),
            (Some(path), true) => read_certificates(path)?,
            (None, true) => rustls_native_certs::load_native_certs()?,
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() && self.uses_any_tls() {
            let what = "there is no root certificate to verify the store of files with";
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::other)?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

fn is_https(url: &str) -> bool {
    url.starts_with("https://")
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidInput, what);
    let bytes = read_regular_file(path, MAX_PEM_BYTES)
        .map_err(|why| invalid(format!("the file {} cannot be read: {why}", path.display())))?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<_, _>>().unwrap_or_default();
    if found.is_empty() {
        return Err(invalid(format!("the file {} cannot be read as PEM", path.display())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(style: AddressingStyle) -> BucketOptions {
        BucketOptions {
            endpoint: "https://s3.example.eu:8443/".to_owned(),
            bucket: "penstock".to_owned(),
            region: "fr-par".to_owned(),
            prefix: String::new(),
            style,
            credentials: BucketCredentials::AccessKey { id: "id".to_owned(), secret: "secret".to_owned() },
            ca_file: None,
            timeouts: BucketTimeouts::default(),
        }
    }

    #[test]
    fn the_bucket_is_in_the_host_name_only_if_the_style_wants_it() {
        assert_eq!(options(AddressingStyle::Path).base_url(), "https://s3.example.eu:8443");
        assert_eq!(options(AddressingStyle::VirtualHost).base_url(), "https://penstock.s3.example.eu:8443");
    }

    #[test]
    fn tls_is_used_for_either_address_and_required_for_both() {
        let with = |store: &str, service: &str| {
            let identity = WebIdentity {
                token_file: PathBuf::from("token"),
                role: "role".to_owned(),
                endpoint: format!("{service}://localhost:9000"),
            };
            let credentials = BucketCredentials::WebIdentity(identity);
            let endpoint = format!("{store}://localhost:8333");
            let options = BucketOptions { endpoint, credentials, ..options(AddressingStyle::Path) };
            (options.uses_any_tls(), options.uses_only_tls())
        };
        assert_eq!(with("http", "http"), (false, false));
        assert_eq!(with("http", "https"), (true, false));
        assert_eq!(with("https", "http"), (true, false));
        assert_eq!(with("https", "https"), (true, true));
        let by_key = options(AddressingStyle::Path);
        assert!(by_key.uses_any_tls() && by_key.uses_only_tls());
    }

    #[test]
    fn debug_output_has_no_secret() {
        let text = format!("{:?}", options(AddressingStyle::Path));
        assert!(!text.contains("\"secret\"") && !text.contains("\"id\""), "{text}");
    }
}
