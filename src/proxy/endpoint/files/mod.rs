//! Files of a key: uploaded, listed, told of, given, deleted.

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
