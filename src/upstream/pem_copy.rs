//! In-memory copies of PEM files for connectors. Pingora opens a path without checking the kind, the size and the
//! contents of the file, and panics if it cannot use them. So it gets the path of a copy that has only valid parts.

use crate::config::pem_files::{read_key_pair_contents, read_root_certificate_contents};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Length of a line of PEM in characters.
const LINE_LENGTH: usize = 64;

/// Copy of a PEM file, which can be opened by [`PemCopy::path`] while this value exists.
pub struct PemCopy {
    bytes: Vec<u8>,
    /// In-memory file with the bytes.
    file: File,
}

impl PemCopy {
    /// Copies the certificates of a file of certificate authorities.
    ///
    /// # Errors
    /// Returns a sentence if the file cannot be used as such, or if it cannot be copied.
    pub fn of_root_certificates(path: &Path) -> Result<Self, String> {
        Self::new(certificates_pem(&read_root_certificate_contents(path)?))
    }

    /// Copies a certificate chain and its private key.
    ///
    /// # Errors
    /// Returns a sentence if the files cannot be used, do not belong together, or cannot be copied.
    pub fn of_key_pair(certificate: &Path, key: &Path) -> Result<(Self, Self), String> {
        let (chain, private) = read_key_pair_contents(certificate, key)?;
        Ok((Self::new(certificates_pem(&chain))?, Self::new(private_key_pem(&private))?))
    }

    fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let copied = || {
            let mut file = File::from(memfd_create("pem", MemfdFlags::CLOEXEC)?);
            file.write_all(&bytes)?;
            // The connector opens the path, which needs a mounted /proc.
            File::open(link(&file))?;
            Ok::<File, std::io::Error>(file)
        };
        let file = copied().map_err(|error| format!("Certificates cannot be copied in memory: {error}."))?;
        Ok(Self { bytes, file })
    }

    /// Returns the copied bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the path of the copy.
    pub fn path(&self) -> String {
        link(&self.file).to_string_lossy().into_owned()
    }
}

fn link(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn certificates_pem(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    chain.iter().flat_map(|certificate| pem("CERTIFICATE", certificate)).collect()
}

fn private_key_pem(key: &PrivateKeyDer<'_>) -> Vec<u8> {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    pem(label, key.secret_der())
}

/// Encodes a section of PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n").into_bytes();
    for line in encoded.as_bytes().chunks(LINE_LENGTH) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pingora_core::connectors::{ConnectorOptions, TransportConnector};

    /// Returns a certificate and its key, as PEM.
    fn key_pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.key_pair.serialize_pem())
    }

    #[test]
    fn a_copy_stays_when_the_file_changes_and_none_is_made_of_an_unusable_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let (certificate, key) = key_pair();
        std::fs::write(&path, &certificate).unwrap();
        let copy = PemCopy::of_root_certificates(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        for _ in 0..2 {
            let read = std::fs::read(copy.path()).unwrap();
            assert_eq!(
                (read.as_slice(), read.as_slice()),
                (copy.bytes(), certificate.replace('\r', "").as_bytes())
            );
        }
        let broken = certificate.replace("MII", "AAA");
        for contents in ["", "another", &key, &broken] {
            std::fs::write(&path, contents).unwrap();
            assert!(PemCopy::of_root_certificates(&path).is_err(), "{contents}");
        }
        for path in [Path::new("/dev/zero"), &folder.path().join("none")] {
            assert!(PemCopy::of_root_certificates(path).is_err());
        }
    }

    #[test]
    fn no_copy_makes_a_connector_panic() {
        let folder = tempfile::tempdir().unwrap();
        let [roots, certificate, key] = ["ca", "certificate", "key"].map(|name| folder.path().join(name));
        let (pem, private) = key_pair();
        // A connector refuses a file of certificate authorities that has a key too.
        std::fs::write(&roots, format!("{private}{pem}")).unwrap();
        std::fs::write(&certificate, format!("comment\n{pem}")).unwrap();
        std::fs::write(&key, format!("{pem}{private}")).unwrap();
        let pair = PemCopy::of_key_pair(&certificate, &key).unwrap();
        let roots = PemCopy::of_root_certificates(&roots).unwrap();
        let mut options = ConnectorOptions::new(1);
        options.ca_file = Some(roots.path());
        options.cert_key_file = Some((pair.0.path(), pair.1.path()));
        TransportConnector::new(Some(options));
        std::fs::write(&key, key_pair().1).unwrap();
        let why = PemCopy::of_key_pair(&certificate, &key).err().unwrap();
        assert!(why.contains("does not belong"), "{why}");
    }
}
