//! Names of the speakers of a conversation, for providers whose messages have no names. If the speakers of a role have
//! different names, the text of each begins with its name.

use penstock_json_scan::json;

/// Returns true if two names are equal after unescaping; both are bodies of JSON strings without quotes.
pub(crate) fn is_same_name(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    one == other || one.zip(other).is_some_and(|(one, other)| json::unescape(one) == json::unescape(other))
}

/// Returns true if the speakers have different names; those without a name do not count.
pub(crate) fn has_several_names<'a>(names: impl IntoIterator<Item = Option<&'a [u8]>>) -> bool {
    let mut names = names.into_iter().flatten();
    names.next().is_some_and(|first| names.any(|name| !is_same_name(Some(first), Some(name))))
}

/// Returns true if the system messages have different authors: different names, or some a name and others none. The
/// texts of system messages are joined, so that a name would otherwise apply to texts of another author too.
pub(crate) fn has_several_authors<'a>(names: impl IntoIterator<Item = Option<&'a [u8]>>) -> bool {
    let mut names = names.into_iter();
    names.next().is_some_and(|first| names.any(|name| !is_same_name(first, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_their_escapes() {
        let (ann, escaped, bob) = (Some(&b"ann"[..]), Some(&br"\u0061nn"[..]), Some(&b"bob"[..]));
        for (names, are_several, are_authors) in [
            (vec![], false, false),
            (vec![ann], false, false),
            (vec![ann, escaped], false, false),
            (vec![ann, None, escaped], false, true),
            (vec![None, None], false, false),
            (vec![None, ann, bob], true, true),
        ] {
            assert_eq!(has_several_names(names.clone()), are_several, "{names:?}");
            assert_eq!(has_several_authors(names.clone()), are_authors, "{names:?}");
        }
    }
}
