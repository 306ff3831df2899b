//! File object of the API.

use crate::storage::files::When;
use penstock_storage::files::FileRecord;
use serde_json::{Value, json};

/// Returns the file object.
pub fn object(file: &FileRecord, at: When) -> Value {
    json!({
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": at.ends(file),
        "filename": file.filename,
        "purpose": file.purpose.name(),
        "status": file.status.name(),
        "status_details": file.status_details,
    })
}
