//! Tests of the error messages about certificates and keys that cannot be used.
#![allow(clippy::unwrap_used)]

use super::*;

/// Returns a certificate and its key, in PEM.
fn key_pair() -> (String, String) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (own.cert.pem(), own.key_pair.serialize_pem())
}

fn pem(label: &str, base64: &str) -> String {
    format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
}

#[test]
fn a_sentence_blames_the_file_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    let read = |chain: &str, private: &str| {
        std::fs::write(&certificate, chain).unwrap();
        std::fs::write(&key, private).unwrap();
        read_key_pair(&certificate, &key).map(drop).map_err(String::from)
    };
    let ((chain, private), (_, other)) = (key_pair(), key_pair());
    assert_eq!(read(&chain, &private), Ok(()));
    let mismatch = read(&chain, &other).unwrap_err();
    assert!(mismatch.starts_with("The key ") && mismatch.contains("does not belong"), "{mismatch}");
    // A key whose contents are damaged: three bytes of zeros.
    let damaged = read(&chain, &pem("PRIVATE KEY", "AAAA")).unwrap_err();
    assert!(damaged.starts_with(&format!("{} cannot be used: ", key.display())), "{damaged}");
    let without = read(&private, &private).unwrap_err();
    let expected = format!("{} cannot be used: it contains no certificate.", certificate.display());
    assert_eq!(without, expected);
    let unreadable = read(&pem("CERTIFICATE", "AAAA"), &private).unwrap_err();
    assert!(unreadable.starts_with(&format!("{} cannot be used: ", certificate.display())), "{unreadable}");
}
