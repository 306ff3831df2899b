//! Stores of the process: the embedded database with its ledger, uploaded files, stored responses, spooled bodies,
//! cached images.

pub mod files;
pub mod image_cache;
pub mod object_id;
pub mod responses;
pub mod shared_contents;
pub mod spool;
pub mod stores;
