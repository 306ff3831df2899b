//! Audio of any format: the duration does not depend on the cuts, and is at most one second per byte, rounded up.

use crate::however_cut;
use penstock_media::audio::{AudioError, AudioMeter};

pub fn check(bytes: &[u8]) {
    let found = however_cut(bytes, |pieces| {
        let mut meter = AudioMeter::default();
        pieces.iter().for_each(|piece| meter.push(piece));
        meter.end()
    });
    match found {
        Ok(sound) => {
            if let Some(seconds) = sound.seconds {
                assert!(
                    seconds.is_sign_positive() && seconds <= (bytes.len() + 1).into() && seconds.scale() <= 3
                );
            }
        }
        Err(none) => assert_eq!(bytes.is_empty(), none == AudioError::Empty),
    }
}
