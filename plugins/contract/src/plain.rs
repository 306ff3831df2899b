//! The seam between the house and providers of the kinds that are always
//! answered whole: embeddings, rerank, images, transcriptions.
//!
//! A [`Shape`] is how one family of providers is asked for one kind of work. To
//! add one: a file in the kind's room that implements it, and a line in the
//! room's table. The house does the rest (route, fail over, bill, log).

use crate::ask::Ask;
use crate::fault::Fault;
use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::seam::{Target, Whole};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;

/// One request to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Type of the body.
    pub content_type: Cow<'static, str>,
    /// The body in pieces; what is unchanged is a slice of the ask's own bytes.
    pub body: Vec<Bytes>,
    /// The piece in front of which the client's upload goes, where there is one:
    /// it is read from where it was spooled to, each time anew.
    pub upload: Option<usize>,
}

impl Call {
    /// A request with a JSON body.
    #[must_use]
    pub const fn json(body: Vec<Bytes>) -> Self {
        Self { content_type: Cow::Borrowed("application/json"), body, upload: None }
    }
}

/// A provider's whole answer to one [`Call`], status 200.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The body.
    pub body: Bytes,
    /// Values of the headers that [`Shape::heeds`] names, in its order.
    pub headers: Vec<Option<Box<str>>>,
}

impl Answer {
    /// A header's value, by its place in [`Shape::heeds`], as a number.
    #[must_use]
    pub fn number(&self, header: usize) -> Option<u64> {
        self.headers.get(header)?.as_deref()?.trim().parse().ok()
    }
}

/// How one family of providers is asked for one kind of work.
///
/// Same ask and target, same calls. Nothing is known of time, and nothing is
/// kept from one ask to the next.
pub trait Shape: Sync + Send {
    /// The kind of work.
    fn kind(&self) -> Kind;

    /// Its name in the configuration, lower case.
    fn name(&self) -> &'static str;

    /// The path below the provider's base URL.
    fn path(&self) -> &'static str;

    /// Names of the response headers that [`Shape::whole`] reads, lower case.
    fn heeds(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the provider is sent, at least one call. Several are made one after
    /// the other at the same provider, and all of them again at the next one
    /// should one fail.
    ///
    /// # Errors
    /// What this provider cannot be asked, naming the field; another may do.
    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal>;

    /// The answer for the client from as many answers as there were calls, in
    /// their order.
    ///
    /// # Errors
    /// What the provider did wrong; the next one is asked.
    fn whole(&self, ask: &Ask, target: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault>;
}

impl fmt::Debug for dyn Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
