//! Stores of the process: the embedded database with its ledger, uploaded files, spooled bodies, cached images.

pub mod files;
pub mod image_cache;
pub mod object_id;
pub mod spool;
pub mod stores;
