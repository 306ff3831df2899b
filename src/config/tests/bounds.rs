//! Values that have the right type and cannot be all the same.

use super::{tells, with};

#[test]
fn a_list_that_must_not_be_empty_is_not() {
    let (why, fix) = ("must not be empty", "\"chat\", \"messages\"");
    tells(&with("", "", "dialects = []", ""), "providers.p1.dialects", why, fix);
    tells(&with("", "", "", "dialects = []"), "providers.p1.offers[0].dialects", why, fix);
}
