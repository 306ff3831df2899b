//! The members of an admin request, read strictly: whatever is wrong is named
//! by its field, and nothing is done.

use penstock_contract::{MicroCredits, Refusal};
use penstock_storage::keys::KeyLimits;
use rust_decimal::Decimal;
use serde_json::{Map, Value};

/// Longest name, in bytes.
pub const NAME: usize = 200;
/// Most entries of a list.
const ENTRIES: usize = 1_000;
/// Most bytes of them together: two lists of a key, however they are written, are one row of the store.
const LIST_BYTES: usize = 16 << 10;
/// Highest limit of anything counted.
const MOST: u64 = 1_000_000_000_000;
/// The last second of the year 9999.
const LAST: u64 = 253_402_300_799;

/// The members of an object, all of them known.
pub struct Fields<'b> {
    members: &'b Map<String, Value>,
    within: &'static str,
}

/// What a request says of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given<T> {
    /// Nothing: it stays as it is.
    Absent,
    /// `null`: it goes.
    Null,
    /// A value.
    Some(T),
}

impl<T> Given<T> {
    /// The value, if there is one.
    pub fn some(self) -> Option<T> {
        match self {
            Self::Some(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Puts what was given in the place of what was.
    pub fn onto(self, place: &mut Option<T>) {
        match self {
            Self::Absent => {}
            Self::Null => *place = None,
            Self::Some(value) => *place = Some(value),
        }
    }
}

impl<'b> Fields<'b> {
    /// The members of a request's body.
    ///
    /// # Errors
    /// A member that is not known.
    pub fn of(body: &'b Value, known: &[&str]) -> Result<Self, Refusal> {
        let members =
            body.as_object().ok_or_else(|| Refusal::invalid("body", "The body has to be a JSON object."))?;
        Self { members, within: "" }.known(known)
    }

    fn known(self, known: &[&str]) -> Result<Self, Refusal> {
        match self.members.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(self),
            Some(name) => {
                let shown: String = name.chars().take(NAME).collect();
                let message = format!("This field is not known; known are {}.", known.join(", "));
                Err(Refusal::invalid(format!("{}{shown}", self.within), message))
            }
        }
    }

    fn wrong(&self, name: &str, wanted: &str) -> Refusal {
        let path = format!("{}{name}", self.within);
        let message = format!("{path} has to be {wanted}.");
        Refusal::invalid(path, message)
    }

    fn read<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Given<T>, Refusal> {
        match self.members.get(name) {
            None => Ok(Given::Absent),
            Some(Value::Null) => Ok(Given::Null),
            Some(value) => read(value).map(Given::Some).ok_or_else(|| self.wrong(name, wanted)),
        }
    }

    /// A text for people.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn text(&self, name: &str) -> Result<Given<String>, Refusal> {
        let fits = |text: &&str| text.len() <= NAME && !text.chars().any(char::is_control);
        self.read(name, &format!("a text of at most {NAME} bytes on one line"), |value| {
            value.as_str().filter(fits).map(str::to_owned)
        })
    }

    /// A list of names.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn texts(&self, name: &str) -> Result<Given<Vec<String>>, Refusal> {
        let fits =
            |text: &&str| !text.is_empty() && text.len() <= NAME && !text.chars().any(char::is_control);
        let wanted = format!("a list of at most {ENTRIES} names, {LIST_BYTES} bytes together");
        self.read(name, &wanted, |value| {
            let items = value.as_array().filter(|items| items.len() <= ENTRIES)?;
            let texts = items.iter().map(|item| item.as_str().filter(fits).map(str::to_owned));
            let texts: Vec<String> = texts.collect::<Option<_>>()?;
            (texts.iter().map(String::len).sum::<usize>() <= LIST_BYTES).then_some(texts)
        })
    }

    /// One of a few words.
    ///
    /// # Errors
    /// It is none of them.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Given<T>, Refusal> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.read(name, &names.join(" or "), |value| {
            let text = value.as_str()?;
            words.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant)
        })
    }

    /// A whole number of something, at least `least`.
    ///
    /// # Errors
    /// It is none, or out of range.
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Given<u64>, Refusal> {
        self.read(name, &format!("a whole number from {least} to {most}"), |value| {
            value.as_u64().filter(|number| (least..=most).contains(number))
        })
    }

    /// A time to come, Unix seconds.
    ///
    /// # Errors
    /// It is none, or over.
    pub fn future(&self, name: &str, now: u64) -> Result<Given<u64>, Refusal> {
        self.read(name, "a Unix time in seconds that is still to come", |value| {
            value.as_u64().filter(|at| *at > now && *at <= LAST)
        })
    }

    /// An amount of credits above zero, as a number or a text, with at most six decimals.
    ///
    /// # Errors
    /// It is none.
    pub fn credits(&self, name: &str) -> Result<Given<u64>, Refusal> {
        let text = match self.members.get(name) {
            None => return Ok(Given::Absent),
            Some(Value::Null) => return Ok(Given::Null),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(self.wrong(name, "an amount of credits")),
        };
        let amount = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
        let Ok(amount) = amount else { return Err(self.wrong(name, "an amount of credits, such as 12.5")) };
        if amount <= Decimal::ZERO {
            return Err(self.wrong(name, "more than 0 credits; leave it out, or null, for no limit"));
        }
        if amount.normalize().scale() > 6 {
            return Err(self.wrong(name, "an amount with at most six decimals"));
        }
        let micro = MicroCredits::from_credits(amount).and_then(|micro| u64::try_from(micro.0).ok());
        micro.map(Given::Some).ok_or_else(|| self.wrong(name, "an amount of at most 9000000000000 credits"))
    }

    /// Changes limits as the member `limits` says.
    ///
    /// # Errors
    /// The limit that is not what it has to be.
    pub fn limits(&self, onto: &mut KeyLimits) -> Result<(), Refusal> {
        let members = match self.members.get("limits") {
            None => return Ok(()),
            Some(Value::Null) => {
                *onto = KeyLimits::default();
                return Ok(());
            }
            Some(value) => value.as_object().ok_or_else(|| self.wrong("limits", "an object"))?,
        };
        let limits = Fields { members, within: "limits." }.known(&LIMITS)?;
        limits.limit("requests_per_minute", MOST)?.onto(&mut onto.requests_per_minute);
        limits.limit("tokens_per_minute", MOST)?.onto(&mut onto.tokens_per_minute);
        match limits.limit("concurrent", u32::MAX.into())? {
            Given::Absent => {}
            Given::Null => onto.concurrent = None,
            Given::Some(most) => onto.concurrent = u32::try_from(most).ok(),
        }
        limits.credits("budget_per_day")?.onto(&mut onto.budget_per_day);
        limits.credits("budget_per_month")?.onto(&mut onto.budget_per_month);
        Ok(())
    }

    fn limit(&self, name: &str, most: u64) -> Result<Given<u64>, Refusal> {
        let wanted = format!("a whole number from 1 to {most}; leave it out, or null, for no limit");
        self.read(name, &wanted, |value| value.as_u64().filter(|number| (1..=most).contains(number)))
    }
}

/// The members of `limits`.
pub const LIMITS: [&str; 5] =
    ["requests_per_minute", "tokens_per_minute", "concurrent", "budget_per_day", "budget_per_month"];
