//! Response body filters: the trait, the state of a response between them, and the chain that runs a list.

use super::ResponseBodyFilters;
use bytes::Bytes;
use penstock_core::{
    BufferedResponse, FinishReason, MeasuredEnergy, OfferObservation, OutputBuffer, StreamTranslation,
    TokenUsage, UpstreamAnswer, UpstreamError, WorkDone,
};
use std::future::{Future, ready};

/// Step of a response body between the provider and the client.
///
/// The output does not depend on how the provider's bytes are split. Events that need no translation keep their bytes.
pub trait ResponseBodyFilter {
    /// Name of the filter in the documentation of the list.
    const NAME: &'static str;

    /// Filters a piece of a streamed body. After an error, the remaining filters still run, since the events before the
    /// error are sent to the client.
    ///
    /// # Errors
    /// Returns an error of the provider.
    fn filter_piece<C: ResponseContext>(
        _context: &mut C,
        _piece: &mut StreamPiece<'_>,
    ) -> Result<(), UpstreamError> {
        Ok(())
    }

    /// Ends a streamed body that the provider has completed.
    fn finish_stream<C: ResponseContext>(_context: &mut C, _end: &mut StreamEnd) {}

    /// Filters a buffered body, which is sent with its length. Async because long bodies are translated on another
    /// thread.
    ///
    /// # Errors
    /// Returns the failure of the attempt.
    fn filter_buffered<C: ResponseContext>(
        _context: &mut C,
        _body: &mut BufferedBody,
    ) -> impl Future<Output = Result<(), C::Error>> + Send {
        ready(Ok(()))
    }
}

/// Piece of a streamed response body, as the filters process it.
pub struct StreamPiece<'p> {
    /// Bytes of the provider, until a filter has taken them.
    pub upstream: Option<Bytes>,
    /// Number of bytes that the provider sent.
    pub length: usize,
    /// True if the provider has ended its stream.
    pub end_of_stream: bool,
    /// Buffer of the events that are sent to the client.
    pub downstream: &'p mut OutputBuffer,
}

/// Data for the end of a streamed response: usage and settlement.
#[derive(Default)]
pub struct StreamEnd {
    /// Usage that is reported to the client; `None` before it is metered.
    pub usage: Option<TokenUsage>,
    /// Objects of the settlement, JSON members without braces.
    pub settlement_members: Vec<u8>,
    /// JSON members that the last event of the stream carries.
    pub members: Vec<u8>,
}

/// Body of a response that is sent with its length.
#[derive(Default)]
pub struct BufferedBody {
    /// Responses of the provider, until a filter has taken them.
    pub upstream: Vec<UpstreamAnswer>,
    /// Translated response, until it is metered.
    pub translated: Option<BufferedResponse>,
    /// Objects of the settlement, JSON members without braces.
    pub settlement_members: Vec<u8>,
    /// Body for the client.
    pub downstream: Vec<Bytes>,
    /// JSON members for the header fields of a response whose body is not JSON.
    pub head_members: Vec<u8>,
}

/// Usage of a complete response.
pub struct ResponseUsage {
    /// Work that is charged.
    pub charged_work: WorkDone,
    /// Work of this provider, which is less than the charged work if other providers did a part.
    pub provider_work: WorkDone,
    /// Energy that the provider measured.
    pub measured: Option<MeasuredEnergy>,
    /// Abilities of the offer that the response has shown.
    pub observation: OfferObservation,
    /// Finish reason of the response; `None` if none has arrived.
    pub finish_reason: Option<FinishReason>,
    /// True if the model generated output that cannot be translated.
    pub is_malformed: bool,
}

/// Response that the filters process. It is an attempt of the failover driver, a response of choices that were
/// requested one by one, or the context of Pingora's own proxy loop.
pub trait ResponseContext: Send {
    /// Failure of an attempt.
    type Error: From<UpstreamError> + Send;

