//! Mistakes in certificate and key files have their key, their line and a remedy, beside all other mistakes.

use super::{load, mistakes, with};
use std::fs;
use std::path::Path;

/// Returns a certificate and its key, in PEM.
fn key_pair() -> (String, String) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (own.cert.pem(), own.key_pair.serialize_pem())
}

fn config(folder: &Path) -> String {
    let at = |name: &str| format!("{:?}", folder.join(name));
    with(
        &format!(
            "[log]\nlevel = \"verbose\"\n[listen.https]\naddress = \"127.0.0.1:8443\"\ncertificate = {0}\nkey = {1}\nclient_ca = {0}\n\
             [console]\nlisten = [\"127.0.0.1:8444\"]\n[console.tls]\ncertificate = {0}\nkey = {1}\n",
            at("chain.pem"),
            at("key.pem")
        ),
        "",
        &format!("client_certificate = {0}\nclient_key = {1}\nca = {0}", at("chain.pem"), at("key.pem")),
        "",
    )
}

#[test]
fn a_key_of_another_certificate_is_a_mistake_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let ((chain, key), (_, other)) = (key_pair(), key_pair());
    let [chain_path, key_path] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    fs::write(&chain_path, &chain).unwrap();
    fs::write(&key_path, &key).unwrap();
    let text = config(folder.path());
    assert!(load(&text.replace("verbose", "info")).is_ok());
    let unusable = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (written, why) in [(other.as_str(), "does not belong to"), (unusable, "cannot be used")] {
        fs::write(&key_path, written).unwrap();
        let found = mistakes(&text);
        let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["log.level", "listen.https.key", "console.tls.key", "providers.p1.client_key"]);
        for one in found.iter().skip(1) {
            assert!(one.line.is_some() && one.reason.contains(why) && !one.remedy.is_empty(), "{one}");
        }
    }
    fs::write(&key_path, &key).unwrap();
    fs::write(&chain_path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let keys: Vec<String> = mistakes(&text).into_iter().map(|one| one.key).collect();
    let expected = [
        "log.level",
        "listen.https.certificate",
        "listen.https.client_ca",
        "console.tls.certificate",
        "providers.p1.client_certificate",
        "providers.p1.ca",
    ];
    assert_eq!(keys, expected);
}
