//! Checks of the certificate and key files that the configuration refers to.

use super::super::pem_files::{KeyPairError, check_root_bundle, read_key_pair, read_root_certificates};
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::secrets::UNREADABLE_FILE_REMEDY;
use penstock_regular_file::{MAX_PEM_BYTES, read_text_file};
use std::path::{Path, PathBuf};

/// Remedy for a file that is not usable as PEM.
const PEM_REMEDY: &str = "It must be PEM; `openssl x509` and `openssl pkey` turn other forms into it.";

/// Path of a file as written, with its key.
pub type WrittenFile<'a> = (&'a str, KeyPath<'a>);

impl SettingsResolver<'_> {
    /// Returns the path of a file of certificate authorities after checking that it can be used; `None` after a mistake.
    pub fn check_ca_file(&mut self, written: &str, spot: &KeyPath<'_>) -> Option<PathBuf> {
        self.check_roots(written, spot, |path| read_root_certificates(path).map(drop))
    }

    /// Returns the path of a bundle of certificate authorities like [`Self::check_ca_file`], but it may have certificates
    /// that cannot be used, beside one that can.
    pub fn check_ca_bundle(&mut self, written: &str, spot: &KeyPath<'_>) -> Option<PathBuf> {
        self.check_roots(written, spot, check_root_bundle)
    }

    fn check_roots(
        &mut self,
        written: &str,
        spot: &KeyPath<'_>,
        check: impl Fn(&Path) -> Result<(), String>,
    ) -> Option<PathBuf> {
        let path = self.check_pem_file(written, "CERTIFICATE", spot)?;
        match check(&path) {
            Ok(()) => Some(path),
            Err(why) => {
                self.report_mistake(spot, why, PEM_REMEDY);
                None
            }
        }
    }

    /// Returns the paths of a certificate chain and its key after checking that they can be used and belong together;
    /// `None` after a mistake.
    pub fn check_key_pair(
        &mut self,
        (certificate, certificate_spot): &WrittenFile<'_>,
        (key, key_spot): &WrittenFile<'_>,
    ) -> Option<(PathBuf, PathBuf)> {
        let chain = self.check_pem_file(certificate, "CERTIFICATE", certificate_spot);
        let private = self.check_pem_file(key, "PRIVATE KEY", key_spot);
        let (chain, private) = (chain?, private?);
        match read_key_pair(&chain, &private) {
            Ok(_) => return Some((chain, private)),
            Err(KeyPairError::Certificate(why)) => self.report_mistake(certificate_spot, why, PEM_REMEDY),
            Err(KeyPairError::Key(why)) => self.report_mistake(key_spot, why, PEM_REMEDY),
            Err(KeyPairError::Mismatch(why)) => self.report_mistake(
                key_spot,
                why,
                "Name the key for which the certificate was issued. The first certificate of the file must be that of the \
                 gateway, before those of its issuers.",
            ),
        }
        None
    }

    /// Returns the path of a PEM file after checking that it has a section whose label ends with `part`, such as
    /// `PRIVATE KEY`; `None` after a mistake.
    fn check_pem_file(&mut self, written: &str, part: &str, spot: &KeyPath<'_>) -> Option<PathBuf> {
        let path = spot.resolve_file_path(written);
        self.watched_files.push(path.clone());
        match read_text_file(&path, MAX_PEM_BYTES) {
            Err(why) => {
                let why = format!("The file {} cannot be read: {why}.", path.display());
                self.report_mistake(spot, why, UNREADABLE_FILE_REMEDY);
                None
            }
            Ok(text) if has_pem_section(&text, part) => Some(path),
            Ok(_) => {
                let why = format!("There is no `-----BEGIN … {part}-----` in {}.", path.display());
                self.report_mistake(spot, why, PEM_REMEDY);
                None
            }
        }
    }
}

fn has_pem_section(text: &str, part: &str) -> bool {
    text.lines().any(|line| {
        let label = line.trim().strip_prefix("-----BEGIN ").and_then(|line| line.strip_suffix("-----"));
        label.is_some_and(|label| label.ends_with(part))
    })
}
