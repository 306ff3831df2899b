//! What a reload cannot change: a process opens its sockets and folders and starts its threads once.

use super::Settings;

/// What a process started with, by the names of the configuration.
#[derive(Debug)]
pub struct Fixed([(&'static str, String); 9]);

impl Settings {
    /// What counts from the next start or upgrade only.
    #[must_use]
    pub fn fixed(&self) -> Fixed {
        let https = self.listen.https.as_ref().map(|https| https.address);
        Fixed([
            ("listen.http", format!("{:?}", self.listen.http)),
            ("listen.https", format!("{https:?}")),
            ("listen.admin", self.listen.admin.to_string()),
            ("storage.path", self.storage.path.display().to_string()),
            ("storage.ballast", self.storage.ballast_bytes.to_string()),
            ("files.path", self.files.path.display().to_string()),
            ("spool.path", self.spool.path.display().to_string()),
            ("process.threads", self.threads.to_string()),
            ("process.drain", format!("{:?}", self.drain)),
        ])
    }
}

impl Fixed {
    /// Names of what another configuration has otherwise.
    #[must_use]
    pub fn waiting(&self, fresh: &Settings) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(fresh.fixed().0);
        pairs.filter(|(now, then)| now.1 != then.1).map(|(now, _)| now.0).collect()
    }
}
