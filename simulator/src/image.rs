//! Simulated images: valid PNG files with tiles of colour, the same for the same seed and prompt. The images have no
//! relation to the content of the prompt.

use super::parsed_request::RequestError;
use super::text::{SeededRng, fold_hash};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use serde_json::{Value, json};
use std::io::Write;

/// Longest side of an image, in pixels.
const MOST: u32 = 4096;
/// Side of a tile in pixels.
const TILE: u32 = 32;

/// Image generation request.
#[derive(Debug)]
pub(super) struct ImageTask {
    /// Model name with its suffix.
    pub model: String,
    /// Hash of the prompt.
    pub hash: u64,
    count: u64,
    width: u32,
    height: u32,
    base64: bool,
}

/// Parses a request with `size`, or with `width` and `height`, each 1024 pixels by default.
pub(super) fn read(body: &[u8]) -> Result<ImageTask, RequestError> {
    let body: Value = serde_json::from_slice(body)?;
    let invalid = |message: &str, field| RequestError { message: message.to_owned(), field: Some(field) };
    let text = |name: &'static str| body.get(name).and_then(Value::as_str);
    let prompt = text("prompt").ok_or_else(|| invalid("Field required: prompt", "prompt"))?;
    let side = |name| body.get(name).and_then(Value::as_u64).and_then(|side| u32::try_from(side).ok());
    let (width, height) = match text("size") {
        Some(size) => size
            .split_once(['x', '*'])
            .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)))
            .ok_or_else(|| invalid("size is not <width>x<height>", "size"))?,
        None => (side("width").unwrap_or(1024), side("height").unwrap_or(1024)),
    };
    if !(1..=MOST).contains(&width) || !(1..=MOST).contains(&height) {
        return Err(invalid("size is out of range", "size"));
    }
    let count = body.get("n").or_else(|| body.get("batch_size")).and_then(Value::as_u64).unwrap_or(1);
    if !(1..=10).contains(&count) {
        return Err(invalid("n is out of range", "n"));
    }
    Ok(ImageTask {
        model: text("model").unwrap_or("simulated").to_owned(),
        hash: fold_hash(0, prompt.as_bytes()),
        count,
        width,
        height,
        base64: text("response_format") == Some("b64_json"),
    })
}

impl ImageTask {
    /// Returns the body of the answer; the URLs of its images point to `host`.
    pub(super) fn answer(&self, seed: u64, host: &str) -> Value {
        let one = |index: u64| {
            let seed = fold_hash(self.hash, &seed.wrapping_add(index).to_le_bytes());
            if self.base64 {
                json!({ "b64_json": STANDARD.encode(png(self.width, self.height, seed)) })
            } else {
                let path = format!("simulated-images/{}x{}/{seed:016x}.png", self.width, self.height);
                json!({ "url": format!("http://{host}/{path}") })
            }
        };
        json!({ "created": super::chat::CREATED, "data": (0..self.count).map(one).collect::<Vec<_>>() })
    }
}

/// Returns the image for the path of a URL that [`ImageTask::answer`] has returned; `None` for any other path.
pub(super) fn image_at(path: &str) -> Option<Vec<u8>> {
    let (size, name) = path.strip_prefix("/simulated-images/")?.split_once('/')?;
    let (width, height) = size.split_once('x')?;
    let seed = u64::from_str_radix(name.strip_suffix(".png")?, 16).ok()?;
    let side = |text: &str| text.parse().ok().filter(|side| (1..=MOST).contains(side));
    Some(png(side(width)?, side(height)?, seed))
}

/// Encodes a PNG file with a palette: diagonal tiles of colours.
fn png(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut draw = SeededRng::new(seed);
    let [red, green, blue] = [(); 3].map(|()| (draw.next_below(256) as u8, draw.next_below(3) as u8 + 1));
    let palette: Vec<u8> = (0..=255u8)
        .flat_map(|step| [red, green, blue].map(|(from, pace)| from.wrapping_add(step.wrapping_mul(pace))))
        .collect();
    let (slant, twist) = (draw.next_below(7) as u32 + 1, draw.next_below(5) as u32 + 1);
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut row = Vec::with_capacity(width as usize + 1);
    for y in 0..height {
        row.clear();
        // Filter type 0 (none). The rows of a tile are equal, so they compress well even without a filter.
        row.push(0);
        row.extend((0..width).map(|x| ((x / TILE) * slant + (y / TILE) * twist) as u8));
        // Writing to memory does not fail.
        rows.write_all(&row).ok();
    }
    let mut head = [width.to_be_bytes(), height.to_be_bytes()].concat();
    head.extend([8, 3, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &head);
    chunk(&mut file, b"PLTE", &palette);
    chunk(&mut file, b"tEXt", b"Comment\0Simulated: no model drew this.");
    chunk(&mut file, b"IDAT", &rows.finish().unwrap_or_default());
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    file.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(content);
    file.extend(kind);
    file.extend(content);
    file.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    #[test]
    fn a_drawing_is_a_png_of_its_size_and_the_same_each_time() {
        let file = png(100, 40, 7);
        assert_eq!(file, png(100, 40, 7));
        assert_ne!(file, png(100, 40, 8));
        let mut at = 8;
        let mut kinds = Vec::new();
        let mut pixels = Vec::new();
        while at < file.len() {
            let length = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
            let mut sum = Crc::new();
            sum.update(&file[at + 4..at + 8 + length]);
            assert_eq!(sum.sum().to_be_bytes(), file[at + 8 + length..at + 12 + length]);
            kinds.push(String::from_utf8_lossy(&file[at + 4..at + 8]).into_owned());
            if &file[at + 4..at + 8] == b"IDAT" {
                ZlibDecoder::new(&file[at + 8..at + 8 + length]).read_to_end(&mut pixels).unwrap();
            }
            at += 12 + length;
        }
        assert_eq!(kinds, ["IHDR", "PLTE", "tEXt", "IDAT", "IEND"]);
        assert_eq!(pixels.len(), 101 * 40);
    }

    #[test]
    fn an_address_leads_to_its_image() {
        let wish = read(br#"{"prompt":"p","n":2,"size":"64x32"}"#).unwrap();
        let answer = wish.answer(1, "127.0.0.1:1");
        let url = answer["data"][1]["url"].as_str().unwrap().to_owned();
        let image = image_at(url.strip_prefix("http://127.0.0.1:1").unwrap()).unwrap();
        let inside =
            read(br#"{"prompt":"p","n":2,"width":64,"height":32,"response_format":"b64_json"}"#).unwrap();
        assert_eq!(inside.answer(1, "")["data"][1]["b64_json"], STANDARD.encode(image));
        assert_eq!(image_at("/simulated-images/0x5/1.png"), None);
    }
}
