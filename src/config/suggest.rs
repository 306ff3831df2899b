//! Suggestions for misspelled names.

/// Returns the name in `known` that is most similar to `unknown`, or `None` if none is similar enough.
pub fn most_similar<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = normalize(unknown);
    let allowed = (unknown.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&unknown, &normalize(name)), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Normalizes case, dashes and underscores of at most 64 characters.
fn normalize(name: &str) -> String {
    name.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}
