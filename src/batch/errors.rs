//! Errors of batch requests, as sent to the client.

use penstock_core::{ApiError, ErrorCode};
use penstock_storage::StoreError;

/// Returns the client's error for a store error of an insert.
pub(super) fn insert_error_response(error: &StoreError) -> ApiError {
    match error {
        StoreError::Full => ApiError::new(ErrorCode::StorageFull),
        StoreError::Guard { .. } => input_not_found(),
        _ => batches_not_writable(),
    }
}

pub(super) fn batch_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no batch of this id in this account.")
}

/// Returns the error for an input file that does not exist for this key.
#[must_use]
pub fn input_not_found() -> ApiError {
    let message = "input_file_id: there is no file of this id for this API key";
    ApiError::with_message(ErrorCode::NotFound, message).with_param("input_file_id")
}

/// Returns the error 429 for an account that has the maximum number of open batches.
pub(super) fn too_many_batches(max_batches: usize) -> ApiError {
    let message = format!(
        "The limit of {max_batches} batches of this account at the same time is reached; wait for one to end."
    );
    ApiError::with_message(ErrorCode::RateLimited, message)
        .with_details_member("limit", "batches")
        .with_details_member("of", "account")
        .with_details_member("value", max_batches)
        .with_retry_after(60)
}

pub(super) fn batches_not_writable() -> ApiError {
    let message = "Batches cannot be stored at the moment; try again shortly.";
    ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
}

/// Returns the error 429 for an account that has the maximum number of unfinished background responses.
pub(super) fn too_many_responses(max_responses: usize) -> ApiError {
    let message = format!(
        "background: the limit of {max_responses} unfinished background responses of this account is reached; wait for one to end."
    );
    ApiError::with_message(ErrorCode::RateLimited, message)
        .with_param("background")
        .with_details_member("limit", "background_responses")
        .with_details_member("of", "account")
        .with_details_member("value", max_responses)
        .with_retry_after(5)
}

pub(super) fn response_not_writable() -> ApiError {
    let message = "Background responses cannot be stored at the moment; try again shortly.";
    ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
}
