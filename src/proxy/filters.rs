//! Request filters and response body filters, one ordered list of each kind: the steps of a request before the
//! connection to a provider, and the steps of a response body before it is sent to the client.
//!
//! The lists are types, so that each filter is called statically and no request allocates memory for them. A filter is
//! added with a file in `src/proxy/filters/` and a row in one of the lists below; `docs/architecture.md` has an
//! example. If a filter is removed from its list, its behaviour is gone.

mod admit;
mod annotate;
mod authenticate;
mod candidates;
mod limit;
mod meter;
mod parse;
mod request;
mod reserve;
mod response;
mod response_head;
#[cfg(test)]
mod tests;
mod token_ids;
mod translate;
mod zero_tokens;

pub use admit::AcquireProvisionalPermit;
pub use annotate::AnnotateSettlement;
pub use authenticate::Authenticate;
pub use candidates::{SelectCandidates, find_model, model_for_request, model_not_found_error};
pub use limit::ReserveLimits;
pub use meter::MeterUsage;
pub use parse::ParseRequest;
pub use request::{InferenceContext, RequestBody, RequestFilter, RequestFilterChain};
pub use reserve::{ReserveCredits, highest_reservation};
pub use response::{
    BufferedBody, ResponseBodyFilter, ResponseBodyFilterChain, ResponseContext, ResponseUsage, StreamEnd,
    StreamPiece, response_body_filter,
};
pub use response_head::{ResponseFields, remove_unlisted_fields};
pub use token_ids::DetokenizeInput;
pub use translate::TranslateResponse;
pub use zero_tokens::AnswerZeroTokens;

/// Request filters in the order in which they run.
///
/// [`RequestFilterChain::early_check`] runs in `early_request_filter`, for the requests of all endpoints;
/// [`RequestFilterChain::check`] runs in `request_filter`, for inference requests whose body has been read.
#[rustfmt::skip]
pub type RequestFilters = (
    Authenticate,
    ParseRequest,
    DetokenizeInput,
    AnswerZeroTokens,
    AcquireProvisionalPermit,
    SelectCandidates,
    ReserveLimits,
    ReserveCredits,
);

/// Response body filters in the order in which they run, from the provider to the client.
#[rustfmt::skip]
pub type ResponseBodyFilters = (
    TranslateResponse,
    MeterUsage,
    AnnotateSettlement,
);
