//! Languages by their ISO 639-1 codes.

/// Every code of ISO 639-1, in order.
const CODES: &str = "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv \
    dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it \
    iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb \
    nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss \
    st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu";

/// Returns the ISO 639-1 code `text` in lower case; `None` if there is no such code. The case of `text` is ignored.
pub(super) fn parse_iso_639_1_code(text: &str) -> Option<&'static str> {
    let found = CODES.split(' ').find(|code| code.eq_ignore_ascii_case(text))?;
    (found.len() == 2).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_known_and_names_are_not() {
        assert_eq!(parse_iso_639_1_code("en"), Some("en"));
        assert_eq!(parse_iso_639_1_code("DE"), Some("de"));
        for invalid in ["", "english", "en-US", "xx", "eng", " en"] {
            assert_eq!(parse_iso_639_1_code(invalid), None, "{invalid}");
        }
        assert_eq!(CODES.split_whitespace().count(), 184);
    }
}
