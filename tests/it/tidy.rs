//! Rules of the source tree that the compiler does not enforce.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below these folders.
pub(crate) fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 50, "the sources were found");
    found
}

/// The plugins and the crates each of them names in its manifest.
fn plugins() -> BTreeMap<String, Vec<String>> {
    let mut plugins = BTreeMap::new();
    for entry in fs::read_dir(root().join("plugins")).unwrap().map(Result::unwrap) {
        let manifest: toml::Table =
            fs::read_to_string(entry.path().join("Cargo.toml")).unwrap().parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let names = dependencies.map(|table| table.keys().cloned().collect()).unwrap_or_default();
        plugins.insert(entry.file_name().to_string_lossy().into_owned(), names);
    }
    assert!(plugins.len() >= 12, "the plugins were found");
    plugins
}

#[test]
fn a_plugin_knows_core_the_wire_formats_and_no_other_plugin() {
    for (plugin, dependencies) in plugins() {
        for dependency in dependencies.iter().filter_map(|name| name.strip_prefix("penstock-")) {
            let allowed = match plugin.as_str() {
                "core" | "json-scan" | "regular-file" => false,
                "http-wire" | "request-validation" => dependency == "core" || dependency == "json-scan",
                "storage" | "object-storage" => matches!(dependency, "core" | "regular-file"),
                // Usage rollups are computed from the entries of the ledger.
                "usage" => dependency == "core" || dependency == "ledger",
                _ => matches!(dependency, "core" | "http-wire" | "json-scan"),
            };
            assert!(allowed, "plugins/{plugin} may not know plugins/{dependency}");
        }
    }
}

#[test]
fn only_src_names_sockets_threads_and_metrics() {
    let forbidden = ["pingora", "tokio", "clap", "prometheus", "hyper", "reqwest"];
    for (plugin, dependencies) in plugins() {
        for dependency in dependencies {
            let base = dependency.split('-').next().unwrap_or_default();
            // Plugins must not do asynchronous I/O. The store and the object storage may, because their clients of
            // PostgreSQL and of buckets are asynchronous.
            let is_engine = match plugin.as_str() {
                "storage" => base == "tokio",
                "object-storage" => base == "tokio" || base == "hyper",
                _ => false,
            };
            if is_engine {
                continue;
            }
            assert!(!forbidden.contains(&base), "plugins/{plugin} may not depend on {dependency}");
        }
    }
}

/// Tests that requests enter the gateway only through Pingora's proxy and its parser. The guard also parses heads,
/// but only to refuse them.
#[test]
fn requests_enter_through_one_proxy() {
    let holders = |word: &str| {
        let holds =
            |text: &str| text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word));
        let is_product = |path: &std::path::Path| !path.ends_with("tests.rs");
        let found = sources(&["src"]).into_iter().filter(|(path, text)| is_product(path) && holds(text));
        found.map(|(path, _)| path.to_string_lossy().into_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let named = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(holders("impl ProxyHttp for"), named(&["src/proxy/gateway.rs"]));
    let entries = [
        "src/proxy/batch_line.rs",
        "src/proxy/local_request.rs",
        "src/server/http1.rs",
        "src/server/http2.rs",
    ];
    assert_eq!(holders(".process_new_http("), named(&entries));
    assert_eq!(holders("httparse::Request"), named(&[]));
    for absent in ["cache.enable", "fn request_cache_filter"] {
        assert_eq!(holders(absent), named(&[]), "{absent}");
    }
}

/// Folders of `src` from the top to the bottom. A file may import from lower folders only.
const LAYERS: [&str; 21] = [
    "cli",
    "app",
    "admin",
    "console",
    "server",
    "proxy",
    "state",
    "batch",
    "upstream",
    "backup",
    "billing",
    "limits",
    "auth",
    "storage",
    "fleet",
    "upgrade",
    "http",
    "telemetry",
    "config",
    "net",
    "time",
];

