//! Tool calls: whose fragment is this?
//!
//! The dialect says: `index` tells calls apart, id and name come once. Engines
//! leave out the index, repeat id and name, send null for what is absent, give
//! every call index 0, or send arguments as an object.
//!
//! Where the index does not tell, a fragment with a name begins another call if
//! the arguments so far are whole or still empty and its id or name differs, or
//! if they are whole and it has arguments itself.

use super::voice::{Half, Voice};
use crate::arguments::{Arguments, State};
use crate::decode::{MAX_NAME, MAX_TOOLS};
use crate::event::{Event, Text};
use crate::scan;
use bytes::Bytes;
use penstock_contract::{Fault, FaultKind};
use penstock_wire::json;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Arguments are kept up to here: while the call's name is missing, and to see
/// whether they are complete. Without a name by then it is no tool call.
const MAX_WAITING: usize = 1 << 20;

/// The calls of one candidate.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The call that fragments without any mark belong to.
    last: usize,
    started: u32,
    /// Bytes of all their arguments.
    kept: usize,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: Option<Text>,
    /// Its id is the gateway's own.
    own_id: bool,
    name: Option<Text>,
    /// Number given when it started.
    number: Option<u32>,
    /// Arguments so far as escaped text.
    arguments: Vec<u8>,
    watch: Arguments,
    /// How many of their bytes went by the watch.
    watched: usize,
}

/// One element of `tool_calls`, or a `function_call`; values as written.
#[derive(Debug, Default)]
pub(super) struct Fragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    pub(super) arguments: Option<&'a [u8]>,
    /// It is known to be a call of its own.
    pub(super) alone: bool,
}

impl<'a> Fragment<'a> {
    /// Reads an element; what is null or empty is absent. `None` for what is no object, or has a member of a
    /// wrong type.
    pub(super) fn read(element: &'a [u8]) -> Option<Self> {
        let mut fragment = Self::default();
        let mut members = json::members(element);
        while let Some((key, value)) = members.next_named() {
            match &*key {
                _ if value == b"null" => {}
                "index" => fragment.index = Some(scan::number(value)?),
                "id" => fragment.id = text(value)?,
                "function" => fragment.function(value)?,
                _ => {}
            }
        }
        scan::is_object(element).then_some(fragment)
    }

    /// Whether it has arguments that are more than white space.
    fn has_arguments(&self) -> bool {
        let blank = |arguments: &[u8]| {
            inside(arguments)
                .is_some_and(|said| json::unescape(said).is_some_and(|said| said.trim().is_empty()))
        };
        self.arguments.is_some_and(|arguments| !blank(arguments))
    }

    /// Reads a `function` object; `None` for what is none, or has a name that is no string. Arguments may be of any
    /// type: engines give what the model wrote.
    pub(super) fn function(&mut self, object: &'a [u8]) -> Option<()> {
        let mut members = json::members(object);
        while let Some((key, value)) = members.next_named() {
            match &*key {
                "name" if value != b"null" => self.name = text(value)?,
                "arguments" => {
                    self.arguments = Some(value).filter(|value| *value != b"null" && *value != b"\"\"");
                }
                _ => {}
            }
        }
        scan::is_object(object).then_some(())
    }
}

/// The inside of a string, if there is something in it; `None` for what is no string.
fn text(value: &[u8]) -> Option<Option<&[u8]>> {
    scan::inner(value).map(|inside| Some(inside).filter(|inside| !inside.is_empty()))
}

/// The inside of a string that is not empty.
fn inside(value: &[u8]) -> Option<&[u8]> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!inside.is_empty()).then_some(inside)
}

/// Where a fragment belongs and where its events go.
pub(super) struct Place<'a> {
    pub(super) source: &'a Bytes,
    pub(super) choice: u32,
    pub(super) seed: &'a str,
    pub(super) half: &'a mut Half,
    pub(super) events: &'a mut Vec<Event>,
}

impl Calls {
    /// Bytes of arguments that are kept.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// Takes one fragment.
    pub(super) fn take(&mut self, fragment: &Fragment<'_>, place: &mut Place<'_>) -> Result<(), Fault> {
        let malformed = || Fault::new(FaultKind::Malformed);
        // How many calls there are and what they are called, the model decides.
        let at = self.find(fragment).ok_or_else(Fault::model_output)?;
        self.last = at;
        let number = self.started;
        let call = self.calls.get_mut(at).ok_or_else(malformed)?;
        if call.id.is_none()
            && let Some(id) = fragment.id
        {
            call.id = Some(short(place.source, id).ok_or_else(malformed)?);
        }
        let mut fresh = Text::default();
        if let Some(arguments) = fragment.arguments {
            fresh = match inside(arguments) {
                Some(inside) => place.half.join(Voice::Arguments(at), place.source, inside),
                // Not a string: the arguments themselves.
                None => std::str::from_utf8(arguments).ok().map(Text::new),
            }
            .ok_or_else(malformed)?;
            self.kept += call.keep(&fresh);
        }
        if call.number.is_none() {
            let Some(name) = fragment.name else {
                return if call.arguments.len() > MAX_WAITING { Err(malformed()) } else { Ok(()) };
            };
            if name.len() > MAX_NAME {
                return Err(Fault::model_output());
            }
            let name = short(place.source, name).ok_or_else(malformed)?;
            call.name = Some(name.clone());
            call.own_id = call.id.is_none();
            let id = match call.id.take() {
                Some(id) => id,
                None => Text::new(&made_up(place.seed, place.choice, number)),
            };
            call.id = Some(id.clone());
            call.number = Some(number);
            self.started += 1;
            place.events.push(Event::ToolStart { choice: place.choice, tool: number, id, name });
            fresh = Text::from_json(Bytes::copy_from_slice(&call.arguments)).ok_or_else(malformed)?;
        }
        if let Some(tool) = call.number.filter(|_| !fresh.is_empty()) {
            place.events.push(Event::ToolArguments { choice: place.choice, tool, fragment: fresh });
        }
        Ok(())
    }

