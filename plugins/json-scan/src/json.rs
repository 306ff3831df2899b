//! JSON processing on bytes: strings, members and insertions, without a tree.
//!
//! The scanner accepts the grammar of RFC 8259 and nothing else. It checks structure and escapes, but accepts the
//! escape of a lone surrogate, which some parsers reject. UTF-8 is checked when text is read.

mod objects;
mod scan;
mod splice;
mod text;

#[cfg(test)]
mod tests;

pub use objects::{ObjectMemberEvent, visit_array_object_members};
pub use scan::{
    ElementIter, MAX_DEPTH, MemberIter, MemberSpan, elements, members, skip_space, string_end, trim,
    value_end,
};
pub use splice::insert_members;
pub use text::{
    StringClass, SurrogateHalf, classify_string, escaped_text_equals, json_string_equals, repair_surrogates,
    replace_line_breaks, surrogate_half, unescape, unescape_lossy, write_escaped, write_member_name,
    write_str,
};
