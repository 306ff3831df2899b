//! Commands that root types about a store of another user's: what they write is to be that user's, or the gateway
//! could not open it any more.

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// From now on root works as whoever has the folder; anybody else, and on a folder that is not there yet, as before.
/// For a process with one thread: those that it starts later do the same.
///
/// # Errors
/// One sentence that says what is in the way.
pub(super) fn take(folder: &Path) -> Result<(), String> {
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

/// What root may do to files stays: a store below a folder of root's alone (`/var/lib/private`) is reached, and an
/// archive can be written where root keeps it.
fn become_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    let kept = capabilities(None)?.permitted & files;
    set_keep_capabilities(true)?;
    set_thread_groups(&[group])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )
}
