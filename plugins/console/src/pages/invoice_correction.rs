//! Name of a correction on an invoice.

use super::{day, text};
use crate::text::Text;
use serde_json::Value;

/// Returns the name of a correction's line: numbers and days of the correction and of the corrected entry, the invoice
/// of that entry if there is one, and the model. Documents of earlier versions have only the model.
pub(super) fn correction_line_name(line: &Value, model: String) -> Text {
    if line.get("corrects_entry").is_none_or(Value::is_null) {
        return Text::with_values("Correction: {0}", [model.into()]);
    }
    let entry = |name: &str| Text::Exact(text(line, name), "");
    let [number, corrected, model] = [entry("entry"), entry("corrects_entry"), Text::Data(model)];
    let [made, charged] = [day(line, "day"), day(line, "corrects_day")];
    match line.get("corrects_invoice").and_then(Value::as_str) {
        None => Text::with_values(
            "Correction {0} of {1}, of entry {2} of {3}: {4}",
            [number, made, corrected, charged, model],
        ),
        Some(invoice) => Text::with_values(
            "Correction {0} of {1}, of entry {2} of {3} on invoice {4}: {5}",
            [number, made, corrected, charged, invoice.to_owned().into(), model],
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_correction_names_what_it_corrects() {
        let mut line = json!({ "is_correction": true, "model": "m", "eur": "-0.5" });
        let name = |line: &Value| {
            correction_line_name(line, text(line, "model")).render(crate::Language::English).into_owned()
        };
        assert_eq!(name(&line), "Correction: m");
        line["entry"] = json!(9);
        line["day"] = json!("2026-11-05");
        line["corrects_entry"] = json!(7);
        line["corrects_day"] = json!("2026-10-31");
        assert_eq!(name(&line), "Correction 9 of 2026-11-05, of entry 7 of 2026-10-31: m");
        line["corrects_invoice"] = json!("PS-2026-000007");
        assert_eq!(
            name(&line),
            "Correction 9 of 2026-11-05, of entry 7 of 2026-10-31 on invoice PS-2026-000007: m"
        );
    }
}
