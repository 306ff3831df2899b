//! Buckets on a real S3-compatible server, and on servers that answer badly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crashes;
mod hostile;
mod objects;
#[path = "../support/seaweedfs.rs"]
mod seaweedfs;
mod server;
mod web_identity;

use penstock_object_storage::RandomAccessObject;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempPath;

/// Lock for one SeaweedFS server at a time: a server takes some hundred MiB of memory.
static SERVER: Mutex<()> = Mutex::new(());

fn one_server() -> MutexGuard<'static, ()> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that differ at every offset of a block.
fn contents(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 977 + seed * 7) % 251) as u8).collect()
}

fn temporary_file(bytes: &[u8]) -> TempPath {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.into_temp_path()
}

fn read(object: &dyn RandomAccessObject, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    object.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn read_all(object: &dyn RandomAccessObject) -> std::io::Result<Vec<u8>> {
    read(object, 0, usize::try_from(object.length()?).unwrap())
}
