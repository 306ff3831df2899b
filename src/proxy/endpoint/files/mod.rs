//! Endpoints of a key's files: upload, list, metadata, contents and deletion.

mod content;
mod list;
mod metadata;
mod object;
mod range;
mod upload;

pub use content::{DownloadFile, content_disposition, log_file_failure};
pub use list::ListFiles;
pub use metadata::{DeleteFile, GetFile};
pub use upload::UploadFile;
