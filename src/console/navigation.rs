//! Navigation of a site.

use super::pages::PageDefinition;
use penstock_console::{NavLink, NavTarget};
use penstock_storage::users::UserRole;

/// Returns the links to the pages that a role may see. `current` is the path of the current page's definition.
pub fn nav(pages: &[PageDefinition], role: UserRole, current: &str) -> Vec<NavLink> {
    let shown = pages.iter().filter(|row| row.in_nav && row.roles.contains(&role));
    let link = |row: &PageDefinition| NavLink {
        href: row.path,
        text: row.title,
        target: nav_target(row.path, current),
    };
    shown.map(link).collect()
}

/// Returns the relation of the page `path` to the current page. A page of an object has its list as parent, and a
/// credit note has the invoices; the first page of a site is no parent.
fn nav_target(path: &str, current: &str) -> NavTarget {
    let below = match current.strip_suffix("/credit-note") {
        Some(site) if !site.contains("{id}") => &format!("{site}/invoice/"),
        _ => current,
    };
    match below.strip_prefix(path) {
        _ if path == current => NavTarget::Current,
        Some(rest) if rest.starts_with('/') => NavTarget::Parent,
        _ => NavTarget::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_an_object_is_below_its_list() {
        for (path, current, expected) in [
            ("/console/accounts", "/console/accounts", NavTarget::Current),
            ("/console/accounts", "/console/accounts/{id}", NavTarget::Parent),
            ("/console/accounts", "/console/accounts/{id}/credit-note", NavTarget::Parent),
            ("/dashboard/api", "/dashboard/api/schemas/{id}", NavTarget::Parent),
            ("/dashboard/invoice", "/dashboard/credit-note", NavTarget::Parent),
            ("/dashboard/", "/dashboard/keys/{id}", NavTarget::Other),
            ("/dashboard/", "/dashboard/", NavTarget::Current),
            ("/console/usage", "/console/users", NavTarget::Other),
        ] {
            assert_eq!(nav_target(path, current), expected, "{path} {current}");
        }
    }
}
