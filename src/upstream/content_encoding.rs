//! Decoder of compressed response bodies: gzip and deflate. Some providers compress although the request accepts only
//! `identity`.

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use std::io::Write;

/// Maximum decoded size of one chunk, in bytes. Callers can check their own limits only after the chunk has been
/// decoded.
const MAX_DECODED_CHUNK_BYTES: usize = 8 << 20;

/// Error of a body that cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The encoding is not supported.
    UnsupportedEncoding,
    /// The bytes are not valid in the content encoding.
    Broken,
    /// A decoded chunk exceeds the size limit.
    TooLong,
}

/// Streaming decoder of a response body, for its `content-encoding`.
pub enum ContentDecoder {
    /// Body without a content encoding.
    Identity,
    /// Decoder of `gzip` with any number of members, with the maximum size of a decoded chunk.
    Gzip(Box<MultiGzDecoder<Vec<u8>>>, usize),
    /// Decoder of `deflate`, with the maximum size of a decoded chunk.
    Deflate(Box<ZlibDecoder<Vec<u8>>>, usize),
}

impl ContentDecoder {
    /// Creates a decoder for the value of a `content-encoding` header. `cap` limits the decoded bytes of one chunk; a
    /// cap above 8 MiB is reduced to 8 MiB.
    ///
    /// # Errors
    /// Returns an error if the encoding is not supported.
    pub fn new(encoding: &[u8], cap: usize) -> Result<Self, DecodeError> {
        let cap = cap.min(MAX_DECODED_CHUNK_BYTES);
        match encoding.to_ascii_lowercase().trim_ascii() {
            b"" | b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new())), cap)),
            b"deflate" => Ok(Self::Deflate(Box::new(ZlibDecoder::new(Vec::new())), cap)),
            _ => Err(DecodeError::UnsupportedEncoding),
        }
    }

    /// Decodes the next chunk.
    ///
    /// # Errors
    /// Returns an error if the bytes are invalid, or if the decoded chunk exceeds the cap.
    pub fn decode_next(&mut self, piece: Bytes) -> Result<Bytes, DecodeError> {
        match self {
            Self::Identity => Ok(piece),
            Self::Gzip(decoder, cap) => decode_chunk(decoder.as_mut(), MultiGzDecoder::get_mut, &piece, *cap),
            Self::Deflate(decoder, cap) => decode_chunk(decoder.as_mut(), ZlibDecoder::get_mut, &piece, *cap),
        }
    }
}

/// Decodes a chunk in portions of 1 KiB, so that a decompression bomb is detected before it takes much memory.
fn decode_chunk<D: Write>(
    decoder: &mut D,
    plain: fn(&mut D) -> &mut Vec<u8>,
    piece: &[u8],
    cap: usize,
) -> Result<Bytes, DecodeError> {
    for portion in piece.chunks(1024) {
        decoder.write_all(portion).map_err(|_| DecodeError::Broken)?;
        if plain(decoder).len() > cap {
            return Err(DecodeError::TooLong);
        }
    }
    decoder.flush().map_err(|_| DecodeError::Broken)?;
    Ok(Bytes::from(std::mem::take(plain(decoder))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_decoded_at_every_split() {
        let text = b"data: {\"choices\":[]}\n\n".repeat(50);
        let packed = gzip(&text);
        for cut in 0..packed.len() {
            let mut decoder = ContentDecoder::new(b"GZIP", 1 << 20).unwrap();
            let (one, two) = packed.split_at(cut);
            let mut plain = decoder.decode_next(Bytes::copy_from_slice(one)).unwrap().to_vec();
            plain.extend_from_slice(&decoder.decode_next(Bytes::copy_from_slice(two)).unwrap());
            assert_eq!(plain, text);
        }
    }

    #[test]
    fn members_of_a_gzip_body_are_joined_at_every_split() {
        let packed = [gzip(b"data: one\n\n"), gzip(b"data: two\n\n")].concat();
        for cut in 0..packed.len() {
            let mut decoder = ContentDecoder::new(b"gzip", 1 << 20).unwrap();
            let (one, two) = packed.split_at(cut);
            let mut plain = decoder.decode_next(Bytes::copy_from_slice(one)).unwrap().to_vec();
            plain.extend_from_slice(&decoder.decode_next(Bytes::copy_from_slice(two)).unwrap());
            assert_eq!(plain, b"data: one\n\ndata: two\n\n", "{cut}");
        }
    }

    #[test]
    fn an_unknown_encoding_and_a_decompression_bomb_are_refused() {
        assert_eq!(ContentDecoder::new(b"br", 10).err(), Some(DecodeError::UnsupportedEncoding));
        let mut decoder = ContentDecoder::new(b"gzip", 1000).unwrap();
        assert_eq!(decoder.decode_next(Bytes::from(gzip(&[0; 100_000]))).err(), Some(DecodeError::TooLong));
    }

    #[test]
    fn unencoded_bytes_pass_unchanged() {
        let mut decoder = ContentDecoder::new(b"", 1).unwrap();
        assert_eq!(decoder.decode_next(Bytes::from_static(b"abc")).unwrap(), "abc");
    }
}
