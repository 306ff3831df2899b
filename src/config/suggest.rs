//! Suggestions for misspelled names.

/// Returns the name in `candidates` that is most similar to `unknown`; `None` if no name is similar enough. A similar
/// name differs by at most one edit per three characters of `unknown`, but one edit is always allowed and more than
/// three never.
pub fn most_similar<'a>(unknown: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = normalize(unknown);
    let allowed = (unknown.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|name| (strsim::osa_distance(&unknown, &normalize(name)), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Normalizes a name for the comparison: its first 64 characters, in lower case, with `_` for `-`.
fn normalize(name: &str) -> String {
    name.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}
