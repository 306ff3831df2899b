//! `[files.store]`: checks of the bucket for the contents of files.

use super::super::raw::{BucketConfig, BucketStyleName, WebIdentityConfig};
use super::super::settings::{BaseUrl, BucketCredentialSettings, BucketSettings};
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::url::{is_loopback_host, parse_base_url};
use penstock_regular_file::{describe_io_error, open_regular_file};

/// Paths of the keys that can contain the credentials.
const CREDENTIAL_PATHS: [&str; 3] =
    ["files.store.access_key_id", "files.store.secret_access_key", "files.store.web_identity"];
/// Maximum length of the name of the role for access to the bucket, in bytes.
const MAX_ROLE: usize = 2048;

impl SettingsResolver<'_> {
    /// Resolves `[files.store]`; `None` after a mistake.
    pub fn resolve_bucket(&mut self, raw: &BucketConfig, spot: &KeyPath<'_>) -> Option<BucketSettings> {
        let endpoint = self.check_endpoint(raw, spot);
        let is_named = self.check_names(raw, spot);
        let credentials = self.resolve_credentials(raw, endpoint.as_deref(), spot);
        let ca_file = match &raw.ca_file {
            None => Some(None),
            Some(path) => self.check_ca_bundle(path, &spot.child("ca_file")).map(Some),
        };
        if !is_named {
            return None;
        }
        Some(BucketSettings {
            endpoint: endpoint?.into(),
            bucket: raw.bucket.as_str().into(),
            region: raw.region.as_str().into(),
            prefix: raw.prefix.as_deref().unwrap_or_default().into(),
            is_virtual_host: raw.style == BucketStyleName::Virtual,
            credentials: credentials?,
            ca_file: ca_file?,
        })
    }

    /// Returns the written access key or, without one, the web identity that the gateway exchanges for an access key;
    /// `None` after a mistake.
    fn resolve_credentials(
        &mut self,
        raw: &BucketConfig,
        endpoint: Option<&str>,
        spot: &KeyPath<'_>,
    ) -> Option<BucketCredentialSettings> {
        match (&raw.access_key_id, &raw.secret_access_key, &raw.web_identity) {
            (Some(id), Some(secret), None) => {
                let id = self.read_secret(id, &spot.child("access_key_id"));
                let secret = self.read_secret(secret, &spot.child("secret_access_key"));
                Some(BucketCredentialSettings::AccessKey { id: id?, secret: secret? })
            }
            (None, None, Some(identity)) => {
                self.resolve_identity(identity, endpoint, &spot.child("web_identity"))
            }
            _ if self.is_reported(&CREDENTIAL_PATHS) => None,
            _ => {
                self.report_mistake(
                    spot,
                    "It needs the credentials of the store.",
                    "Write `access_key_id` and `secret_access_key`, or `web_identity`.",
                );
                None
            }
        }
    }

    fn resolve_identity(
        &mut self,
        raw: &WebIdentityConfig,
        endpoint: Option<&str>,
        spot: &KeyPath<'_>,
    ) -> Option<BucketCredentialSettings> {
        let service = self.check_token_service(raw.endpoint.as_deref(), endpoint, spot);
        let token_file = spot.child("token_file").resolve_file_path(&raw.token_file);
        if raw.role.is_empty()
            || raw.role.len() > MAX_ROLE
            || !raw.role.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let like = "Write something like \"arn:aws:iam::123456789012:role/penstock\".";
            self.report_mistake(&spot.child("role"), "It must be the name of a role, without spaces.", like);
            return None;
        }
        if let Err(why) = open_regular_file(&token_file) {
            // Only a warning: another program writes the file, perhaps after the gateway has started.
            let why =
                format!("The file {} cannot be read: {}.", token_file.display(), describe_io_error(&why));
            let fix =
                "The program that renews the token has to write it there, readable for the gateway's user.";
            self.report_warning(&spot.child("token_file"), why, fix);
        }
        let role = raw.role.as_str().into();
        Some(BucketCredentialSettings::WebIdentity { token_file, role, endpoint: service?.into() })
    }

    /// Checks the endpoint of the token service; without a written one, uses the endpoint of the bucket's store.
    /// Returns it as scheme, host and port; `None` after a mistake.
    fn check_token_service(
        &mut self,
        written: Option<&str>,
        store: Option<&str>,
        spot: &KeyPath<'_>,
    ) -> Option<String> {
        let at = spot.child("endpoint");
        let url = match written {
            Some(written) => self.check_url(written, "https://sts.example.eu", &at)?,
            None => parse_base_url(store?).ok()?,
        };
        if !url.tls && !is_loopback_host(&url.host) {
            self.report_mistake(&at, "The token would travel without encryption.", "Write `https://`.");
            return None;
        }
        Some(origin(&url))
    }

    /// Parses a URL that must not have a path; `None` after a mistake.
    fn check_url(&mut self, written: &str, example: &str, key_path: &KeyPath<'_>) -> Option<BaseUrl> {
        let like = format!("Write something like \"{example}\".");
        match parse_base_url(written) {
            Ok(url) if url.path_prefix.is_empty() => Some(url),
            Ok(_) => {
                self.report_mistake(
                    key_path,
                    "It has a path, and must be scheme, host and port alone.",
                    &like,
                );
                None
            }
            Err((why, _)) => {
                // A URL that contains a password must not be shown.
                self.report_secret_mistake(key_path, why, &like);
                None
            }
        }
    }

    /// Checks the endpoint, and returns it as scheme, host and port; `None` after a mistake.
    fn check_endpoint(&mut self, raw: &BucketConfig, spot: &KeyPath<'_>) -> Option<String> {
        let at = spot.child("endpoint");
        let url = self.check_url(&raw.endpoint, "https://s3.example.eu", &at)?;
        if !url.tls && !is_loopback_host(&url.host) {
            let why = "Contents and signatures would travel without encryption.";
            self.report_warning(&at, why, "Write `https://`.");
        }
        if url.host.parse::<std::net::IpAddr>().is_ok() && raw.style == BucketStyleName::Virtual {
            let why = "The name of the bucket cannot be put before an IP address.";
            self.report_mistake(&spot.child("style"), why, "Write \"path\", or a host name in `endpoint`.");
            return None;
        }
        Some(origin(&url))
    }

    fn check_names(&mut self, raw: &BucketConfig, spot: &KeyPath<'_>) -> bool {
        let before = self.report.mistakes.len();
        if !is_bucket_name(&raw.bucket) {
            self.report_mistake(
                &spot.child("bucket"),
                "It must be 3 to 63 lower-case letters, digits, `-` and `.`, and begin and end with a letter or digit.",
                "Write the name of the bucket without its address.",
            );
        }
        let is_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if raw.region.len() > 64 || !raw.region.bytes().all(is_region) {
            let fix = "Write it as the store calls it, such as \"fr-par\".";
            self.report_mistake(&spot.child("region"), "It must be of letters, digits, `-` and `_`.", fix);
        }
        if raw.prefix.as_deref().is_some_and(|prefix| !is_prefix(prefix)) {
            self.report_mistake(
                &spot.child("prefix"),
                "It must be names of letters, digits, `.`, `_` and `-`, with `/` between them.",
                "Write something like \"penstock/files\".",
            );
        }
        self.report.mistakes.len() == before
    }
}

fn origin(url: &BaseUrl) -> String {
    format!("{}://{}", if url.tls { "https" } else { "http" }, url.authority)
}

fn is_bucket_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| is_letter(*byte) || matches!(byte, b'-' | b'.'))
        && bytes.first().is_some_and(|byte| is_letter(*byte))
        && bytes.last().is_some_and(|byte| is_letter(*byte))
        && !name.contains("..")
}

fn is_prefix(prefix: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_letter);
    prefix.len() <= 200 && prefix.split('/').all(is_part)
}
