//! Stores of the process: the embedded database with its ledger, uploaded files, stored responses, spooled bodies,
//! generated images.

pub mod files;
pub mod images;
pub mod object_id;
pub mod responses;
pub mod shared_contents;
pub mod spool;
pub mod stores;
