//! Confirmation of an action that cannot be undone: a page with the question, the fields of the action and a button.

use super::answer::{self, ConsoleAnswer};
use super::file_deletion;
use super::pages::{self, PageContext};
use super::request::ConsoleRequest;
use penstock_console::pages::percent_encode;
use penstock_console::{Block, Field, Form, NoticeKind, Text};
use penstock_core::{ApiError, ErrorCode};
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
    /// Object in the admin API that the question is about; `None` if `values` already has all values of the question.
    pub object: Option<ConfirmedObject>,
    /// Text of the button.
    pub submit: &'static str,
    /// Names of the fields that the action needs.
    pub fields: &'static [&'static str],
}

/// Object that a question is about.
#[derive(Debug)]
pub enum ConfirmedObject {
    /// Path of an object. Its name and id become the first value of the question.
    Named(String),
    /// Path of an object that must exist. The question already contains its id.
    Existing(String),
    /// Id of a file. The question already contains it; a warning names the batches that read the file.
    File(String),
    /// Name of a user.
    User(String),
    /// Path and query of what the action would change, and the function that shows it below the question.
    Described {
        /// Path of the admin request that reads the object.
        path: String,
        /// Query of the admin request that reads the object.
        query: Vec<(&'static str, String)>,
        /// Function that returns why the action would be refused; `None` if it would be accepted.
        refuse: fn(&ConsoleRequest, &Value) -> Option<ApiError>,
        /// Function that shows the answer.
        describe: fn(&Value) -> ChangePreview,
    },
}

/// Description of what an action would change.
#[derive(Debug, Default)]
pub struct ChangePreview {
    /// Blocks below the question.
    pub blocks: Vec<Block>,
    /// Hidden fields that the action needs besides those of its form.
    pub fields: Vec<(&'static str, &'static str)>,
}

/// Returns true if the form was sent by the button of the question.
pub fn is_confirmed(request: &ConsoleRequest) -> bool {
    request.form_field(CONFIRMED.0) == CONFIRMED.1
}

impl Confirmation {
    /// Returns the path and query of the page with the question.
    pub fn question_path(&self, request: &ConsoleRequest) -> String {
        let filled = self.fields.iter().map(|name| (name, request.form_or_query_value(name)));
        let pairs: Vec<String> = filled
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", percent_encode(value)))
            .collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", request.path, pairs.join("&"))
    }

    /// Checks that the object of the action exists and that the action would be accepted, before its question is shown.
    /// Returns the object; `null` for a question without one.
    ///
    /// # Errors
    /// Returns the refusal of the admin API, or that of the action.
    pub async fn check_confirmed_object(&self, page: &PageContext<'_>) -> Result<Value, ApiError> {
        match &self.object {
            Some(ConfirmedObject::Named(path) | ConfirmedObject::Existing(path)) => {
                page.get_from_admin_api(path, &[]).await
            }
            Some(ConfirmedObject::File(id)) => file_deletion::file_with_batches(page, id).await,
            Some(ConfirmedObject::User(name)) => find_user(page, name).await,
            Some(ConfirmedObject::Described { path, query, refuse, .. }) => {
                let object = read(page, path, query).await?;
                refuse(page.request, &object).map_or(Ok(object), Err)
            }
            None => Ok(Value::Null),
        }
    }

    /// Shows the question on a page of the site; `back` is the path, with its query, of the page that the link "Back
    /// without a change" opens.
    ///
    /// # Errors
    /// Returns the refusal of the admin API for the object, or that of the action.
    pub async fn question_page(self, page: &PageContext<'_>, back: &str) -> Result<ConsoleAnswer, ApiError> {
        let mut values = self.values.clone();
        let mut description = ChangePreview::default();
        let object = self.check_confirmed_object(page).await?;
        match &self.object {
            Some(ConfirmedObject::Named(_)) => values.insert(0, object_label(&object)),
            Some(ConfirmedObject::Described { describe, .. }) => description = describe(&object),
            Some(ConfirmedObject::File(_)) => {
                description.blocks.extend(file_deletion::batch_warning(&object));
            }
            Some(ConfirmedObject::Existing(_) | ConfirmedObject::User(_)) | None => {}
        }
        let question = Text::Template(self.question, values);
        let mut form = Form::new(page.request.path.clone(), "Please confirm", self.submit)
            .with_field(Field::hidden(CONFIRMED.0, CONFIRMED.1));
        form.is_irreversible = true;
        for name in self.fields {
            form = form.with_field(Field::hidden(name, page.request.form_or_query_value(name)));
        }
        for (name, value) in description.fields {
            form = form.with_field(Field::hidden(name, value));
        }
        let mut blocks = vec![Block::Notice(NoticeKind::Warning, question)];
        blocks.extend(description.blocks);
        blocks.push(Block::Form(form));
        blocks.push(Block::Links(vec![(back.to_owned(), "Back without a change".into())]));
        let path = back.split('?').next().unwrap_or(back);
        pages::render_blocks(page.console, page.request, page.active, path, 200, blocks)
            .await
            .or_else(|refusal| Ok(answer::refusal_page(page.console.site, page.request.language, &refusal)))
    }
}

/// Reads what an action would change; parameters without a value are left out.
async fn read(
    page: &PageContext<'_>,
    path: &str,
    query: &[(&'static str, String)],
) -> Result<Value, ApiError> {
    let filled = query.iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<(&str, &str)> = filled.map(|(name, value)| (*name, value.as_str())).collect();
    page.get_from_admin_api(path, &query).await
}

/// Returns the user with this name.
///
/// # Errors
/// Returns 404 if there is none, or the refusal of the admin API.
pub async fn find_user(page: &PageContext<'_>, name: &str) -> Result<Value, ApiError> {
    let users = page.get_from_admin_api("/admin/users", &[]).await?;
    let mut users = users.get("data").and_then(Value::as_array).into_iter().flatten();
    let found = users.find(|user| user.get("name").and_then(Value::as_str) == Some(name));
    let missing = || ApiError::with_message(ErrorCode::NotFound, "There is no user of this name.");
    found.cloned().ok_or_else(missing)
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
        assert_eq!(confirmation.question_path(&request), "/console/keys/k/revoke?account=a%20b");
    }
}
