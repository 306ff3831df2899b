//! Boundary parameter of a `content-type`.

/// Maximum length of a boundary by RFC 2046, in bytes.
const MAX_BOUNDARY: usize = 70;

/// Parses the boundary of a `multipart/form-data` content type. Returns `None` for another content type, and
/// `Some(None)` for this content type without a valid boundary.
#[must_use]
pub fn parse_boundary(content_type: &str) -> Option<Option<String>> {
    let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    Some(super::part_head::header_parameter(parameters, "boundary").filter(|text| is_valid_boundary(text)))
}

fn is_valid_boundary(text: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? #$%&*!~^`{}|@<>[]".contains(&byte);
    !text.is_empty() && text.len() <= MAX_BOUNDARY && text.bytes().all(may) && !text.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<Option<String>> {
        Some(Some(text.to_owned()))
    }

    #[test]
    fn a_boundary_is_found_quoted_or_not() {
        assert_eq!(parse_boundary("multipart/form-data; boundary=abc"), some("abc"));
        assert_eq!(parse_boundary("Multipart/Form-Data;charset=utf-8; Boundary=\"a b:c\""), some("a b:c"));
        assert_eq!(
            parse_boundary("multipart/form-data; boundary=----WebKitFormBoundaryx7"),
            some("----WebKitFormBoundaryx7")
        );
    }

    #[test]
    fn other_types_and_invalid_boundaries_are_distinguished() {
        assert_eq!(parse_boundary("application/json"), None);
        assert_eq!(parse_boundary("multipart/form-data"), Some(None));
        assert_eq!(parse_boundary("multipart/form-data; boundary="), Some(None));
        assert_eq!(parse_boundary("multipart/form-data; boundary=\"a\u{e9}\""), Some(None));
        assert_eq!(parse_boundary(&format!("multipart/form-data; boundary={}", "a".repeat(71))), Some(None));
    }
}
