//! Start of the membership of a process in a fleet.

use penstock_storage::StoreError;
use penstock_storage::fleet::{Fleet, FleetError, Incarnation, PeerWatch, PoolOpeningState, SharedFleet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval of the checks whether another member has filled the pools.
const POOL_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// File with the membership of the previous process of this folder: the number of the member, then the names that the
/// member may have, one per line. Only the process that holds the lock of the folder reads or writes the file.
pub(super) struct IdentityFile {
    file: File,
    previous: Option<PreviousIncarnation>,
}

/// Membership of the previous process of this folder.
struct PreviousIncarnation {
    id: u32,
    /// Names that the member may have; none if the file is from a version that did not write names.
    names: Vec<String>,
}

impl PreviousIncarnation {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let id = lines.next()?.trim().parse().ok()?;
        Some(Self { id, names: lines.map(str::to_owned).collect() })
    }
}

impl IdentityFile {
    /// Opens or creates the file, and reads the previous membership from it.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("The file {} cannot be used: {error}.", path.display());
        if let Some(folder) = path.parent() {
            penstock_storage::create_private_dir_all(folder).map_err(failed)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        Ok(Self { file, previous: PreviousIncarnation::parse(&text) })
    }

    /// Writes the number and the possible names of this process's membership. If they could not be read again, the
    /// next process of the folder would join as a new member, and the other members would evict this one.
    pub(super) fn write_membership(&mut self, incarnation: u32, names: &[String]) -> Result<(), String> {
        let lines = std::iter::once(incarnation.to_string()).chain(names.iter().cloned());
        let text = lines.collect::<Vec<_>>().join("\n");
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .and_then(|()| self.file.sync_all());
        written.map_err(|error| format!("The number of this fleet member cannot be written: {error}."))
    }
}

/// Continues the membership of the folder's previous process, or joins as a new member, and writes the membership to
/// the file.
pub(super) fn join(fleet: &SharedFleet, file: &mut IdentityFile, name: &str) -> Result<Incarnation, String> {
    let failed = |error: FleetError| format!("The fleet cannot be joined: {error}.");
    let adopted = match file.previous.take() {
        Some(PreviousIncarnation { id, names }) => {
            if !names.is_empty() {
                // If this process ends between the two writes, the member has either the old or the new name.
                let either: Vec<String> = names.iter().cloned().chain([name.to_owned()]).collect();
                file.write_membership(id, &either)?;
            }
            fleet.resume_incarnation(id, &names, name).map_err(|error| failed(error.into()))?
        }
        None => None,
    };
    let incarnation = adopted.map_or_else(|| fleet.join(name).map_err(failed), Ok)?;
    file.write_membership(incarnation.id, &[name.to_owned()])?;
    Ok(incarnation)
}

/// Fills the pools from the balances, or waits until another member has filled them. If that member sends no heartbeat
/// for `dead_after`, this one continues its work.
pub(super) fn fill_or_await_pools(
    fleet: &SharedFleet,
    incarnation: &mut Incarnation,
    dead_after: Duration,
) -> Result<(), String> {
    let own = incarnation.id;
    let failed = |error: StoreError| format!("The fleet cannot be joined: {error}.");
    let (started, mut watch, mut abandoned_by) = (Instant::now(), PeerWatch::new(dead_after), None);
    loop {
        match fleet.open_pools(incarnation, abandoned_by).map_err(failed)? {
            PoolOpeningState::Ready => return Ok(()),
            PoolOpeningState::Opening(opener) if opener == own => abandoned_by = Some(own),
            PoolOpeningState::Opening(opener) => {
                let peers =
                    fleet.incarnations().map_err(|error| format!("The fleet cannot be joined: {error}."))?;
                let is_gone = !peers.iter().any(|peer| peer.id == opener && peer.name.is_some());
                let dead = watch.observe_and_find_dead(own, &peers, started.elapsed());
                let is_dead = dead.iter().any(|peer| peer.id == opener);
                abandoned_by = (is_gone || is_dead).then_some(opener);
                if abandoned_by.is_none() {
                    std::thread::sleep(POOL_CHECK_INTERVAL);
                }
            }
        }
    }
}

/// Returns the name of this process for operators: host and process id.
pub(super) fn process_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} process {}", host.trim(), std::process::id())
}
