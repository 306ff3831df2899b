//! Parser of base URLs, with an error message for each kind of mistake.

use super::super::settings::BaseUrl;

/// Parses a base URL. Returns the reason and the correction if it is invalid.
pub fn parse_base_url(text: &str) -> Result<BaseUrl, (&'static str, &'static str)> {
    const LIKE: &str = "Write something like \"https://api.example.eu/v1\".";
    let (tls, rest) = if let Some(rest) = text.strip_prefix("https://") {
        (true, rest)
    } else if let Some(rest) = text.strip_prefix("http://") {
        (false, rest)
    } else if ["https://", "http://"].iter().any(|scheme| starts_with_ignoring_case(text, scheme)) {
        return Err(("Its scheme must be in lower case.", "Write `https://` before the host."));
    } else {
        return Err(("It does not start with `https://`.", LIKE));
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
        return Err((
            "It has characters that are not allowed in a URL.",
            "Write it in ASCII, without spaces.",
        ));
    }
    if rest.contains(['?', '#']) {
        return Err(("A query or fragment would be lost.", "Write the URL up to its path."));
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err((
            "A name or password in a URL is an exposed secret.",
            "Take the name and the password out.",
        ));
    }
    let (host, port) = split_authority(authority).ok_or(("Its host or port cannot be read.", LIKE))?;
    let default_port = if tls { 443 } else { 80 };
    let port = match port {
        Some(port) => {
            port.parse().ok().filter(|port| *port != 0).ok_or(("Its port is not from 1 to 65535.", LIKE))?
        }
        None => default_port,
    };
    if !is_host(host) {
        return Err(("Its host is neither a name nor an address.", LIKE));
    }
    let path = path.trim_end_matches('/');
    check_path(path)?;
    let authority =
        if port == default_port { bracket_ipv6(host) } else { format!("{}:{port}", bracket_ipv6(host)) };
    Ok(BaseUrl {
        tls,
        host: host.to_ascii_lowercase().into(),
        port,
        path_prefix: path.into(),
        authority: authority.to_ascii_lowercase().into(),
    })
}

fn starts_with_ignoring_case(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|written| written.eq_ignore_ascii_case(start))
}

/// Checks the path of a base URL. Returns the reason and the correction if it is invalid.
fn check_path(path: &str) -> Result<(), (&'static str, &'static str)> {
    if ["/chat/completions", "/messages", "/models", "/embeddings"].iter().any(|end| path.ends_with(end)) {
        return Err((
            "Its path is too long: the gateway adds the endpoint itself.",
            "Stop before it, after the version, such as `/v1`.",
        ));
    }
    if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
        return Err(("Its path is not in its simplest form.", "Take out `//`, `.` and `..`."));
    }
    Ok(())
}

/// Returns true if the host is certainly this machine: localhost or a loopback address.
pub fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn bracket_ipv6(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) =
            rest.split_once(']').filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok())?;
        return match tail.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => tail.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

fn is_host(host: &str) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name whose last label is a number is a malformed IP address.
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && host.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}
