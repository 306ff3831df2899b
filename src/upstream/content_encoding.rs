//! Undoes a content encoding that a provider uses although it was asked not to.

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use std::io::Write;

/// Largest piece when unpacked: it is counted only then.
const PIECE: usize = 8 << 20;

/// Error of a body that cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// An encoding that is not read here.
    Unknown,
    /// Not what it says.
    Broken,
    /// Larger than the cap when unpacked.
    TooLong,
}

/// Turns a body in its content encoding into plain bytes, piece by piece.
pub enum Decoder {
    /// No encoding.
    Identity,
    /// `gzip`.
    Gzip(Box<GzDecoder<Vec<u8>>>, usize),
    /// `deflate`.
    Deflate(Box<ZlibDecoder<Vec<u8>>>, usize),
}

impl Decoder {
    /// A decoder for a `content-encoding`; `cap` bounds the bytes of one piece when unpacked, to 8 MiB at most.
    ///
    /// # Errors
    /// An encoding that is not read here.
    pub fn new(encoding: &[u8], cap: usize) -> Result<Self, Undecodable> {
        let cap = cap.min(PIECE);
        match encoding.to_ascii_lowercase().trim_ascii() {
            b"" | b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip(Box::new(GzDecoder::new(Vec::new())), cap)),
            b"deflate" => Ok(Self::Deflate(Box::new(ZlibDecoder::new(Vec::new())), cap)),
            _ => Err(Undecodable::Unknown),
        }
    }

    /// The plain bytes of the next piece.
    ///
    /// # Errors
    /// Not what it says, or too long.
    pub fn push(&mut self, piece: Bytes) -> Result<Bytes, Undecodable> {
        match self {
            Self::Identity => Ok(piece),
            Self::Gzip(decoder, cap) => unpack(decoder.as_mut(), GzDecoder::get_mut, &piece, *cap),
            Self::Deflate(decoder, cap) => unpack(decoder.as_mut(), ZlibDecoder::get_mut, &piece, *cap),
        }
    }
}

/// Feeds small portions so that a bomb is seen before it has grown.
fn unpack<D: Write>(
    decoder: &mut D,
    plain: fn(&mut D) -> &mut Vec<u8>,
    piece: &[u8],
    cap: usize,
) -> Result<Bytes, Undecodable> {
    for portion in piece.chunks(1024) {
        decoder.write_all(portion).map_err(|_| Undecodable::Broken)?;
        if plain(decoder).len() > cap {
            return Err(Undecodable::TooLong);
        }
    }
    decoder.flush().map_err(|_| Undecodable::Broken)?;
    Ok(Bytes::from(std::mem::take(plain(decoder))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_comes_out_plain_however_it_is_cut() {
        let text = b"data: {\"choices\":[]}\n\n".repeat(50);
        let packed = packed(&text);
        for cut in 0..packed.len() {
            let mut decoder = Decoder::new(b"GZIP", 1 << 20).unwrap();
            let (one, two) = packed.split_at(cut);
            let mut plain = decoder.push(Bytes::copy_from_slice(one)).unwrap().to_vec();
            plain.extend_from_slice(&decoder.push(Bytes::copy_from_slice(two)).unwrap());
            assert_eq!(plain, text);
        }
    }

    #[test]
    fn an_encoding_that_is_not_read_and_a_bomb_are_refused() {
        assert_eq!(Decoder::new(b"br", 10).err(), Some(Undecodable::Unknown));
        let mut decoder = Decoder::new(b"gzip", 1000).unwrap();
        assert_eq!(decoder.push(Bytes::from(packed(&[0; 100_000]))).err(), Some(Undecodable::TooLong));
    }

    #[test]
    fn plain_bytes_pass_as_they_are() {
        let mut decoder = Decoder::new(b"", 1).unwrap();
        assert_eq!(decoder.push(Bytes::from_static(b"abc")).unwrap(), "abc");
    }
}
