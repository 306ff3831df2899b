//! How an offer is asked: in a dialect, for chat, or in the shape of its
//! provider, for the kinds that are always answered whole.

use super::offer::{OfferLive, RequestHead};
use penstock_contract::{
    Answer, Ask, Call, Dialect, Fault, FaultKind, Kind, Refusal, Shape, Target, Translator, Whole,
};

/// One way of asking.
#[derive(Clone, Copy)]
pub enum Speech {
    /// A pair of dialects.
    Dialects(&'static dyn Translator),
    /// A provider's shape.
    Shape(&'static dyn Shape),
}

impl Speech {
    /// How this offer is asked this; `None` where it cannot be.
    #[must_use]
    pub fn of(offer: &OfferLive, ask: &Ask) -> Option<Self> {
        if let Some(shape) = offer.offer.shape {
            return (shape.kind() == ask.kind).then_some(Self::Shape(shape));
        }
        let dialect = offer.dialect_for(ask.dialect).filter(|_| ask.kind == Kind::Chat)?;
        penstock_dialect::translator(ask.dialect, dialect).map(Self::Dialects)
    }

    /// The dialect that the provider is asked in. Shapes are neighbours of chat.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Dialects(translator) => translator.provider(),
            Self::Shape(_) => Dialect::Chat,
        }
    }

    /// What every request of this kind carries.
    #[must_use]
    pub fn head(self, offer: &OfferLive) -> Option<&RequestHead> {
        match self {
            Self::Dialects(translator) => offer.head(translator.provider()),
            Self::Shape(_) => offer.shaped(),
        }
    }

    /// What the provider is sent for a whole answer.
    ///
    /// # Errors
    /// What it cannot be asked.
    pub fn calls(self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        match self {
            Self::Dialects(translator) => Ok(vec![Call::json(translator.request(ask, target)?)]),
            Self::Shape(shape) => shape.calls(ask, target),
        }
    }

    /// Names of the response headers that the answer is read with.
    #[must_use]
    pub fn heeds(self) -> &'static [&'static str] {
        match self {
            Self::Dialects(_) => &[],
            Self::Shape(shape) => shape.heeds(),
        }
    }

    /// The answer for the client.
    ///
    /// # Errors
    /// What the provider did wrong.
    pub fn whole(self, ask: &Ask, target: &Target<'_>, mut answers: Vec<Answer>) -> Result<Whole, Fault> {
        match self {
            Self::Dialects(translator) => {
                let answer = answers.pop().ok_or_else(|| Fault::new(FaultKind::Malformed))?;
                translator.whole(ask, target, answer.body)
            }
            Self::Shape(shape) => shape.whole(ask, target, answers),
        }
    }
}
