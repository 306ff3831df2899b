//! Streams that break and are continued by a second provider: no text is repeated, and the client gets the text of
//! the second provider.

use crate::stream::{ask, conforms, feed, finish, heard, heard_by, shaped};
use crate::{choice, however_cut, pieces, target};
use penstock_core::{Dialect, OfferCapabilities, OutputBuffer, RescueMode, StreamProgress};

pub fn check(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else { return };
    let cut = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len() / 2);
    let (first, second) = bytes.split_at(cut);
    let second = second.strip_prefix(b"\0").unwrap_or(second);
    let dialect = |bit: u16| if choice >> bit & 1 == 0 { Dialect::Chat } else { Dialect::Messages };
    let client = if choice >> 11 & 1 == 0 { dialect(8) } else { Dialect::Responses };
    let (one, other) = (dialect(9), dialect(10));
    let ask = ask(client, choice);
    let abilities = OfferCapabilities::default();
    let Some(pair) = penstock_dialect::find_translator(client, one) else { return };
    let rescued = however_cut(second, |second| {
        let mut reply = pair.translate_stream(&ask, &target(one, &abilities));
        let mut out = OutputBuffer::default();
        let fault = feed(&mut *reply, &pieces(first), &mut out)?;
        if reply.progress() != StreamProgress::Committed
            || !reply.start_rescue(&target(other, &abilities), RescueMode::StartOver)
        {
            let _ = (fault, reply.delivered_text());
            return None;
        }
        let fault = feed(&mut *reply, second, &mut out);
        Some(finish(&mut *reply, fault, out))
    });
    let Some(run) = rescued else { return };
    // If client and provider have the same dialect, the bytes pass unchanged: the output is only as well-formed as
    // the input.
    if client != Dialect::Messages || (one == Dialect::Chat && other == Dialect::Chat) {
        conforms(&ask, &run.out);
    }
    if run.fault.is_none() {
        let n = ask.n as usize;
        let expected = heard(&shaped(&ask, other, &abilities, second), n);
        let got = heard_by(client, &run.out, n);
        for (expected, got) in expected.iter().zip(&got) {
            if client != Dialect::Messages || expected.refusal.is_empty() {
                assert_eq!(got.text, expected.text, "what the client has is what the second said");
            }
        }
    }
}
