//! JSON processing on bytes: strings, members and insertions, without a tree.
//!
//! The scanner is strict (RFC 8259): every parser accepts what it accepts. It checks structure and escapes; UTF-8 is
//! checked when text is read.

mod scan;
mod splice;
mod text;

#[cfg(test)]
mod tests;

pub use scan::{
    Elements, MAX_DEPTH, Member, Members, elements, members, skip_space, string_end, trim, value_end,
};
pub use splice::insert_members;
pub use text::{
    Inside, Surrogate, inside, is_string, mend_surrogates, says, surrogate, unescape, unescape_lossy,
    write_escaped, write_str,
};
