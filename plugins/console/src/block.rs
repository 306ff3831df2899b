//! Parts of a page.

pub use crate::cell::{Cell, CellState, Row};
use crate::chart::BarChart;
pub use crate::field::Field;
use crate::line_chart::LineChart;
use crate::text::Text;

/// Building block of a console page.
#[derive(Clone, Debug)]
pub enum Block {
    /// Message about an action or a problem.
    Notice(NoticeKind, Text),
    /// Secret with its label, which is shown only once.
    Secret(Text, String),
    /// Row of tiles, each with a figure and its label.
    Tiles(Vec<Tile>),
    /// Table.
    Table(Table),
    /// Table that is shown after a click, such as the values of plots.
    Details(Table),
    /// Bar chart.
    Chart(BarChart),
    /// Lines of a measured value above bars of requests.
    LineChart(LineChart),
    /// Form.
    Form(Form),
    /// Header of every printed page, such as the number of an invoice; not shown on the screen.
    RunningHeader(Text),
    /// Heading of the blocks that follow.
    Heading(Text),
    /// Text of several lines, which are wrapped, such as an answer of a model or an explanation.
    Prose(Text),
    /// Text with its own line breaks and spaces, such as a configuration.
    Code(String),
    /// Columns next to each other, each with a title and lines of text.
    Columns(Vec<(Text, Vec<Text>)>),
    /// List of links, each as its path and its text.
    Links(Vec<(String, Text)>),
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Message that an action was completed.
    Success,
    /// Warning about a problem that needs attention.
    Warning,
    /// Message that an action was refused.
    Error,
}

impl NoticeKind {
    /// Returns the class in the style sheet.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Success => "done",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Tile that shows one figure with its label.
#[derive(Clone, Debug, Default)]
pub struct Tile {
    /// Label of the figure.
    pub label: Text,
    /// Figure, with its unit.
    pub value: Text,
    /// Additional text below the figure.
    pub detail: Text,
    /// State of the figure, such as a problem.
    pub state: CellState,
}

/// Maximum number of cells of a stacked table that repeats the heading of the column in each cell. Cells of larger
/// tables have no headings, so that the page stays small.
const LARGE_TABLE_CELLS: usize = 100;
/// Number of columns that fit on a narrow screen.
const STACKED_COLUMNS: usize = 2;
/// Number of columns that fit on a screen of medium width.
const WIDE_COLUMNS: usize = 6;
/// Table of a page.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Title of the table.
    pub title: Text,
    /// Headings of the columns.
    pub headings: Vec<&'static str>,
    /// Rows of the table, each with a cell for every column.
    pub rows: Vec<Row>,
    /// Text that is shown if the table has no rows.
    pub empty_text: &'static str,
    /// Path of the next page of rows; `None` on the last page.
    pub next: Option<String>,
    /// True if the table is shown on the screen only, not in print.
    pub is_screen_only: bool,
}

impl Table {
    /// Returns true if narrow screens show each row as a list of its cells with their headings.
    pub(crate) const fn stacks_on_narrow_screens(&self) -> bool {
        self.headings.len() > STACKED_COLUMNS
    }

    /// Returns true if the table has so many cells that a heading in each cell would make its HTML much larger.
    pub(crate) const fn has_many_cells(&self) -> bool {
        self.headings.len() * self.rows.len() > LARGE_TABLE_CELLS
    }

    /// Returns true if screens of medium width also show each row as a list of its cells with their headings.
    pub(crate) const fn stacks_on_medium_screens(&self) -> bool {
        self.headings.len() > WIDE_COLUMNS
    }

    /// Returns the heading of a column.
    pub(crate) fn column_heading(&self, column: usize) -> &'static str {
        self.headings.get(column).copied().unwrap_or_default()
    }

    /// Returns true if a column has numbers, which are aligned to the right.
    pub(crate) fn is_numeric_column(&self, column: usize) -> bool {
        self.rows.first().and_then(|row| row.get(column)).is_some_and(|cell| cell.numeric)
    }
}

/// Prefix of the field names under which the language switch sends the values that were typed into another form.
pub const TYPED_VALUE_PREFIX: &str = "typed_";
/// Hidden field with the version of the object that a form changes.
const VERSION_FIELD: &str = "version";

