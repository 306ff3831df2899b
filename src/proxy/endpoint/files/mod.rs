//! Endpoints of a key's files: upload, list, metadata, contents and deletion.

mod content;
mod list;
mod object;
mod one;
mod range;
mod upload;

pub use content::Content;
pub use list::List;
pub use one::{Delete, One};
pub use upload::Create;
