//! `[files.store]`: address, names and credentials of a bucket.

use super::super::settings::BucketSettings;
use super::{load, mistakes, tells, with};

/// Configuration with a bucket whose `line` replaces the default of the same key.
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
    assert_eq!(found.secret_access_key.reveal(), "sk-provider-1");
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
