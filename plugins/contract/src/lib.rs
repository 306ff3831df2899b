//! Types shared by the gateway and all plugin crates: requests, usage, errors, provider failures, and the text formats
//! that several crates read or write.
//!
//! The code here is limited to the arithmetic of these types. A plugin crate may depend on this crate (and on `wire`
//! where it handles bytes) and on no other plugin crate.

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
