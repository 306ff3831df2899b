//! Confirmation of an action that cannot be undone: a page with the question, the fields of the action and a button.

use super::answer::{self, ConsoleAnswer};
use super::pages::{self, PageContext};
use super::request::ConsoleRequest;
use penstock_console::pages::percent_encode;
use penstock_console::{Block, Field, Form, NoticeKind, Text};
use penstock_core::ApiError;
use serde_json::Value;

/// Name of the field that the button of the question sends, and its value.
const CONFIRMED: (&str, &str) = ("confirmed", "yes");

/// Question before an action.
#[derive(Debug)]
pub struct Confirmation {
    /// Question, with its consequence.
    pub question: &'static str,
    /// Values of its placeholders.
    pub values: Vec<Text>,
    /// Path of the object in the admin API whose name and id are the first value; `None` if `values` has all.
    pub object: Option<String>,
    /// Text of the button.
    pub submit: &'static str,
    /// Names of the fields that the action needs.
    pub fields: &'static [&'static str],
}

/// Returns true if the form was sent by the button of the question.
pub fn is_confirmed(request: &ConsoleRequest) -> bool {
    request.field(CONFIRMED.0) == CONFIRMED.1
}

impl Confirmation {
    /// Returns the path and query of the page with the question.
    pub fn link(&self, request: &ConsoleRequest) -> String {
        let filled = self.fields.iter().map(|name| (name, request.value(name)));
        let pairs: Vec<String> = filled
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", percent_encode(value)))
            .collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", request.path, pairs.join("&"))
    }

    /// Shows the question on a page of the site; `back` is the address of the page without the action.
    ///
    /// # Errors
    /// Returns the refusal of the admin API for the object.
    pub async fn show(self, page: &PageContext<'_>, back: &str) -> Result<ConsoleAnswer, ApiError> {
        let mut values = self.values;
        if let Some(path) = &self.object {
            values.insert(0, object_label(&page.get(path, &[]).await?));
        }
        let question = Text::Template(self.question, values);
        let mut form = Form::new(page.request.path.clone(), "Please confirm", self.submit)
            .with_field(Field::hidden(CONFIRMED.0, CONFIRMED.1));
        form.is_irreversible = true;
        for name in self.fields {
            form = form.with_field(Field::hidden(name, page.request.value(name)));
        }
        let blocks = vec![
            Block::Notice(NoticeKind::Warning, question),
            Block::Form(form),
            Block::Links(vec![(back.to_owned(), "Back without a change".into())]),
        ];
        let path = back.split('?').next().unwrap_or(back);
        pages::render_blocks(page.console, page.request, page.active, path, 200, blocks)
            .or_else(|refusal| Ok(answer::refusal_page(page.console.site, page.request.language, &refusal)))
    }
}

/// Returns the name of an object and its id.
fn object_label(object: &Value) -> Text {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text("name") {
        name if name.is_empty() => Text::Data(text("id")),
        name => Text::Data(format!("{name} ({})", text("id"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_to_the_question_has_the_fields_of_the_action_only() {
        let form = [("account", "a b"), ("form_token", "secret"), ("overlap_seconds", "")];
        let form = form.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut request = ConsoleRequest::default();
        request.path = "/console/keys/k/revoke".to_owned();
        request.form = form;
        let fields: &[&str] = &["account", "overlap_seconds"];
        let confirmation =
            Confirmation { question: "", values: Vec::new(), object: None, submit: "", fields };
        assert_eq!(confirmation.link(&request), "/console/keys/k/revoke?account=a%20b");
    }
}
