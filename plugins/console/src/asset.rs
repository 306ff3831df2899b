//! Static files of the console.

/// Static file, such as a style sheet.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// File name, below the path of the static files.
    pub name: &'static str,
    /// Content type.
    pub content_type: &'static str,
    /// Contents.
    pub body: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset {
        name: "console.css",
        content_type: "text/css; charset=utf-8",
        body: include_bytes!("../assets/console.css"),
    },
    Asset { name: "icon.svg", content_type: "image/svg+xml", body: include_bytes!("../assets/icon.svg") },
    Asset {
        name: "live.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_bytes!("../assets/live.js"),
    },
    Asset {
        name: "htmx.min.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_bytes!("../assets/htmx.min.js"),
    },
];

/// Finds a file by its name.
#[must_use]
pub fn find_asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_pinned_files_are_those_of_the_list() {
        let list = include_str!("../assets/README.md");
        let htmx = find_asset("htmx.min.js").unwrap();
        let hash: String = Sha256::digest(htmx.body).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(list.contains(&hash), "{hash}");
    }
}