#[test]
fn imports_point_to_lower_folders() {
    let level = |folder: &str| LAYERS.iter().position(|layer| *layer == folder);
    for (path, text) in sources(&["src"]) {
        let name = path.to_string_lossy().into_owned();
        let parts: Vec<&str> = name.split('/').collect();
        let [_, folder, ..] = *parts else { continue };
        // Test files may import from any folder of the crate.
        if parts.len() < 3 || name.contains("test") {
            continue;
        }
        let own = level(folder).unwrap_or_else(|| panic!("{name}: {folder} is not in LAYERS"));
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for used in line.split("crate::").skip(1) {
                let used = used.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_').next();
                let used = used.filter(|used| !used.is_empty()).unwrap_or(folder);
                let other = level(used).unwrap_or_else(|| panic!("{name}: {used} is not in LAYERS"));
                assert!(other >= own, "{name} imports {used}, which is above it: {line}");
            }
        }
    }
}

/// First line of a file that is compiled for tests only.
const TESTS_ONLY: &str = "//! Tests only:";

#[test]
fn plugins_read_no_clock_no_environment_and_no_disk() {
    let forbidden =
        ["SystemTime::now", "Instant::now", "std::env::var", "std::net::", "std::fs::", "File::open"];
    for (path, text) in sources(&["plugins"]) {
        let name = path.to_string_lossy();
        let own = ["plugins/storage/", "plugins/object-storage/", "plugins/regular-file/"]
            .iter()
            .any(|folder| name.starts_with(folder));
        if own || !name.contains("/src/") || name.contains("tests") || text.starts_with(TESTS_ONLY) {
            continue;
        }
        for word in forbidden {
            let code = text.lines().any(|line| line.contains(word) && !line.trim_start().starts_with("//"));
            assert!(!code, "{name} uses {word}: time is an argument, and plugins do no I/O");
        }
    }
}

#[test]
fn every_file_has_a_header_and_at_most_400_lines_of_code() {
    for (path, text) in sources(&["src", "plugins", "simulator", "tests/it"]) {
        let name = path.display();
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//!"), "{name} opens with //!, not {first:?}");
        let code = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"))
            .count();
        assert!(code <= 400, "{name} has {code} lines of code; 400 is the most");
    }
}

#[test]
fn the_sources_do_not_name_the_tools_they_were_built_with() {
    let absent =
        [concat!("/wo", "rk/"), concat!("crates", ".io/api"), concat!("registry.npm", "js"), "TODO", "FIXME"];
    for (path, text) in sources(&["src", "plugins", "simulator", "tests/it"]) {
        if path.ends_with(Path::new("tests/it/tidy.rs")) {
            continue;
        }
        for word in absent {
            assert!(!text.contains(word), "{} holds {word:?}", path.display());
        }
    }
}

#[test]
fn names_that_say_nothing_are_not_used_for_files() {
    let empty = ["manager", "helper", "helpers", "util", "utils", "common", "data", "info", "misc"];
    for (path, _) in sources(&["src", "plugins", "simulator", "tests/it"]) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(!empty.contains(&stem.as_str()), "{} says nothing by its name", path.display());
    }
}

/// Tests that every log event has a name. The name becomes the member `event` of the log line; without a name, this
/// member would be a source location.
#[test]
fn every_event_of_the_log_has_a_name() {
    let macros = ["error!(", "warn!(", "info!(", "debug!(", "trace!(", "event!("];
    let mut found = 0;
    for (path, text) in sources(&["src"]) {
        // The macro `event_at` passes its arguments on, so its definition counts as named.
        for event in text.replace("$($event)+", "name: \"\"").split("tracing::").skip(1) {
            let Some(event) = macros.iter().find_map(|name| event.strip_prefix(name)) else { continue };
            found += 1;
            assert!(event.trim_start().starts_with("name: \""), "{}: {event:.60}", path.display());
        }
    }
    assert!(found > 90, "the events were found: {found}");
}

/// Names of the log events in a source file, without its tests.
fn event_names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let events = code.match_indices("tracing::").filter_map(|(at, _)| {
        let call = code.get(at..)?.split(");").next()?;
        let name = call.split_once("name: \"")?.1.split('"').next()?;
        call.split_once('(').is_some_and(|(level, _)| !level.contains(['{', ';'])).then_some(name)
    });
    events.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

#[test]
fn every_log_event_is_documented() {
    let pages: String = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut events = 0;
    for (path, text) in sources(&["src", "plugins"]) {
        if path.to_string_lossy().contains("test") {
            continue;
        }
        for name in event_names(&text) {
            events += 1;
            assert!(
                pages.contains(&format!("`{name}`")),
                "{}: {name} is in no page of docs/",
                path.display()
            );
        }
    }
    assert!(events > 80, "the events were found: {events}");
}
