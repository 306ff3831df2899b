//! Cell of a table.

use crate::block::Form;
use crate::language::Language;
use crate::text::Text;
use crate::text_span::TextSpan;

/// Maximum length of a word that fits into a column, in characters.
const LONG_WORD: usize = 20;

/// State that a cell or a figure shows, besides its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellState {
    /// Cell or figure without a state.
    #[default]
    None,
    /// Good state.
    Good,
    /// State that needs attention.
    Warning,
    /// State of a failure.
    Bad,
}

impl CellState {
    /// Returns the class in the style sheet.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// Cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Text of the cell.
    pub text: Text,
    /// Exact value, shown on hover.
    pub exact: Text,
    /// Path of the link; `None` for a cell without a link.
    pub href: Option<String>,
    /// Further links of the cell, each as its path and its text.
    pub links: Vec<(String, Text)>,
    /// True for numbers, which are aligned to the right.
    pub numeric: bool,
    /// State of the cell.
    pub state: CellState,
    /// Button in the cell, as a form without visible fields.
    pub action: Option<Form>,
}

impl Cell {
    /// Creates a cell with text.
    #[must_use]
    pub fn text(text: impl Into<Text>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a cell with a number.
    #[must_use]
    pub fn number(text: impl Into<Text>) -> Self {
        Self { text: text.into(), numeric: true, ..Self::default() }
    }

    /// Creates a cell with a link.
    #[must_use]
    pub fn link(text: impl Into<Text>, href: impl Into<String>) -> Self {
        Self { text: text.into(), href: Some(href.into()), ..Self::default() }
    }

    /// Creates a cell with several links, each as its path and its text.
    #[must_use]
    pub fn links(links: Vec<(String, Text)>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Creates a cell with a button.
    #[must_use]
    pub fn button(action: Form) -> Self {
        Self { action: Some(action), ..Self::default() }
    }

    /// Returns the classes in the style sheet.
    pub(crate) fn class(&self) -> String {
        let is_blank = self.text.is_empty() && self.action.is_none() && self.links.is_empty();
        let kinds = [
            ("number", self.numeric),
            ("blank", is_blank),
            ("action", self.action.is_some()),
            ("time", matches!(self.text, Text::Time(_))),
            ("day", matches!(self.text, Text::Day(_) | Text::MonthDay(_) | Text::Month(_))),
            ("long", self.has_long_word()),
        ];
        let state = Some(self.state.class()).filter(|class| !class.is_empty());
        let shown = kinds.into_iter().filter_map(|(class, is_shown)| is_shown.then_some(class));
        shown.chain(state).collect::<Vec<_>>().join(" ")
    }

    /// Returns the parts of the text of the cell. A day alone is one part, because its cell is not wrapped.
    pub(crate) fn spans(&self, language: Language) -> Vec<TextSpan> {
        match &self.text {
            Text::Day(_) => vec![TextSpan::Plain(self.text.render(language).into_owned())],
            text => text.spans(language),
        }
    }

    /// Returns true if the cell has an exact value that is displayed differently from the text of the cell.
    pub(crate) fn shows_exact_value(&self, language: Language) -> bool {
        !self.exact.is_empty() && self.exact.render(language) != self.text.render(language)
    }

    /// Returns true if the text of the cell is data with a word of more than [`LONG_WORD`] characters.
    fn has_long_word(&self) -> bool {
        let Text::Data(text) = &self.text else { return false };
        text.split(char::is_whitespace).any(|word| word.chars().count() > LONG_WORD)
    }

    /// Sets the state that the cell shows besides its text.
    #[must_use]
    pub fn with_state(mut self, state: CellState) -> Self {
        self.state = state;
        self
    }

    /// Sets the exact value.
    #[must_use]
    pub fn with_exact_value(mut self, exact: impl Into<Text>) -> Self {
        self.exact = exact.into();
        self
    }
}

/// Row of a table.
pub type Row = Vec<Cell>;
