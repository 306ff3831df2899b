//! Candidates of a request: the offers that can serve it, in the order in which they are asked.

use super::filtered;
use crate::count::{self, Fit, Room};
use crate::live::{Live, ModelLive};
use crate::upstream::offer::OfferLive;
use crate::upstream::pools::{Exploration, Plan, PlanRequest};
use penstock_contract::{Ask, Code, Dialect, Facts, Filters, Kind, Refusal, Task};
use penstock_routing::{BALANCED, BATCH, Entry, Flavor, MAX_PROMPT, split};
use penstock_tokens::Count;
use std::sync::Arc;
use std::time::Duration;

/// A prompt's bytes per token, for choosing among offers only.
const BYTES_PER_TOKEN: usize = 4;

/// Bytes of a sound that is small.
const SMALL_SOUND: u64 = 1 << 20;

/// Tokens of an answer of which nothing is known yet.
const OUTPUT: u64 = 256;

/// What was chosen for one ask.
#[derive(Clone)]
pub struct Selection {
    /// The offers, best first, those of fallback models behind.
    pub entries: Vec<Entry>,
    /// None of them is fit: the least bad is asked all the same.
    pub all_ejected: bool,
    /// It is batch work: cheap, and in no hurry.
    pub batch: bool,
    /// A broken stream is rescued.
    pub rescue: bool,
    /// The model as the answer names it.
    asked_for: Box<str>,
    /// The model that was asked for.
    model: Arc<ModelLive>,
    /// Tokens of the prompt where they may be too many for a window, by model of the catalogue.
    counts: Vec<(Box<str>, Count)>,
    /// What an offer was found to have room for, by its index: another of the same model may have more.
    lowered: Vec<(usize, u64)>,
    preset: Option<Box<str>>,
    /// It was asked under another flavor than `:balanced`.
    narrow: bool,
}

/// Time of a selection.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Time of the steady clock.
    pub now: Duration,
    /// Unix seconds.
    pub at: u64,
}

/// Tokens that an answer of this model will probably have: the same number for
/// every offer, so that prices are compared and not the luck of their last answers.
fn expected_output(live: &Live, model: &ModelLive, ask: &Ask, now: Duration) -> u64 {
    match ask.kind {
        Kind::Chat => {}
        Kind::Embedding | Kind::Rerank => return 0,
        // One image or minute as good as another: it is prices that are compared.
        Kind::Image | Kind::Transcription => return 1,
    }
    let offers = model.offers.iter().filter_map(|index| live.offers.get(*index));
    let typical = offers.filter_map(|offer| offer.figures.lock().typical_output(now)).max();
    let typical = typical.unwrap_or(OUTPUT);
    ask.max_tokens.map_or(typical, |cap| typical.min(cap))
}

/// Whether a request is small enough to explore with.
fn is_small(ask: &Ask, prompt: u64) -> bool {
    match &ask.task {
        Task::Transcribe(task) => task.sound.bytes <= SMALL_SOUND,
        Task::Talk | Task::Embed(_) | Task::Rerank(_) | Task::Draw(_) => prompt <= MAX_PROMPT,
    }
}

/// An offer that can do what is asked.
struct Able<'l> {
    offer: &'l Arc<OfferLive>,
    fit: Fit,
    /// It passes the filters only because its speed is not known.
    unsure: bool,
}

impl Selection {
    /// Creates a selection without offers yet. A `line` of a batch may be `given` a flavor by its client too.
    pub fn new(
        model: Arc<ModelLive>,
        ask: &Ask,
        flavor: &'static dyn Flavor,
        line: bool,
        given: bool,
    ) -> Self {
        Self {
            entries: Vec::new(),
            all_ejected: true,
            batch: line || flavor.name() == BATCH.name(),
            rescue: model.model.rescue,
            // Clients of the messages dialect compare the name with the one that they sent, flavor included.
            asked_for: match ask.dialect {
                Dialect::Chat => split(&ask.model).0.into(),
                Dialect::Messages => ask.model.clone(),
            },
            counts: Vec::new(),
            lowered: Vec::new(),
            preset: ask.preset.clone(),
            // The default flavor of a batch's lines is no choice of the client.
            narrow: flavor != BALANCED && (given || !line),
            model,
        }
    }

    /// Adds the tokens of the prompt for a model of the catalogue.
    pub fn add_count(&mut self, model: &str, count: Count) {
        self.counts.push((model.into(), count));
    }

    /// Adds a model's able offers in the flavor's order: those with room for all that is wanted first.
    ///
    /// # Errors
    /// None of them can do what the request asks for.
    pub fn add(
        &mut self,
        live: &Live,
        model: &ModelLive,
        flavor: &'static dyn Flavor,
        ask: &Ask,
        moment: Moment,
    ) -> Result<(), Refusal> {
        let now = moment.now;
        // Never nothing, or the shortest of asks would find all prices alike.
        let prompt = u64::try_from(ask.prompt_bytes.div_ceil(BYTES_PER_TOKEN).max(1)).unwrap_or(u64::MAX);
        let output = expected_output(live, model, ask, now);
        let able = self.able(live, model, ask, moment)?;
        // Without counts and filters all are alike.
        let alike = able.iter().all(|one| !one.unsure && one.fit == Fit::Whole);
        let explores = alike && self.entries.is_empty() && !self.batch && flavor.explores();
        // In the order of the model's offers, which is that of their numbers.
        let offers: Vec<usize> = able.iter().map(|one| one.offer.offer.index).collect();
        let Plan { mut entries, all_ejected } = model.pool.plan(
            flavor,
            &PlanRequest {
                now,
                prompt_tokens: prompt,
                output_tokens: output,
                seed: rand::random(),
                exploration: if explores && is_small(ask, prompt) {
                    Exploration::Allowed { seed: rand::random() }
                } else {
                    Exploration::Denied
                },
                offers: &offers,
            },
        );
        self.all_ejected &= all_ejected;
        let known = |entry: &Entry| offers.binary_search(&entry.offer).ok().and_then(|at| able.get(at));
        let fit = |entry: &Entry| known(entry).map_or(Fit::Whole, |one| one.fit);
        // Where the input fits none for certain, they are all asked, and say so.
        if able.iter().any(|one| one.fit != Fit::Not) {
            entries.retain(|entry| fit(entry) != Fit::Not);
        }
        if !alike {
            entries.sort_by_key(|entry| (fit(entry), known(entry).is_some_and(|one| one.unsure)));
        }
        self.entries.append(&mut entries);
        Ok(())
    }