/// Form. It is sent with POST, or with GET if it is a query.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// Path to which the form is sent.
    pub action: String,
    /// True for a search form, which changes nothing and needs no CSRF token.
    pub is_query: bool,
    /// Title; empty for a button in a table.
    pub title: Text,
    /// Input fields of the form.
    pub fields: Vec<Field>,
    /// Text of the button.
    pub submit: Text,
    /// Second button of the form: the name and the value that it sends, and its text.
    pub second_button: Option<(&'static str, &'static str, &'static str)>,
    /// True if the action cannot be undone.
    pub is_irreversible: bool,
    /// True if the fields have the values that a person has typed and that are not stored.
    pub is_restored: bool,
}

impl Form {
    /// Creates a form.
    #[must_use]
    pub fn new(action: impl Into<String>, title: impl Into<Text>, submit: impl Into<Text>) -> Self {
        Self { action: action.into(), title: title.into(), submit: submit.into(), ..Self::default() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with_field(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }

    /// Adds a second button, which sends a name and a value.
    #[must_use]
    pub const fn with_second_button(
        mut self,
        (name, value): (&'static str, &'static str),
        text: &'static str,
    ) -> Self {
        self.second_button = Some((name, value, text));
        self
    }

    /// Returns true if the form was refused because its object was changed since the form was shown.
    #[must_use]
    pub fn has_version_conflict(&self) -> bool {
        self.fields.iter().any(|field| field.name == VERSION_FIELD && !field.error.is_empty())
    }

    /// Shows the stored value at each field whose value differs, after a conflict with another change. The hidden
    /// fields, such as the version, take the stored values, so that a further submission replaces what is stored.
    pub fn show_stored_values(&mut self, stored: &Self) {
        for field in &mut self.fields {
            let Some(other) = stored.fields.iter().find(|other| other.name == field.name) else { continue };
            if field.kind == FieldKind::Hidden {
                field.value.clone_from(&other.value);
                field.error = Text::default();
            } else if field.value.trim() != other.value {
                field.error = match &*other.value {
                    "" => "This field is empty now in the stored version.".into(),
                    value => Text::with_values(
                        "The stored version has {0} here now.",
                        [other.kind.shown_value(value)],
                    ),
                };
            }
        }
        self.focus_first_error();
    }

    /// Returns the number of fields that show why their values were refused.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.fields.iter().filter(|field| field.shows_error()).count()
    }

    /// Returns the values that a person has typed and that are not stored, except passwords. Each has its field name
    /// after [`TYPED_VALUE_PREFIX`]. Returns no values if the form shows stored ones.
    pub(crate) fn typed_values(&self) -> Vec<(String, &str)> {
        let fields = self.fields.iter().filter(|field| self.is_restored && field.kind != FieldKind::Password);
        fields.map(|field| (format!("{TYPED_VALUE_PREFIX}{}", field.name), field.value.as_str())).collect()
    }

    fn focus_first_error(&mut self) {
        if let Some(field) = self.fields.iter_mut().find(|field| field.shows_error()) {
            field.has_focus = true;
        }
    }

    /// Fills the fields with the values that were sent before, except passwords. `refused` contains pairs of a field
    /// name and the message that is shown at this field.
    pub fn restore_values<'t>(
        &mut self,
        values: &[(String, String)],
        refused: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) {
        let refused: Vec<(&str, &str)> = refused.into_iter().collect();
        self.is_restored |= !values.is_empty();
        for field in &mut self.fields {
            let sent = values.iter().find(|(name, _)| name == field.name);
            if let (Some((_, value)), false) = (sent, matches!(field.kind, FieldKind::Password)) {
                field.value.clone_from(value);
            }
            if let Some((_, why)) = refused.iter().find(|(name, _)| *name == field.name) {
                field.error = Text::from_field_refusal(why);
            }
        }
        self.focus_first_error();
    }
}

/// Input type of a form field.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FieldKind {
    /// Input for one line of text.
    #[default]
    Text,
    /// Password.
    Password,
    /// Input for a calendar day.
    Date,
    /// Input for several lines of text.
    Lines,
    /// Choice among values, each with its displayed name.
    Choice(Vec<(String, Text)>),
    /// Value that is sent but not shown.
    Hidden,
}

impl FieldKind {
    /// Returns the text that a field of this type shows for a value.
    fn shown_value(&self, value: &str) -> Text {
        let options = match self {
            Self::Choice(options) => options.as_slice(),
            _ => &[],
        };
        let found = options.iter().find(|(option, _)| option == value);
        found.map_or_else(|| Text::Data(value.to_owned()), |(_, name)| name.clone())
    }

    /// Creates a choice among values, each with its displayed name.
    #[must_use]
    pub fn choice(options: &[(&str, &'static str)]) -> Self {
        Self::Choice(options.iter().map(|(value, name)| ((*value).to_owned(), Text::from(*name))).collect())
    }
}
