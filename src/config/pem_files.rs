//! Reader of certificates and keys in PEM files.
//!
//! A key pair is validated before it is used: the key must belong to the certificate.

use penstock_regular_file::{MAX_PEM_BYTES, read_regular_file};
use std::path::Path;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, RootCertStore};

/// Reason why a certificate chain and its key cannot be used, with a sentence that names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPairError {
    /// The certificate chain cannot be used.
    Certificate(String),
    /// The key cannot be used.
    Key(String),
    /// The key does not belong to the certificate.
    Mismatch(String),
}

impl std::fmt::Display for KeyPairError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Certificate(why) | Self::Key(why) | Self::Mismatch(why)) = self;
        f.write_str(why)
    }
}

impl From<KeyPairError> for String {
    fn from(error: KeyPairError) -> Self {
        error.to_string()
    }
}

/// Reads a certificate chain and its key from PEM files, and checks that they belong together.
///
/// # Errors
/// Returns the reason why they cannot be used.
pub fn read_key_pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, KeyPairError> {
    let (chain, private) = read_unchecked_key_pair(certificate, key)?;
    check_key_pair((certificate, key), chain, private)
}

/// Certificate chain with its private key.
pub type KeyPair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a certificate chain and its key like [`read_key_pair`]; returns their contents.
///
/// # Errors
/// Same as [`read_key_pair`].
pub fn read_key_pair_contents(certificate: &Path, key: &Path) -> Result<KeyPair, KeyPairError> {
    let (chain, private) = read_unchecked_key_pair(certificate, key)?;
    check_key_pair((certificate, key), chain.clone(), private.clone_key())?;
    Ok((chain, private))
}

/// Checks that a PEM file has at least one certificate that can be a root; others in it are ignored.
///
/// # Errors
/// Returns the reason why none can be used.
pub fn check_root_bundle(path: &Path) -> Result<(), String> {
    let (usable, _) = RootCertStore::empty().add_parsable_certificates(read_certificates(path)?);
    if usable > 0 { Ok(()) } else { Err(unusable(path, &"it contains no usable certificate")) }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{} cannot be used: {why}.", path.display())
}

fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    read_regular_file(path, MAX_PEM_BYTES).map_err(|why| unusable(path, &why))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(&read_pem(path)?).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| unusable(path, &error))?;
    if found.is_empty() { Err(unusable(path, &"it contains no certificate")) } else { Ok(found) }
}

fn read_unchecked_key_pair(certificate: &Path, key: &Path) -> Result<KeyPair, KeyPairError> {
    let chain = read_certificates(certificate).map_err(KeyPairError::Certificate)?;
    let private = read_pem(key)
        .and_then(|text| PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(key, &error)));
    Ok((chain, private.map_err(KeyPairError::Key)?))
}

/// Checks that a key can sign and belongs to the certificate; the paths are those of the error.
fn check_key_pair(
    (certificate, key): (&Path, &Path),
    chain: Vec<CertificateDer<'static>>,
    private: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, KeyPairError> {
    let provider: CryptoProvider = ring::default_provider();
    let signing = provider.key_provider.load_private_key(private);
    let signing = signing.map_err(|error| KeyPairError::Key(unusable(key, &error)))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|error| match error {
        Error::InconsistentKeys(_) => KeyPairError::Mismatch(format!(
            "The key {} does not belong to the certificate {}.",
            key.display(),
            certificate.display()
        )),
        error => KeyPairError::Certificate(unusable(certificate, &error)),
    })?;
    Ok(certified)
}

/// Reads the certificates of certificate authorities from a PEM file.
///
/// # Errors
/// Returns a sentence that says why they cannot be used.
pub fn read_root_certificates(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

/// Reads the certificates of certificate authorities like [`read_root_certificates`]; returns their contents.
///
/// # Errors
/// Same as [`read_root_certificates`].
pub fn read_root_certificate_contents(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = read_certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        roots.add(certificate.clone()).map_err(|error| unusable(path, &error))?;
    }
    Ok(found)
}
