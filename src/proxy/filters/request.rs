//! Request filters: the trait, the state of an inference request between them, and the chain that runs a list.

use crate::billing::Hold;
use crate::limits::rate_limit::{ProvisionalPermit, TypicalKeyUsage};
use crate::proxy::endpoint::Endpoint;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover::CandidateSet;
use crate::storage::spool::SpooledData;
use crate::upstream::config_snapshot::ConfigSnapshot;
use bytes::Bytes;
use penstock_core::{ApiError, InferenceRequest, InferenceTask, StoredResponseAccess};
use std::future::{Future, ready};
use std::ops::ControlFlow;

/// Step of an inference request before the connection to a provider.
///
/// If a filter refuses the request, it leaves no reservation behind: permits and reservations that it acquires are
/// owned by the request and are released when the request is dropped. [`RequestFilter::check`] is async because tokens
/// are counted on other threads or at an engine, and because a member of a fleet may draw a lease from the database;
/// for a filter that does not await anything this costs nothing.
pub trait RequestFilter {
    /// Name of the filter in the documentation of the list.
    const NAME: &'static str;

    /// Checks the head of a request of any endpoint, before its body is read.
    ///
    /// # Errors
    /// Returns the refusal of the request.
    fn early_check(_x: &mut Exchange<'_>, _endpoint: &dyn Endpoint) -> Result<(), ApiError> {
        Ok(())
    }

    /// Checks an inference request whose body has been read. `Break` ends the request without calling a provider: the
    /// filter has answered the request, or its client has disconnected.
    ///
    /// # Errors
    /// Returns the refusal of the request.
    fn check(
        _request: &mut InferenceContext<'_, '_>,
    ) -> impl Future<Output = Result<ControlFlow<WriteOutcome>, ApiError>> + Send {
        ready(Ok(ControlFlow::Continue(())))
    }
}

/// Body of an inference request, as its endpoint reads it.
pub enum RequestBody {
    /// JSON, with the parser of the endpoint.
    Json(Bytes, JsonParser),
    /// Request of the responses dialect, with its access to stored responses and to the conversation that it continues.
    ResponsesWithStorage(Bytes, Box<StoredResponseAccess>),
    /// Model and task of an upload form, with its file.
    Form(Box<str>, InferenceTask, SpooledData),
}

/// Parser of an endpoint's JSON body.
type JsonParser = fn(Bytes, &ConfigSnapshot) -> Result<InferenceRequest, ApiError>;

/// State of an inference request between the filters; each filter adds its results.
pub struct InferenceContext<'r, 'a> {
    /// Exchange of the request.
    pub exchange: &'r mut Exchange<'a>,
    /// Request body; `None` once it is parsed.
    pub body: Option<RequestBody>,
    /// Parsed request; `None` before the filter that parses it.
    pub ask: Option<InferenceRequest>,
    /// File that was uploaded in a form request.
    pub upload: Option<SpooledData>,
    /// Provisional permit of the limits, until the limits are reserved, and the usual usage of the key.
    pub provisional_permit: Option<(ProvisionalPermit, TypicalKeyUsage)>,
    /// Offers that may serve the request; `None` before they are selected.
    pub candidates: Option<CandidateSet>,
    /// Time at which the candidates were selected, in Unix seconds; it selects the prices.
    pub selected_at: u64,
    /// Reservation of credits for the request; `None` before they are reserved.
    pub hold: Option<Hold>,
}

impl<'r, 'a> InferenceContext<'r, 'a> {
    /// Creates the context of a body, before the first filter.
    pub const fn new(exchange: &'r mut Exchange<'a>, body: RequestBody) -> Self {
        Self {
            exchange,
            body: Some(body),
            ask: None,
            upload: None,
            provisional_permit: None,
            candidates: None,
            selected_at: 0,
            hold: None,
        }
    }
}

/// List of request filters that are called one after another.
pub trait RequestFilterChain {
    /// Names of the filters, in their order.
    const NAMES: &'static [&'static str];

    /// Calls [`RequestFilter::early_check`] of each filter, up to the first refusal.
    ///
    /// # Errors
    /// Returns the refusal of the request.
    fn early_check(x: &mut Exchange<'_>, endpoint: &dyn Endpoint) -> Result<(), ApiError>;

    /// Calls [`RequestFilter::check`] of each filter, up to the first refusal or break.
    ///
    /// # Errors
    /// Returns the refusal of the request.
    fn check(
        request: &mut InferenceContext<'_, '_>,
    ) -> impl Future<Output = Result<ControlFlow<WriteOutcome>, ApiError>> + Send;
}

/// Implements [`RequestFilterChain`] for tuples of one filter up to the number of names.
macro_rules! chains {
    () => {};
    ($first:ident $($filter:ident)*) => {
        impl<$first: RequestFilter, $($filter: RequestFilter),*> RequestFilterChain for ($first, $($filter,)*) {
            const NAMES: &'static [&'static str] = &[$first::NAME, $($filter::NAME),*];

            fn early_check(x: &mut Exchange<'_>, endpoint: &dyn Endpoint) -> Result<(), ApiError> {
                $first::early_check(x, endpoint)?;
                $($filter::early_check(x, endpoint)?;)*
                Ok(())
            }

            async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
                if let ControlFlow::Break(ended) = $first::check(request).await? {
                    return Ok(ControlFlow::Break(ended));
                }
                $(if let ControlFlow::Break(ended) = $filter::check(request).await? {
                    return Ok(ControlFlow::Break(ended));
                })*
                Ok(ControlFlow::Continue(()))
            }
        }
        chains!($($filter)*);
    };
}

chains!(A B C D E F G H I J K L);
