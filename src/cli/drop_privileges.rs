//! Privilege drop of commands that root runs on another user's store. The files that such a command writes must
//! belong to that user, because the gateway could not open them otherwise.

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Switches a process that runs as root to the owner of the folder. Does nothing if another user runs the process, or
/// if the folder does not exist. The process must have only one thread; threads that it starts later inherit the
/// change.
///
/// # Errors
/// Returns the reason as one sentence.
pub(super) fn become_folder_owner(folder: &Path) -> Result<(), String> {
    let Ok(found) = fs::metadata(folder) else { return Ok(()) };
    if !geteuid().is_root() || found.uid() == 0 {
        return Ok(());
    }
    become_user(found.uid(), found.gid()).map_err(|error| {
        format!(
            "{} belongs to the user {}, and this command cannot become that user: {error}.",
            folder.display(),
            found.uid()
        )
    })
}

/// Switches the user, but retains root's capabilities on files. The store may be below a folder that only root can
/// enter (`/var/lib/private`), and an archive may be written to a folder of root.
fn become_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    let retained = capabilities(None)?.permitted & files;
    set_keep_capabilities(true)?;
    set_thread_groups(&[group])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_capabilities(
        None,
        CapabilitySets { effective: retained, permitted: retained, inheritable: CapabilitySet::empty() },
    )
}
