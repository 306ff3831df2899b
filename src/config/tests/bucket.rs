//! `[files.store]`: address, names and credentials of a bucket.

use super::super::settings::{BucketCredentialSettings, BucketSettings};
use super::{load, mistakes, tells, with};

/// Returns a configuration with a bucket, in which `line` replaces the default line of the same key.
fn store(line: &str) -> String {
    let defaults = [
        "endpoint = \"https://S3.example.eu/\"",
        "bucket = \"penstock\"",
        "access_key_id = { env = \"KEY\" }",
        "secret_access_key = { env = \"KEY\" }",
    ];
    let key = |line: &str| line.split(" = ").next().map(str::to_owned);
    let mut lines: Vec<&str> = defaults.into_iter().filter(|default| key(default) != key(line)).collect();
    lines.push(line);
    with(&format!("[files.store]\n{}", lines.join("\n")), "", "", "")
}

fn bucket(line: &str) -> BucketSettings {
    load(&store(line)).unwrap().settings.files.store.unwrap()
}

#[test]
fn a_bucket_needs_an_endpoint_a_name_and_a_key() {
    let found = bucket("region = \"fr-par\"");
    assert_eq!(
        (&*found.endpoint, &*found.bucket, &*found.region),
        ("https://s3.example.eu", "penstock", "fr-par")
    );
    assert!(found.prefix.is_empty() && !found.is_virtual_host && found.ca_file.is_none());
    let BucketCredentialSettings::AccessKey { secret, .. } = &found.credentials else { panic!("{found:?}") };
    assert_eq!(secret.reveal(), "sk-provider-1");
    assert!(!format!("{found:?}").contains("sk-provider"));
    assert_eq!(&*bucket("endpoint = \"http://localhost:8333\"").endpoint, "http://localhost:8333");
    assert!(bucket("style = \"virtual\"").is_virtual_host);
    assert_eq!(&*bucket("prefix = \"a/b-c\"").prefix, "a/b-c");
    assert!(load(&with("", "", "", "")).unwrap().settings.files.store.is_none());
}

#[test]
fn a_bucket_that_cannot_be_used_is_refused_by_name() {
    for (line, key, why) in [
        ("endpoint = \"https://s3.example.eu/penstock\"", "endpoint", "has a path"),
        ("endpoint = \"s3.example.eu\"", "endpoint", "does not start with"),
        ("endpoint = \"https://id:hush@s3.example.eu\"", "endpoint", "exposed secret"),
        ("bucket = \"Penstock\"", "bucket", "lower-case"),
        ("bucket = \"a/b\"", "bucket", "lower-case"),
        ("bucket = \"ab\"", "bucket", "3 to 63"),
        ("region = \"a b\"", "region", "letters, digits"),
        ("prefix = \"/files\"", "prefix", "with `/` between"),
        ("prefix = \"a/../b\"", "prefix", "with `/` between"),
        ("access_key_id = { env = \"NONE\" }", "access_key_id.env", "not set"),
        ("secret_access_key = { file = \"/nonexistent\" }", "secret_access_key.file", "does not exist"),
        ("ca_file = \"/nonexistent.pem\"", "ca_file", "does not exist"),
    ] {
        tells(&store(line), &format!("files.store.{key}"), why, "");
        assert!(!format!("{:?}", mistakes(&store(line))).contains("hush"));
    }
    let address = store("style = \"virtual\"").replace("https://S3.example.eu/", "https://192.0.2.1");
    tells(&address, "files.store.style", "before an IP address", "path");
    let open = load(&store("endpoint = \"http://s3.example.eu\"")).unwrap();
    assert!(open.warnings.iter().any(|warning| warning.key == "files.store.endpoint"), "{:?}", open.warnings);
}

/// Returns a configuration with a bucket at `endpoint`, and with a web identity that has these `members`.
fn identity(endpoint: &str, members: &str) -> String {
    let bucket = format!("endpoint = \"{endpoint}\"\nbucket = \"penstock\"\nweb_identity = {{ {members} }}");
    with(&format!("[files.store]\n{bucket}"), "", "", "")
}

#[test]
fn a_web_identity_replaces_the_access_key() {
    let members = "token_file = \"/nonexistent/token\", role = \"arn:x:role/penstock\"";
    let loaded = load(&identity("https://s3.example.eu", members)).unwrap();
    let at = "files.store.web_identity.token_file";
    assert!(loaded.warnings.iter().any(|warning| warning.key == at), "{:?}", loaded.warnings);
    let found = loaded.settings.files.store.unwrap().credentials;
    let BucketCredentialSettings::WebIdentity { token_file, role, endpoint } = found else {
        panic!("{found:?}")
    };
    assert_eq!((token_file.to_str(), &*role), (Some("/nonexistent/token"), "arn:x:role/penstock"));
    assert_eq!(&*endpoint, "https://s3.example.eu", "the store has a token service of its own");
    let members = format!("{members}, endpoint = \"https://STS.example.eu/\"");
    let found = load(&identity("https://s3.example.eu", &members)).unwrap().settings.files.store.unwrap();
    let BucketCredentialSettings::WebIdentity { endpoint, .. } = found.credentials else { panic!() };
    assert_eq!(&*endpoint, "https://sts.example.eu");
    let members = "token_file = \"t\", role = \"r\"";
    for (store, service) in [
        ("https://s3.example.eu", ", endpoint = \"http://localhost:9000\""),
        ("https://s3.example.eu", ", endpoint = \"http://[::1]:9000\""),
        ("http://127.0.0.1:8333", ""),
        ("http://127.0.0.1:8333", ", endpoint = \"https://sts.example.eu\""),
    ] {
        assert!(load(&identity(store, &format!("{members}{service}"))).is_ok(), "{store}{service}");
    }
}

#[test]
fn credentials_that_cannot_be_used_are_refused_by_name() {
    let token = "token_file = \"t\"";
    let cases = [
        (format!("{token}, role = \"a b\""), "web_identity.role", "without spaces"),
        (
            format!("{token}, role = \"r\", endpoint = \"http://sts.example.eu\""),
            "web_identity.endpoint",
            "encryption",
        ),
        (
            format!("{token}, role = \"r\", endpoint = \"https://sts.example.eu/x\""),
            "web_identity.endpoint",
            "path",
        ),
        (
            format!("{token}, role = \"r\", endpoint = \"https://a:hush@b.eu\""),
            "web_identity.endpoint",
            "exposed secret",
        ),
    ];
    for (members, key, why) in cases {
        let text = identity("https://s3.example.eu", &members);
        tells(&text, &format!("files.store.{key}"), why, "");
        assert!(!format!("{:?}", mistakes(&text)).contains("hush"));
    }
    let tokens_in_the_clear = "The token would travel without encryption.";
    for (store, service) in [
        ("http://127.0.0.1:8333", ", endpoint = \"http://sts.example.eu\""),
        ("http://s3.example.eu", ""),
        ("https://s3.example.eu", ", endpoint = \"http://192.0.2.1:9000\""),
    ] {
        let text = identity(store, &format!("{token}, role = \"r\"{service}"));
        tells(&text, "files.store.web_identity.endpoint", tokens_in_the_clear, "https://");
    }
    let role = "web_identity = { token_file = \"t\", role = \"r\" }";
    tells(&store(role), "files.store", "credentials of the store", "or `web_identity`");
    let lacks_secret = store("region = \"fr-par\"").replace("secret_access_key = { env = \"KEY\" }\n", "");
    tells(&lacks_secret, "files.store", "credentials of the store", "or `web_identity`");
}
