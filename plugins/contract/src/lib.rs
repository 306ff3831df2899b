//! The words that every room and the house share: what a request asks, what an
//! answer used, how a refusal is spoken, how a provider fails; and the notations that
//! more than one of them reads or writes.
//!
//! Nothing here does work beyond its own arithmetic. A room may depend on this
//! crate (and on `wire` where it touches bytes) and on no other room.

mod adjust;
mod ask;
pub mod calendar;
mod fault;
mod filters;
pub mod hex;
mod kind;
mod media;
pub mod percent;
mod plain;
mod quantity;
mod refusal;
mod seam;
mod table;
mod task;
mod usage;

pub use adjust::{Adjust, Choices, EXTRAS, Extra, Extras, Noticed, ReasoningName};
pub use ask::{Ask, Edit, Field, Fields, Needs, Said, Thinking};
pub use fault::{Fault, FaultKind};
pub use filters::{Facts, Filter, Filters};
pub use kind::{Dialect, Kind};
pub use media::{Draw, Heard, Picture, PictureSource, Script, Size, Transcribe};
pub use plain::{Answer, Call, Shape};
pub use quantity::{MicroCredits, NanoKwh};
pub use refusal::Refusal;
pub use seam::{
    Abilities, Continuation, Out, Prefill, Progress, Reply, Rescue, Score, Target, Translator, Whole,
};
pub use table::{Code, Row};
pub use task::{Embed, Inputs, Rerank, Task};
pub use usage::{Boundary, Done, Finish, Measured, Stated, Usage, UsageBounds, UsageSource};
