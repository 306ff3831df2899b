//! Usage that the client is charged for if the gateway has removed generated output from an answer.

use penstock_core::{ReportedUsage, TokenUsage, UsageBounds};

/// Returns the usage of an answer without its removed output, which the reported output tokens cover too. The output
/// is the gateway's count of the delivered text, at least the reported reasoning tokens if the report is plausible, and
/// at most the reported tokens. The source is marked accordingly.
/// `counted` is the gateway's own count of the prompt and of `delivered_bytes` bytes of text.
pub(crate) fn usage_without_removed_output(
    stated: ReportedUsage,
    bounds: &UsageBounds,
    counted: &TokenUsage,
    delivered_bytes: usize,
) -> TokenUsage {
    let least = UsageBounds::min_tokens(delivered_bytes);
    let most = stated.output.filter(|tokens| *tokens >= least).unwrap_or(u64::MAX);
    // Reasoning that is hidden or encrypted is in no text of the answer, and is charged as without removed output.
    let reasoning = stated.to_plausible_usage(bounds, counted).reasoning;
    let prompt = ReportedUsage { output: None, reasoning: 0, ..stated };
    let usage = prompt.to_plausible_usage(bounds, counted);
    let output = usage.output.max(reasoning).min(most);
    TokenUsage { output, reasoning: reasoning.min(output), ..usage }
}
