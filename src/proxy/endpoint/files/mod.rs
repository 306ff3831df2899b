//! Endpoints of a key's files: upload, list, metadata, contents and deletion.

mod conditions;
mod content;
mod list;
mod metadata;
mod object;
mod range;
mod upload;

pub use content::{DownloadFileEndpoint, content_disposition, log_file_failure};
pub use list::ListFilesEndpoint;
pub use metadata::{DeleteFileEndpoint, GetFileEndpoint};
pub use upload::UploadFileEndpoint;
