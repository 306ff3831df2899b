//! Types shared by the gateway and all plugin crates: requests, usage, errors, provider failures, and the text formats
//! that several crates read or write.
//!
//! This crate contains types and their arithmetic. A plugin crate may depend on this crate, and on `http-wire` and
//! `json-scan` if it handles bytes, but on no other plugin crate. Exceptions: `storage` and `object-storage` depend on
//! `regular-file`, and `usage` on `ledger`.

mod api_error;
mod cache_marker;
pub mod calendar;
mod dialect;
pub mod entry_number;
mod error_catalog;
pub mod function_name;
pub mod hex;
mod inference_request;
mod inference_task;
mod media;
mod member_omissions;
mod model_kind;
mod offer_filters;
mod output_buffer;
pub mod percent;
mod prompt_length;
mod quantity;
mod refused_members;
mod request_adjustment;
mod responses_details;
mod sealed_reasoning;
mod stream_progress;
pub mod task_parameters;
mod traits;
mod unary_adapter;
mod upstream_error;
mod usage;
pub mod usage_row;

pub use api_error::ApiError;
pub use cache_marker::{CacheMarker, CachePosition, CacheTtl};
pub use dialect::{
    AnswerModelName, DIALECTS, Dialect, DialectSpec, ErrorEnvelope, HttpConventions, KeyHeader,
    RateLimitResetFormat, RequestBodyFormat,
};
pub use error_catalog::{ErrorCode, ErrorSpec};
pub use inference_request::{
    BodyEdit, BodyMember, BodyMembers, HistoryFeatures, InferenceRequest, RequiredCapabilities,
    ThinkingDisplay,
};
pub use inference_task::{
    CompletionTask, EmbeddingInputs, EmbeddingTask, InferenceTask, PassthroughDelivery, PassthroughTask,
    RerankTask,
};
pub use media::{
    AudioInput, DurationBasis, GeneratedImage, ImageSize, ImageSource, ImageTask, TranscriptFormat,
    TranscriptionTask,
};
pub use member_omissions::MemberOmissions;
pub use model_kind::{EnergyFormula, KindSpec, MODEL_KINDS, ModelKind, WorkUnit};
pub use offer_filters::{OfferFilterKind, OfferFilters, OfferProperties};
pub use output_buffer::OutputBuffer;
pub use quantity::{MicroCredits, NanoKwh};
pub use refused_members::{NamedMembers, RefusalScope, RefusedMembers};
pub use request_adjustment::{
    AdjustableMember, AdjustableMemberSet, ChoiceSelection, MEMBER_ERROR_WORDS, OfferObservation,
    ReasoningName, RequestAdjustment,
};
pub use responses_details::{
    ChatMessageOrigin, EarlierAnswerMessage, MappedTool, PreviousResponse, ReasoningDisplay,
    ResponseStorePermission, ResponsesDetails, ResponsesRequestPart, SessionHints, StoredInput,
    StoredResponseAccess,
};
pub use sealed_reasoning::{decode_opaque_reasoning, encode_opaque_reasoning};
pub use stream_progress::{RescueMode, StreamProgress};
pub use traits::{
    AttemptTarget, BufferedResponse, ContinuationMethod, OfferCapabilities, PrefillMethod,
    RerankScoreTransform, StreamTranslation, Translator,
};
pub use unary_adapter::{ProviderAdapter, UpstreamAnswer, UpstreamRequest};
pub use upstream_error::{OutputBudget, UpstreamError, UpstreamErrorKind, is_timeout_status};
pub use usage::{
    DeliveredUsage, FinishReason, MeasuredEnergy, MeterBoundary, ReportedUsage, TokenUsage, UsageBounds,
    UsageSource, WorkDone,
};
