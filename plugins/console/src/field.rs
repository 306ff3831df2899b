//! Field of a form.

use crate::block::FieldKind;
use crate::text::Text;

/// Field of a form.
#[derive(Clone, Debug, Default)]
pub struct Field {
    /// Name of the field in the request.
    pub name: &'static str,
    /// Label of the field.
    pub label: &'static str,
    /// Input type of the field.
    pub kind: FieldKind,
    /// Value that the field contains when the page is shown.
    pub value: String,
    /// Explanation of the expected value.
    pub help: &'static str,
    /// Reason for which the value was refused; empty for none.
    pub error: Text,
    /// True if the field has the focus when the page is shown, such as the first field with an error.
    pub has_focus: bool,
    /// True if a value is required.
    pub required: bool,
    /// HTML attribute `autocomplete`, a hint for password managers.
    pub autocomplete: &'static str,
}

impl Field {
    /// Creates an optional field of one line.
    #[must_use]
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, autocomplete: "off", ..Self::default() }
    }

    /// Creates a field that is not shown.
    #[must_use]
    pub fn hidden(name: &'static str, value: impl Into<String>) -> Self {
        Self { kind: FieldKind::Hidden, value: value.into(), ..Self::new(name, "") }
    }

    /// Sets the input type of the field.
    #[must_use]
    pub fn with_kind(mut self, kind: FieldKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the value that the field contains when the page is shown.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    /// Sets the help text of the field.
    #[must_use]
    pub const fn with_help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    /// Returns true if the field shows why its value was refused; a hidden field shows nothing.
    pub(crate) fn shows_error(&self) -> bool {
        self.kind != FieldKind::Hidden && !self.error.is_empty()
    }

    /// Marks the field as required.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Sets the HTML attribute `autocomplete`, a hint for password managers.
    #[must_use]
    pub const fn with_autocomplete(mut self, hint: &'static str) -> Self {
        self.autocomplete = hint;
        self
    }
}