    /// The offers of a model that can do what is asked, and may.
    fn able<'l>(
        &self,
        live: &'l Live,
        model: &ModelLive,
        ask: &Ask,
        moment: Moment,
    ) -> Result<Vec<Able<'l>>, Refusal> {
        let mut lacks = None;
        let mut able: Vec<Able<'l>> = Vec::with_capacity(model.offers.len());
        let count = self.count(&model.model.card.id).copied();
        for offer in model.offers.iter().filter_map(|index| live.offers.get(*index)) {
            match offer.lacks(ask) {
                None => {
                    let fit = count.map_or(Fit::Whole, |count| count::fit(&count, offer, ask));
                    able.push(Able { offer, fit, unsure: false });
                }
                Some(refusal) => {
                    lacks.get_or_insert(refusal);
                }
            }
        }
        if able.is_empty() {
            return Err(lacks.unwrap_or_else(|| self.unavailable().retry_after(5)));
        }
        if let Some(filters) = &ask.filters {
            self.filter(filters, &mut able, moment)?;
        }
        Ok(able)
    }

    /// Leaves out the offers that do not meet the filters.
    fn filter(&self, filters: &Filters, able: &mut Vec<Able<'_>>, moment: Moment) -> Result<(), Refusal> {
        let facts: Vec<Facts<'_>> =
            able.iter().map(|one| one.offer.facts(moment.now, moment.at, self.batch)).collect();
        if !facts.iter().any(|facts| filters.allow(facts)) {
            return Err(filtered::nobody(filters, &facts));
        }
        for (one, facts) in able.iter_mut().zip(&facts) {
            one.unsure = filters.is_unsure_of(facts);
        }
        let mut allowed = facts.iter().map(|facts| filters.allow(facts));
        able.retain(|_| allowed.next().unwrap_or(false));
        Ok(())
    }

    /// Nobody can answer now.
    pub fn unavailable(&self) -> Refusal {
        let refusal = Refusal::new(Code::Unavailable);
        if !self.narrow {
            return refusal;
        }
        let sentence = format!("{} The flavor :balanced widens the choice.", refusal.message);
        Refusal::because(Code::Unavailable, sentence)
    }

    /// `model` in the answer: what the client asked for, or the fallback that answered.
    pub fn answer_model<'s>(&'s self, offer: &'s OfferLive) -> &'s str {
        let answering = &offer.offer.model.card.id;
        if *answering == self.model.model.card.id { &self.asked_for } else { answering }
    }

    /// Sampling parameters of the ask's preset.
    pub fn preset<'s>(&self, offer: &'s OfferLive) -> &'s [(Box<str>, Box<str>)] {
        let Some(name) = &self.preset else { return &[] };
        offer.offer.model.presets.get(name).map_or(&[], Vec::as_slice)
    }

    /// The cap on generated tokens to send instead of the client's own or the dialect's, if that does not fit.
    pub fn max_tokens(&self, offer: &OfferLive, ask: &Ask) -> Option<u64> {
        let lowered =
            self.lowered.iter().rfind(|(index, _)| *index == offer.offer.index).map(|(_, left)| *left);
        let left = lowered.or_else(|| self.room(offer, ask).map(|room| room.left));
        let most = [left, offer.offer.max_output].into_iter().flatten().min()?;
        count::wanted(ask, offer).filter(|wanted| *wanted > most).map(|_| most)
    }

    fn room(&self, offer: &OfferLive, ask: &Ask) -> Option<Room> {
        let count = self.count(&offer.offer.model.card.id)?;
        count::room(offer.offer.context_length, count, count::wanted(ask, offer)?)
    }

    fn count(&self, model: &str) -> Option<&Count> {
        self.counts.iter().find(|(id, _)| &**id == model).map(|(_, count)| count)
    }

    /// A provider took less than it was asked for: `said` tokens by its own count, if it told. Whether it can be
    /// asked for less.
    pub fn lower(&mut self, offer: &OfferLive, ask: &Ask, said: Option<u64>) -> bool {
        let certain = self.room(offer, ask).and_then(|room| room.certain);
        let asked = self.max_tokens(offer, ask).or_else(|| count::wanted(ask, offer));
        let left = said.or(certain).filter(|left| asked.is_some_and(|asked| *left < asked));
        self.lowered.extend(left.map(|left| (offer.offer.index, left)));
        left.is_some()
    }

    /// The model that was asked for, for the figures of its last hour.
    pub fn model(&self) -> &ModelLive {
        &self.model
    }
}
