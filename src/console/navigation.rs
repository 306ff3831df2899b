//! Navigation of a site.

use super::pages::PageDefinition;
use penstock_console::{NavLink, NavLinkState};
use penstock_storage::users::UserRole;

/// Returns the links to the pages that a role may see. `current` is the path of the current page's definition.
pub fn nav(pages: &[PageDefinition], role: UserRole, current: &str) -> Vec<NavLink> {
    let shown = pages.iter().filter(|row| row.in_nav && row.roles.contains(&role));
    let link = |row: &PageDefinition| NavLink {
        href: row.path,
        text: row.title,
        state: nav_link_state(row.path, current),
    };
    shown.map(link).collect()
}

/// Returns the relation of the page `path` to the current page. A page of an object has its list as parent, and a
/// credit note has the invoices; the first page of a site is no parent.
fn nav_link_state(path: &str, current: &str) -> NavLinkState {
    let below = match current.strip_suffix("/credit-note") {
        Some(site) if !site.contains("{id}") => &format!("{site}/invoice/"),
        _ => current,
    };
    match below.strip_prefix(path) {
        _ if path == current => NavLinkState::Current,
        Some(rest) if rest.starts_with('/') => NavLinkState::Parent,
        _ => NavLinkState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_an_object_is_below_its_list() {
        for (path, current, expected) in [
            ("/console/accounts", "/console/accounts", NavLinkState::Current),
            ("/console/accounts", "/console/accounts/{id}", NavLinkState::Parent),
            ("/console/accounts", "/console/accounts/{id}/credit-note", NavLinkState::Parent),
            ("/dashboard/api", "/dashboard/api/schemas/{id}", NavLinkState::Parent),
            ("/dashboard/invoice", "/dashboard/credit-note", NavLinkState::Parent),
            ("/dashboard/", "/dashboard/keys/{id}", NavLinkState::Other),
            ("/dashboard/", "/dashboard/", NavLinkState::Current),
            ("/console/usage", "/console/users", NavLinkState::Other),
        ] {
            assert_eq!(nav_link_state(path, current), expected, "{path} {current}");
        }
    }
}
