//! Metrics of the process and its disk: build, processor time, memory, descriptors, sizes of stored data.

use super::metrics::register;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry, Result};
use std::path::Path;

/// Gauges of the process and its disk.
pub(super) struct ProcessMetrics {
    stored: IntGaugeVec,
    free: IntGaugeVec,
    size: IntGaugeVec,
}

impl ProcessMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let build = Opts::new("penstock_build_info", "Constant 1; the label names the running version.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        register(r, IntGauge::with_opts(build)?)?.set(1);
        r.register(Box::new(ProcessCollector::for_self()))?;
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register(r, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        Ok(Self {
            stored: gauge(
                "penstock_stored_bytes",
                "Bytes on the disk by kind: store (the database), ledger (its second copy), files (contents), responses.",
                &["kind"],
            )?,
            free: gauge(
                "penstock_disk_free_bytes",
                "Bytes that the gateway may still write to the disk of a folder (storage, files).",
                &["folder"],
            )?,
            size: gauge(
                "penstock_disk_size_bytes",
                "Size of the disk of a folder (storage, files).",
                &["folder"],
            )?,
        })
    }

    /// Measures the sizes of stored data and the free disk space. Blocks, because it reads the sizes of all files
    /// below the folders in `stored`. `stored` has the names of kinds of data, which are also the names of their
    /// folders in `storage`; `files` has the total bytes of the uploaded files, and their folder.
    pub(super) fn measure_disk_usage(&self, storage: &Path, stored: [&'static str; 3], files: (u64, &Path)) {
        for kind in stored {
            self.stored.with_label_values(&[kind]).set(clamped(folder_bytes(&storage.join(kind))));
        }
        self.stored.with_label_values(&["files"]).set(clamped(files.0));
        for (name, folder) in [("storage", storage), ("files", files.1)] {
            // The folder of uploaded files is skipped if it does not exist yet.
            let Ok(disk) = rustix::fs::statvfs(folder) else { continue };
            self.free.with_label_values(&[name]).set(clamped(disk.f_bavail.saturating_mul(disk.f_frsize)));
            self.size.with_label_values(&[name]).set(clamped(disk.f_blocks.saturating_mul(disk.f_frsize)));
        }
    }
}

fn clamped(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns the bytes of all files below a folder. A file that is deleted meanwhile counts as 0 bytes.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(std::result::Result::ok).map(bytes).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_size_of_a_folder_is_that_of_all_files_below_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("a"), [0; 10]).unwrap();
        std::fs::write(folder.path().join("below/b"), [0; 7]).unwrap();
        assert_eq!(folder_bytes(folder.path()), 17);
        assert_eq!(folder_bytes(&folder.path().join("missing")), 0);
    }

    #[test]
    fn build_and_process_are_there_from_the_start() {
        let registry = Registry::new();
        ProcessMetrics::new(&registry).unwrap();
        let names: Vec<String> = registry.gather().iter().map(|family| family.name().to_owned()).collect();
        for name in [
            "penstock_build_info",
            "process_cpu_seconds_total",
            "process_max_fds",
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_threads",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }
}
