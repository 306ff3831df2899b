//! Names of the functions that represent the tools of a responses request in the request to the provider.

use penstock_core::function_name::{MAX_FUNCTION_NAME_BYTES, is_function_name_byte, replace_function_name};
use std::borrow::Cow;

/// Text between namespace and tool name.
const SEPARATOR: &str = "__";
/// Returns the name of a tool's function: namespace, separator and name. If providers do not accept the name, it is
/// replaced by its last characters and its hash. This applies to a name that is too long, and to a name with a
/// namespace that contains an invalid character. The same tool always has the same function name, so calls of earlier
/// answers match.
pub(super) fn qualified_tool_name<'d>(namespace: Option<Cow<'d, str>>, name: Cow<'d, str>) -> Cow<'d, str> {
    let (joined, is_namespaced) = match namespace {
        Some(namespace) => (Cow::Owned(format!("{namespace}{SEPARATOR}{name}")), true),
        None => (name, false),
    };
    match joined.len() <= MAX_FUNCTION_NAME_BYTES
        && (!is_namespaced || joined.bytes().all(is_function_name_byte))
    {
        true => joined,
        false => Cow::Owned(replace_function_name(&joined)),
    }
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
            assert!(
                name.len() <= MAX_FUNCTION_NAME_BYTES && name.bytes().all(is_function_name_byte),
                "{name}"
            );
        }
        assert!(names.iter().any(|name| name.contains("create_issue2_")), "the tool's own name remains");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(joined(Some("my server"), "look"), joined(Some("my server"), "look"));
    }
}
