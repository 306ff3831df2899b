//! Sizes and rules.
#![allow(clippy::unwrap_used)]

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    let size = base64_image_size(&STANDARD.encode(bytes));
    assert_eq!(size, image_size(bytes));
    size
}

fn jpeg(before: usize) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8];
    for _ in 0..before {
        bytes.extend([0xff, 0xe1, 0xff, 0xf0]);
        bytes.extend(vec![7; 0xffee]);
    }
    bytes.extend([0xff, 0xc4, 0, 3, 9]);
    bytes.extend([0xff, 0xff, 0xc2, 0, 17, 8, 0x01, 0x2c, 0x02, 0x58, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn sizes_are_read_from_the_headers() {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend([0, 0, 2, 0x80, 0, 0, 1, 0xab, 8, 2, 0, 0, 0]);
    assert_eq!(size(&png), Some((640, 427)));
    assert_eq!(size(b"GIF89a\x0a\x00\x14\x01rest"), Some((10, 276)));
    let mut lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a".to_vec();
    lossy.extend([0x40, 0x01, 0xf0, 0x40]);
    assert_eq!(size(&lossy), Some((320, 240)));
    let bits = (319_u32 | 239 << 14).to_le_bytes();
    let lossless = [b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f".as_slice(), &bits, &[0; 8]].concat();
    assert_eq!(size(&lossless), Some((320, 240)));
    let extended =
        [b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0".as_slice(), &[0x3f, 1, 0, 0xef, 0, 0, 0]].concat();
    assert_eq!(size(&extended), Some((320, 240)));
    assert_eq!(size(&jpeg(0)), Some((600, 300)));
    assert_eq!(size(&jpeg(5)), Some((600, 300)), "a frame header far behind is found");
}

#[test]
fn an_image_elsewhere_has_no_size() {
    assert_eq!(PromptImage::from_url("https://example.com/a.png"), PromptImage::with_unknown_size());
    assert_eq!(PromptImage::from_url("data:image/png,plain"), PromptImage::with_unknown_size());
    assert_eq!(PromptImage::from_url("data:image/png;base64,!!!"), PromptImage::with_unknown_size());
}

#[test]
fn qwen_patches_are_those_of_its_processor() {
    // Results of `smart_resize` of transformers with the factor 28 and limits of 3136 and 12 845 056 pixels.
    let rule = ImageRule::Patches { px: 28, min: 4, max: 16_384 };
    let tokens = |width, height| rule.tokens(PromptImage { size: Some((width, height)) });
    assert_eq!(tokens(640, 427), 23 * 15);
    assert_eq!(tokens(1999, 701), 71 * 25);
    assert_eq!(tokens(30, 17), 3 * 2);
    assert_eq!(tokens(8000, 6000), 147 * 110);
    assert_eq!(tokens(1000, 10), 20);
    assert_eq!(rule.tokens(PromptImage::with_unknown_size()), 16_384);
}

#[test]
fn patches_of_strips_are_at_most_the_maximum() {
    let rule = |min, max| ImageRule::Patches { px: 28, min, max };
    let tokens = |rule: &ImageRule, width, height| rule.tokens(PromptImage { size: Some((width, height)) });
    let qwen = rule(4, 16_384);
    assert_eq!(qwen.max_tokens(), 16_384);
    assert_eq!(tokens(&qwen, 28, 560_000), 16_384);
    assert_eq!(tokens(&qwen, 28, 28 * 200), 200, "no strip that its processor accepts is limited");
    assert_eq!(tokens(&qwen, 1, 200), 29);
    // The processor of Qwen-VL scales a strip to no less than one patch across, also above the maximum.
    let small = rule(4, 100);
    assert_eq!(tokens(&small, 28, 28 * 150), 122);
    assert!((122..=141).contains(&small.max_tokens()), "{}", small.max_tokens());
    assert_eq!(tokens(&small, 28, u32::MAX), small.max_tokens());
}

#[test]
fn no_size_has_more_tokens_than_the_maximum() {
    let sides = [0, 1, 2, 13, 14, 15, 27, 28, 29, 447, 448, 4096, 560_000, 1 << 31, u32::MAX - 1, u32::MAX];
    let numbers = [0, 1, 4, 100, 16_384, 1 << 40, u64::MAX];
    let mut rules = vec![ImageRule::Fixed { tokens: 0 }, ImageRule::Fixed { tokens: u64::MAX }];
    for px in [0, 1, 16, 28, 448, u32::MAX] {
        for number in numbers {
            rules.extend(numbers.map(|max| ImageRule::Patches { px, min: number, max }));
            rules.extend([0, 1, 12, MAX_TILES, u32::MAX].map(|max| ImageRule::Tiles {
                px,
                tokens: number,
                max,
            }));
        }
        rules.extend(sides.map(|longest| ImageRule::Rows { px, longest }));
    }
    for rule in rules {
        for size in sides.iter().flat_map(|width| sides.map(|height| (*width, height))) {
            let tokens = rule.tokens(PromptImage { size: Some(size) });
            assert!(tokens <= rule.max_tokens(), "{rule:?} {size:?}: {tokens} > {}", rule.max_tokens());
        }
    }
}

#[test]
fn pixtral_rows_end_with_one_more() {
    let rule = ImageRule::Rows { px: 16, longest: 1024 };
    let tokens = |width, height| rule.tokens(PromptImage { size: Some((width, height)) });
    assert_eq!(tokens(16, 16), 2);
    assert_eq!(tokens(64, 32), 10);
    assert_eq!(tokens(2048, 1024), 32 * 65);
    assert_eq!(rule.max_tokens(), 64 * 65);
}

#[test]
fn tiles_follow_the_shape_and_add_the_whole() {
    let rule = ImageRule::Tiles { px: 448, tokens: 256, max: 12 };
    let tokens = |width, height| rule.tokens(PromptImage { size: Some((width, height)) });
    assert_eq!(tokens(100, 100), 256);
    assert_eq!(tokens(800, 400), 3 * 256);
    assert_eq!(tokens(4000, 1000), 5 * 256);
}

#[test]
fn the_numbers_of_a_rule_are_bounded() {
    let parse = |max: u32| {
        let text = format!(r#"{{"rule":"tiles","px":448,"tokens":256,"max":{max}}}"#);
        serde_json::from_str::<ImageRule>(&text).map_err(|error| error.to_string())
    };
    assert_eq!(parse(MAX_TILES).unwrap(), ImageRule::Tiles { px: 448, tokens: 256, max: MAX_TILES });
    for max in [0, MAX_TILES + 1, 100_000, u32::MAX] {
        let error = parse(max).unwrap_err();
        assert!(error.starts_with("max: expected 1 to 256"), "{error}");
    }
    let image = PromptImage { size: Some((u32::MAX, 1)) };
    for rule in [
        ImageRule::Tiles { px: 0, tokens: u64::MAX, max: u32::MAX },
        ImageRule::Rows { px: 0, longest: u32::MAX },
        ImageRule::Patches { px: 0, min: u64::MAX, max: u64::MAX },
        ImageRule::Patches { px: u32::MAX, min: 0, max: 0 },
    ] {
        let _ = rule.tokens(image);
        let _ = rule.max_tokens();
    }
}

#[test]
fn an_unknown_size_has_the_configured_cost() {
    let images =
        ImageTokenSettings { rule: ImageRule::Fixed { tokens: 256 }, placeholder: None, unknown: Some(7) };
    assert_eq!(images.tokens(PromptImage::with_unknown_size()), 7);
    assert_eq!(images.tokens(PromptImage { size: Some((1, 1)) }), 256);
}

#[test]
fn no_image_has_more_tokens_than_the_bound() {
    for (unknown, most) in [(None, 256 + 16), (Some(7), 256 + 16), (Some(900), 900 + 16)] {
        let images =
            ImageTokenSettings { rule: ImageRule::Fixed { tokens: 256 }, placeholder: None, unknown };
        assert_eq!(images.max_tokens(), most);
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..6usize) {
        let magic: &[u8] = [b"\xff\xd8\xff".as_slice(), b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF", b"RIFF\0\0\0\0WEBP", b""].get(kind).unwrap();
        let _ = size(&[magic, &bytes].concat());
    }

    #[test]
    fn no_image_costs_more_than_the_most(width in any::<u32>(), height in 1..40_000u32, shift in 0..32u32) {
        for rule in [
            ImageRule::Patches { px: 28, min: 4, max: 16_384 },
            ImageRule::Rows { px: 16, longest: 1024 },
            ImageRule::Tiles { px: 448, tokens: 256, max: 12 },
        ] {
            for size in [(width >> shift, height), (height, width >> shift)] {
                prop_assert!(rule.tokens(PromptImage { size: Some(size) }) <= rule.max_tokens(), "{rule:?}");
            }
        }
    }

    #[test]
    fn the_maximum_limits_no_image_that_the_processor_accepts(
        short in 1..3_000u32, ratio in 1.0..200.0f64, px in 1..64u32, min in 1..3_000u64, more in 0..30_000u64,
    ) {
        let long = (f64::from(short) * ratio) as u32;
        let rule = ImageRule::Patches { px, min, max: min + more };
        prop_assert!(patches(short, long, px, min, min + more) <= rule.max_tokens(), "{rule:?}");
    }
}
