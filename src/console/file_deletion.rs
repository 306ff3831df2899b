//! Question before the deletion of a file: it names the unfinished batches that read the file, because they fail.

use super::confirmation::{Confirmation, ConfirmedObject};
use super::pages::PageContext;
use super::request::ConsoleRequest;
use penstock_console::pages::percent_encode;
use penstock_console::{Block, NoticeKind, Text};
use penstock_core::ApiError;
use serde_json::Value;

/// States of batches that have not ended, as the admin API names them.
const OPEN_STATES: [&str; 2] = ["validating", "in_progress"];
/// Maximum number of pages of batches that are read, from the newest on. Batches end within their windows, so older ones
/// are not open.
const MAX_BATCH_PAGES: usize = 5;

/// Returns the question before the deletion of the file `id`.
pub fn file_deletion_confirmation(_: &ConsoleRequest, id: &str) -> Option<Confirmation> {
    Some(Confirmation {
        question: "Delete the file {0}? Its contents cannot be restored.",
        values: vec![Text::Data(id.to_owned())],
        object: Some(ConfirmedObject::File(id.to_owned())),
        submit: "Delete",
        fields: &[],
    })
}

/// Returns a file, with the ids of the unfinished batches that read it in the member `batches`.
///
/// # Errors
/// Returns the refusal of the admin API, such as 404 for a file that does not exist.
pub async fn file_with_batches(page: &PageContext<'_>, id: &str) -> Result<Value, ApiError> {
    let mut file = page.get_from_admin_api(&format!("/admin/files/{}", percent_encode(id)), &[]).await?;
    let account = file.get("account").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut batches = Vec::new();
    let mut after = None::<String>;
    for _ in 0..MAX_BATCH_PAGES {
        let mut query = vec![("account", account.as_str())];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let list = page.get_from_admin_api("/admin/batches", &query).await?;
        batches.extend(readers(&list, id));
        after = list.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    if let Some(members) = file.as_object_mut() {
        members.insert("batches".to_owned(), batches.into());
    }
    Ok(file)
}

/// Returns the ids of the open batches of a list whose input is the file.
fn readers(list: &Value, file: &str) -> Vec<Value> {
    let batches = list.get("data").and_then(Value::as_array).into_iter().flatten();
    let text =
        |batch: &'_ Value, name: &str| batch.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_file = batches.filter(|batch| {
        text(batch, "input_file_id") == file && OPEN_STATES.contains(&text(batch, "status").as_str())
    });
    of_file.filter_map(|batch| batch.get("id").cloned()).collect()
}

/// Returns the warning about the batches that fail with the deletion of a file; `None` if no batch reads it.
pub fn batch_warning(file: &Value) -> Option<Block> {
    let batches = file.get("batches").and_then(Value::as_array).into_iter().flatten();
    let ids: Vec<Text> = batches.filter_map(Value::as_str).map(|id| Text::Data(id.to_owned())).collect();
    let text = match ids.len() {
        0 => return None,
        1 => "The batch {0} reads this file and has not ended: it fails if the file is deleted.",
        _ => "The batches {0} read this file and have not ended: they fail if the file is deleted.",
    };
    Some(Block::Notice(NoticeKind::Error, Text::with_values(text, [Text::List(ids, ", ")])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_batches_of_a_file_are_named() {
        let list = json!({ "data": [{ "id": "b1", "input_file_id": "f1", "status": "in_progress" },
                { "id": "b0", "input_file_id": "f1", "status": "completed" },
                { "id": "b2", "input_file_id": "f2", "status": "validating" }] });
        assert_eq!(readers(&list, "f1"), [json!("b1")]);
        let warning = |ids: Value| {
            let Some(Block::Notice(_, text)) = batch_warning(&json!({ "batches": ids })) else {
                return String::new();
            };
            text.render(penstock_console::Language::English).into_owned()
        };
        assert_eq!(warning(json!([])), "");
        assert!(warning(json!(["b1"])).starts_with("The batch b1 reads this file"));
        assert!(warning(json!(["b1", "b2"])).starts_with("The batches b1, b2 read this file"));
    }
}
