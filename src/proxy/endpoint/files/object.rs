//! File object of the API.

use crate::storage::files::FileExpiryContext;
use penstock_storage::files::FileRecord;
use serde_json::{Value, json};

/// Returns the JSON object that describes a file to clients.
pub fn file_object(file: &FileRecord, expiry_context: FileExpiryContext) -> Value {
    json!({
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": expiry_context.expires_at(file),
        "filename": file.filename,
        "purpose": file.purpose.name(),
        "status": file.status.name(),
        "status_details": file.status_details,
    })
}
