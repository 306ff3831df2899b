//! Fields in the head of an admin request: accepted encodings, token, caller and query. Also compresses the response.

use super::{ACTOR_HEADER, MAX_ACTOR_BYTES};
use crate::proxy::endpoint::query_parameters;
use flate2::Compression;
use flate2::write::GzEncoder;
use pingora_core::protocols::http::ServerSession;
use std::io::Write;
use subtle::ConstantTimeEq;

/// Returns true if the client accepts gzip: `accept-encoding` names it, or every encoding, with a weight above zero
/// (RFC 9110 §12.5.3).
pub(super) fn accepts_gzip(accepted: &[u8]) -> bool {
    let accepted = String::from_utf8_lossy(accepted).to_ascii_lowercase();
    let weight = |wanted: &str| {
        accepted.split(',').find_map(|coding| {
            let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |q| q.trim().parse().ok());
            (name.trim() == wanted).then_some(weight.unwrap_or(0.0_f32))
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

/// Compresses a body; returns `None` if that fails.
pub(super) fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// Scheme of the `authorization` header, with the blank after it.
const BEARER: &[u8] = b"Bearer ";

/// Returns true if an `authorization` header has this token. The scheme is case-insensitive (RFC 9110 §11.1). An empty
/// token never matches.
pub(super) fn has_bearer_token(authorization: &[u8], token: &str) -> bool {
    let (scheme, given) = authorization.split_at_checked(BEARER.len()).unwrap_or_default();
    let given = Some(given).filter(|given| scheme.eq_ignore_ascii_case(BEARER) && !given.is_empty());
    given.is_some_and(|given| given.ct_eq(token.as_bytes()).into())
}

/// Describes the caller for the audit log as `<name> from <client address>`. The name is that of the `x-penstock-actor`
/// header, or `admin` if the header is missing or invalid.
pub(super) fn caller_name(session: &ServerSession) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\<>".contains(byte);
    let given = session.get_header_bytes(ACTOR_HEADER);
    let name = std::str::from_utf8(given).ok().filter(|name| {
        !name.is_empty() && name.len() <= MAX_ACTOR_BYTES && name.as_bytes().iter().all(plain)
    });
    let address = session.client_addr().map(ToString::to_string).unwrap_or_default();
    format!("{} from {address}", name.unwrap_or("admin"))
}

/// Returns the names and values of the query string, decoded.
pub(super) fn query_pairs(session: &ServerSession) -> Vec<(String, String)> {
    let query = session.req_header().uri.query().unwrap_or_default();
    query_parameters(query).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_where_the_client_takes_it() {
        for accepted in ["gzip", "deflate, GZIP;q=0.5", "*", "gzip;q=1.0", "br;q=1, *;q=0.1"] {
            assert!(accepts_gzip(accepted.as_bytes()), "{accepted}");
        }
        for refused in ["", "identity", "gzip;q=0", "gzip;q=0.0, *", "*;q=0", "br", "gzip;q=x", "xgzip"] {
            assert!(!accepts_gzip(refused.as_bytes()), "{refused}");
        }
    }

    #[test]
    fn no_token_and_an_empty_one_open_nothing() {
        for token in ["", "0123456789abcdef0123456789abcdef"] {
            for nothing in ["", "Bearer", "Bearer ", "Basic ", token] {
                assert!(!has_bearer_token(nothing.as_bytes(), token), "{nothing:?} for {token:?}");
            }
        }
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert!(has_bearer_token(format!("{scheme} s3cret").as_bytes(), "s3cret"));
        }
        assert!(!has_bearer_token(b"Basic_ s3cret", "s3cret"));
        assert!(!has_bearer_token(b"Bearer s3cre", "s3cret"));
    }
}
