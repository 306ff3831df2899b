//! Check of the names in a query string.

use penstock_core::ApiError;

/// Maximum number of characters of an unknown name in an error.
const MAX_NAME_CHARACTERS: usize = 100;

/// Checks that each parameter of a query is in `allowed_names`, and is there once: a filter that is misspelt or given
/// twice would otherwise be ignored, and the answer would be taken for the filtered one.
///
/// # Errors
/// Returns 400 with the first other parameter.
pub fn check_query_names<'q>(
    names: impl Iterator<Item = &'q str> + Clone,
    allowed_names: &[&str],
) -> Result<(), ApiError> {
    for (index, name) in names.clone().enumerate() {
        let message = if !allowed_names.contains(&name) {
            match allowed_names {
                [] => "This parameter is not known; this request has none.".to_owned(),
                allowed_names => {
                    format!("This parameter is not known; known are {}.", allowed_names.join(", "))
                }
            }
        } else if names.clone().take(index).any(|earlier| earlier == name) {
            "This parameter is repeated; expected it once.".to_owned()
        } else {
            continue;
        };
        return Err(ApiError::invalid(name.chars().take(MAX_NAME_CHARACTERS).collect::<String>(), message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_or_repeated_parameter_is_named() {
        let check = |names: &[&str], known: &[&str]| check_query_names(names.iter().copied(), known);
        for names in [&[][..], &["a"], &["b", "a"]] {
            check(names, &["a", "b"]).unwrap();
        }
        for (names, known, param, message) in [
            (&["a", "c"][..], &["a", "b"][..], "c", "This parameter is not known; known are a, b."),
            (&["c"], &[], "c", "This parameter is not known; this request has none."),
            (&["a", "b", "a"], &["a", "b"], "a", "This parameter is repeated; expected it once."),
            (&[""], &["a"], "", "This parameter is not known; known are a."),
        ] {
            let refusal = check(names, known).unwrap_err();
            assert_eq!((refusal.param.as_deref(), &*refusal.message), (Some(param), message));
        }
        let long = "x".repeat(1_000);
        assert_eq!(check(&[&long], &["a"]).unwrap_err().param.unwrap().len(), MAX_NAME_CHARACTERS);
    }
}
