//! Checks that a folder exists or can be created.

use super::Proof;
use super::key_path::Spot;
use rustix::fs::{Access, access};
use std::path::Path;

impl Proof<'_> {
    /// Checks that a folder is writable, or can be created in an existing one above it.
    pub fn makeable(&mut self, path: &Path, spot: &Spot<'_>) {
        let Some(near) = path.ancestors().find(|above| above.as_os_str().is_empty() || above.exists()) else {
            return;
        };
        let near = if near.as_os_str().is_empty() { Path::new(".") } else { near };
        if !near.is_dir() {
            let why = format!("It cannot be made: {} is a file.", near.display());
            self.wrong(spot, why, "Write the path of a folder, or of one to be made.");
        } else if let Err(error) = access(near, Access::WRITE_OK | Access::EXEC_OK) {
            let verb = if near == path { "written to" } else { "made" };
            let why = format!("It cannot be {verb} by this user: {} ({error}).", near.display());
            self.warn(spot, why, "Create it, and make the gateway's user its owner.");
        }
    }
}