    /// Returns the translation of a streamed body; `None` for a buffered response and in Pingora's own proxy loop. A
    /// streamed body without a translation fails, so that no byte of it reaches the client.
    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)>;

    /// Records the time and the progress of a stream, after `bytes` more bytes from the provider.
    fn record_progress(&mut self, bytes: usize);

    /// Returns the usage of the complete response if the translation covers only a part of it, else `None`.
    fn total_usage(&self) -> Option<TokenUsage> {
        None
    }

    /// Translates the provider's responses into one buffered response.
    fn translate(
        &mut self,
        upstream: Vec<UpstreamAnswer>,
    ) -> impl Future<Output = Result<BufferedResponse, Self::Error>> + Send;

    /// Estimates the tokens of a response by the bytes of its text, for a provider that reports no usage.
    fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage;

    /// Charges a response; returns the members `environment_impact` and `billing_cost`.
    fn settle(&mut self, metered: ResponseUsage) -> Vec<u8>;

    /// Returns true if the body is a JSON object.
    fn is_json(&self) -> bool {
        true
    }
}

/// Filters a piece of a streamed body: [`ProxyHttp::response_body_filter`] and the failover driver call this for each
/// piece of the provider, and with `end_of_stream` at its end. Events for the client are added to `downstream`.
///
/// # Errors
/// Returns the error of the provider; `downstream` then has the events before the error.
///
/// [`ProxyHttp::response_body_filter`]: pingora::proxy::ProxyHttp::response_body_filter
pub fn response_body_filter<C: ResponseContext>(
    context: &mut C,
    body: Option<Bytes>,
    end_of_stream: bool,
    downstream: &mut OutputBuffer,
) -> Result<(), UpstreamError> {
    let length = body.as_ref().map_or(0, Bytes::len);
    ResponseBodyFilters::filter_piece(
        context,
        &mut StreamPiece { upstream: body, length, end_of_stream, downstream },
    )
}

/// List of response body filters that are called one after another.
pub trait ResponseBodyFilterChain {
    /// Names of the filters, in their order.
    const NAMES: &'static [&'static str];

    /// Calls [`ResponseBodyFilter::filter_piece`] of each filter.
    ///
    /// # Errors
    /// Returns the first error.
    fn filter_piece<C: ResponseContext>(
        context: &mut C,
        piece: &mut StreamPiece<'_>,
    ) -> Result<(), UpstreamError>;

    /// Calls [`ResponseBodyFilter::finish_stream`] of each filter.
    fn finish_stream<C: ResponseContext>(context: &mut C) -> StreamEnd;

    /// Calls [`ResponseBodyFilter::filter_buffered`] of each filter, up to the first failure.
    ///
    /// # Errors
    /// Returns the failure of the attempt.
    fn filter_buffered<C: ResponseContext>(
        context: &mut C,
        upstream: Vec<UpstreamAnswer>,
    ) -> impl Future<Output = Result<BufferedBody, C::Error>> + Send;
}

/// Implements [`ResponseBodyFilterChain`] for tuples of one filter up to the number of names.
macro_rules! chains {
    () => {};
    ($first:ident $($filter:ident)*) => {
        impl<$first: ResponseBodyFilter, $($filter: ResponseBodyFilter),*> ResponseBodyFilterChain
            for ($first, $($filter,)*)
        {
            const NAMES: &'static [&'static str] = &[$first::NAME, $($filter::NAME),*];

            fn filter_piece<Z: ResponseContext>(context: &mut Z, piece: &mut StreamPiece<'_>) -> Result<(), UpstreamError> {
                let result = $first::filter_piece(context, piece);
                $(let result = result.and($filter::filter_piece(context, piece));)*
                result
            }

            fn finish_stream<Z: ResponseContext>(context: &mut Z) -> StreamEnd {
                let mut end = StreamEnd::default();
                $first::finish_stream(context, &mut end);
                $($filter::finish_stream(context, &mut end);)*
                end
            }

            async fn filter_buffered<Z: ResponseContext>(
                context: &mut Z,
                upstream: Vec<UpstreamAnswer>,
            ) -> Result<BufferedBody, Z::Error> {
                let mut body = BufferedBody { upstream, ..BufferedBody::default() };
                $first::filter_buffered(context, &mut body).await?;
                $($filter::filter_buffered(context, &mut body).await?;)*
                Ok(body)
            }
        }
        chains!($($filter)*);
    };
}

chains!(A B C D E F G H);
