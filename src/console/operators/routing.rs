//! Pages about routing and latency: why an offer is chosen for a request, and the time to the first token.

use crate::console::answer::refused_form_blocks;
use crate::console::pages::PageContext;
use penstock_console::Block;
use penstock_console::pages::{self as blocks, ROUTING_QUERY_PARAMETERS, percent_encode};
use penstock_core::{ApiError, ErrorCode};
use serde_json::Value;

/// Path of the page of the time to the first token.
pub const LATENCY_PATH: &str = "/console/latency";

/// Parameters of the explanation that are amounts, which may have a decimal comma.
const AMOUNTS: [&str; 3] = ["max_input_cost", "max_carbon_intensity", "min_speed_tps"];

/// Returns the page that explains a hypothetical request, or a past one.
///
/// # Errors
/// Returns the refusal of the admin API, unless it concerns a field of a form: that one is shown at the field.
pub async fn routing_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let models = page.get_from_admin_api("/admin/models", &[]).await?;
    let wanted = page.request.query_parameter("request").unwrap_or_default().trim();
    if wanted.is_empty() {
        let given = |name: &str| page.request.query_parameter(name).unwrap_or_default().trim().to_owned();
        return explanation(page, &models, given).await;
    }
    match page.get_from_admin_api(&format!("/admin/requests/{}", percent_encode(wanted)), &[]).await {
        Ok(request) => {
            let given = |name: &str| past_value(&request, name);
            let mut shown = blocks::past_request_blocks(&request);
            shown.extend(explanation(page, &models, given).await?);
            Ok(shown)
        }
        Err(refusal) if refusal.code == ErrorCode::NotFound => {
            let mut form = blocks::past_request_form(wanted);
            form.restore_values(&[], Some(("request", &*refusal.message)));
            Ok(refused_form_blocks(form, &refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the value that a past request has for a parameter of the explanation; empty if it is unknown. The number
/// of input tokens is unknown if it is 0, because a request that was not answered may have 0.
fn past_value(request: &Value, name: &str) -> String {
    let member = match name {
        "prompt_tokens" => "input_tokens",
        "model" | "flavor" => name,
        _ => return String::new(),
    };
    match request.get(member) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.as_u64() != Some(0) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns the forms, and the explanation of a request. `form_value` returns the value of a form field; if the field
/// `model` is empty, the explanation is about the first model.
async fn explanation(
    page: &PageContext<'_>,
    models: &Value,
    form_value: impl Fn(&str) -> String,
) -> Result<Vec<Block>, ApiError> {
    let first = models.pointer("/data/0/id").and_then(Value::as_str).unwrap_or_default();
    let value = |name: &str| match form_value(name) {
        text if name == "model" && text.is_empty() => first.to_owned(),
        text if AMOUNTS.contains(&name) => {
            crate::console::amount::normalize_amount(&text, page.request.language)
        }
        text => text,
    };
    let mut form = blocks::hypothetical_request_form(models, &form_value);
    let query: Vec<(&str, String)> =
        ROUTING_QUERY_PARAMETERS.iter().map(|name| (*name, value(name))).collect();
    let query: Vec<(&str, &str)> =
        query.iter().map(|(name, text)| (*name, &**text)).filter(|(_, text)| !text.is_empty()).collect();
    let past = Block::Form(blocks::past_request_form(""));
    match page.get_from_admin_api("/admin/routing", &query).await {
        Ok(explained) => {
            let mut shown = blocks::routing_blocks(&explained, page.can_see_amounts());
            shown.extend([Block::Form(form), past]);
            Ok(shown)
        }
        Err(refusal) if refusal.param.is_some() => {
            form.restore_values(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
            Ok(refused_form_blocks(form, &refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the page with the time to the first token in the last hour.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn latency_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let by = page.request.query_parameter("by").filter(|by| *by == "provider").unwrap_or("model");
    let latency = page.get_from_admin_api("/admin/latency", &[("by", by)]).await?;
    let mut shown = blocks::latency_blocks(&latency);
    shown.push(Block::Form(blocks::latency_grouping_form(LATENCY_PATH, by)));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zero_input_tokens_of_a_past_request_are_left_out() {
        let request = json!({ "model": "m", "flavor": null, "input_tokens": 0, "output_tokens": 7 });
        assert_eq!(
            ["model", "flavor", "prompt_tokens", "max_tokens"].map(|name| past_value(&request, name)),
            ["m", "", "", ""]
        );
        assert_eq!(past_value(&json!({ "input_tokens": 12 }), "prompt_tokens"), "12");
    }
}
