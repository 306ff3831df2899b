//! Names of the functions that providers are given for the tools of a responses request.

use std::borrow::Cow;

/// Maximum length of a function name at providers, in bytes.
const MAX_BYTES: usize = 64;
/// Text between namespace and tool name.
const SEPARATOR: &str = "__";
/// Length of the hash at the end of a shortened name, with the character before it.
const HASH_BYTES: usize = 17;

/// Returns the name of a tool's function: namespace, separator and name. A name that is too long for providers, or that has
/// a character in its namespace which they do not accept, is replaced by its last characters and its hash. The same tool
/// always has the same function name, so calls of earlier answers match.
pub(super) fn qualified_tool_name<'d>(namespace: Option<Cow<'d, str>>, name: Cow<'d, str>) -> Cow<'d, str> {
    let (joined, is_namespaced) = match namespace {
        Some(namespace) => (Cow::Owned(format!("{namespace}{SEPARATOR}{name}")), true),
        None => (name, false),
    };
    match joined.len() <= MAX_BYTES && (!is_namespaced || joined.bytes().all(is_accepted)) {
        true => joined,
        false => Cow::Owned(hashed_name(&joined)),
    }
}

const fn is_accepted(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns the end of a name in accepted characters, with a hash of the whole name. The end has the name of the tool.
fn hashed_name(name: &str) -> String {
    let accepted = |character: char| match u8::try_from(character) {
        Ok(byte) if is_accepted(byte) => character,
        _ => '_',
    };
    let excess = name.chars().count().saturating_sub(MAX_BYTES - HASH_BYTES);
    let end: String = name.chars().skip(excess).map(accepted).collect();
    format!("{}_{:016x}", end.trim_start_matches(['-', '_']), fnv1a(name.as_bytes()))
}

/// 64-bit FNV-1a: equal across builds and machines, as retries and prefix caches require. It need not resist an adversary,
/// because two tools of a request with the same name are refused.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(namespace: Option<&str>, name: &str) -> String {
        qualified_tool_name(namespace.map(Into::into), name.into()).into_owned()
    }

    #[test]
    fn names_that_providers_accept_are_joined() {
        assert_eq!(joined(None, "look"), "look");
        assert_eq!(joined(Some("crm"), "look"), "crm__look");
        let (longest, name) = ("a".repeat(64), "b".repeat(57));
        assert_eq!(joined(None, &longest), longest);
        assert_eq!(joined(Some("names"), &name), format!("names__{name}"));
        assert_eq!(joined(None, "a.b"), "a.b", "a name of the client's own is the client's choice");
    }

    #[test]
    fn other_names_are_short_valid_and_unique() {
        let long = "mcp__".to_owned() + &"n".repeat(200);
        let mut names = vec![
            joined(None, &"a".repeat(65)),
            joined(Some("names"), &"b".repeat(58)),
            joined(Some(&long), "create_issue"),
            joined(Some(&long), "create_issue2"),
            joined(Some(&(long + "o")), "create_issue"),
            joined(Some("my server"), "look"),
            joined(Some("my/server"), "look"),
            joined(Some("été"), &"ü".repeat(100)),
            joined(Some("-"), ""),
        ];
        for name in &names {
            assert!(name.len() <= MAX_BYTES && name.bytes().all(is_accepted), "{name}");
        }
        assert!(names.iter().any(|name| name.contains("create_issue2_")), "the tool's own name remains");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(joined(Some("my server"), "look"), joined(Some("my server"), "look"));
    }
}
