//! Errors of batch requests, as sent to the client.

use penstock_contract::{Code, Refusal};
use penstock_storage::StoreError;

/// Maps a store error to the error of the client; `None` if the insert succeeded.
pub(super) fn refused(inserted: Result<(), StoreError>) -> Option<Refusal> {
    match inserted {
        Ok(()) => None,
        Err(StoreError::Full) => Some(Refusal::new(Code::StorageFull)),
        Err(StoreError::Guard { .. }) => Some(no_file()),
        Err(_) => Some(unkept()),
    }
}

pub(super) fn none() -> Refusal {
    Refusal::because(Code::NotFound, "There is no batch of this id in this account.")
}

/// Error if the input file does not exist for this key.
#[must_use]
pub fn no_file() -> Refusal {
    let message = "input_file_id: there is no file of this id for this API key";
    Refusal::because(Code::NotFound, message).at("input_file_id")
}

pub(super) fn enough(most: usize) -> Refusal {
    let message = format!(
        "The limit of {most} batches of this account at the same time is reached; wait for one to end."
    );
    Refusal::because(Code::RateLimited, message).with("limit", "batches").with("value", most).retry_after(60)
}

pub(super) fn unkept() -> Refusal {
    let message = "Batches cannot be stored at the moment; try again shortly.";
    Refusal::because(Code::Unavailable, message).retry_after(5)
}