    /// Notes arguments that were recognised without being taken.
    pub(super) fn more(&mut self, tool: u32, fragment: &Text) {
        let call = self.calls.iter_mut().rfind(|call| call.number == Some(tool));
        self.kept += call.map_or(0, |call| call.keep(fragment));
    }

    /// A call with arguments and no name cannot be passed on.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        let nameless = |call: &Call| call.number.is_none() && !call.arguments.is_empty();
        if self.calls.iter().any(nameless) { Err(Fault::new(FaultKind::Malformed)) } else { Ok(()) }
    }

    /// The call that a fragment belongs to, made if it is new; `None` if there are too many.
    fn find(&mut self, fragment: &Fragment<'_>) -> Option<usize> {
        if fragment.alone {
            return self.add(fragment.index);
        }
        let by_index = |index| self.calls.iter().rposition(|call| call.index == Some(index));
        let by_both =
            |index, id| self.calls.iter().rposition(|call| call.index == Some(index) && is_id(call, id));
        let by_id = |id| self.calls.iter().rposition(|call| is_id(call, id));
        // A call that has an index of its own is told apart by it, whatever its id.
        let unnumbered = |id| self.calls.iter().rposition(|call| call.index.is_none() && is_id(call, id));
        let known = match (fragment.index, fragment.id) {
            (Some(index), Some(id)) => {
                by_both(index, id).or_else(|| by_index(index)).or_else(|| unnumbered(id))
            }
            (Some(index), None) => by_index(index),
            (None, Some(id)) => by_id(id),
            (None, None) => (self.last < self.calls.len()).then_some(self.last),
        };
        let known = known.filter(|at| !self.is_another(*at, fragment));
        known.or_else(|| self.add(fragment.index))
    }

    fn add(&mut self, index: Option<u64>) -> Option<usize> {
        if self.calls.len() >= MAX_TOOLS {
            return None;
        }
        self.calls.push(Call::new(index));
        Some(self.calls.len() - 1)
    }

    /// Whether a fragment that looks like more of this call begins another one.
    fn is_another(&mut self, at: usize, fragment: &Fragment<'_>) -> bool {
        let Some(call) = self.calls.get_mut(at).filter(|call| call.number.is_some()) else { return false };
        let Some(name) = fragment.name else { return false };
        let renamed = !is_text(call.name.as_ref(), name);
        let other_id = fragment.id.is_some_and(|id| !is_id(call, id));
        if renamed && other_id {
            return true;
        }
        // An id that comes late is not another one.
        let differs = renamed || (other_id && !call.own_id);
        match call.progress() {
            State::Empty => differs,
            State::Whole => differs || fragment.has_arguments(),
            State::Open | State::Odd | State::Invalid => false,
        }
    }
}

impl Call {
    fn new(index: Option<u64>) -> Self {
        Self {
            index,
            id: None,
            own_id: false,
            name: None,
            number: None,
            arguments: Vec::new(),
            watch: Arguments::new(),
            watched: 0,
        }
    }

    /// How far its arguments have come. An engine may make this be asked with every
    /// fragment, so what went by is not looked at again.
    fn progress(&mut self) -> State {
        if let Some(fresh) = self.arguments.get(self.watched..).and_then(json::unescape) {
            self.watch.push(&fresh);
        }
        self.watched = self.arguments.len();
        match self.watch.state() {
            State::Odd if self.watch.end() => State::Whole,
            state => state,
        }
    }

    /// Keeps more of its arguments; how much that was.
    fn keep(&mut self, fragment: &Text) -> usize {
        if self.arguments.len() > MAX_WAITING {
            return 0;
        }
        self.arguments.extend_from_slice(fragment.escaped());
        fragment.escaped().len()
    }
}

fn is_id(call: &Call, id: &[u8]) -> bool {
    is_text(call.id.as_ref(), id)
}

/// Whether a text is what stands between the quotes of this string, however that is escaped.
fn is_text(known: Option<&Text>, inside: &[u8]) -> bool {
    known.is_some_and(|known| known.escaped() == inside || json::says(inside, &known.decoded()))
}

/// A name or an id: sound and not endless.
fn short(source: &Bytes, inside: &[u8]) -> Option<Text> {
    if inside.len() > MAX_NAME {
        return None;
    }
    Text::from_json(source.slice_ref(inside))
}

/// An id for a call that came without one of its own: `call_` and 24
/// hexadecimal digits, the same for the same answer.
pub(crate) fn made_up(seed: &str, choice: u32, number: u32) -> String {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, choice, number, salt).hash(&mut hasher);
        hasher.finish()
    };
    format!("call_{:016x}{:08x}", hash(0), hash(1) >> 32)
}
