//! An upload on its way in: a form whose parts come in any order, of which only the small ones are held. The
//! file goes on as it comes.

use bytes::Bytes;
use penstock_contract::{Code, Refusal};
use penstock_wire::form::{Event, Form, Part, boundary};

/// The part that is the file.
const FILE: &str = "file";
/// Longest value of a field, in bytes.
const MOST_FIELD: usize = 1 << 10;
/// Longest name of a file, in bytes.
const MOST_NAME: usize = 255;
/// How long a file may be kept at its owner's wish, in seconds: an hour to thirty days.
pub const KEEP: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;
/// What a file is called that has no name.
const NAMELESS: &str = "upload.jsonl";

/// What a form said, contents aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// What the file is called: one part of a path, without control characters.
    pub filename: String,
    /// Seconds from its making on until it goes.
    pub expires_after: Option<u64>,
}

/// A form that is being read.
#[derive(Debug)]
pub struct Upload {
    form: Form,
    file: File,
    filename: Option<String>,
    purpose: bool,
    anchor: bool,
    seconds: Option<u64>,
    seen: Vec<String>,
    /// The part that is being read; its value, unless it is the file.
    part: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Awaited,
    Reading,
    Read,
}

impl Upload {
    /// A form of this content type.
    ///
    /// # Errors
    /// It is no form, or nothing says where its parts end.
    pub fn new(content_type: &str) -> Result<Self, Refusal> {
        let sentence = "This path reads forms; send content-type: multipart/form-data.";
        let boundary = boundary(content_type)
            .ok_or_else(|| Refusal::because(Code::UnsupportedMediaType, sentence))?
            .ok_or_else(|| {
                wrong("content-type", "expected multipart/form-data with a boundary, but it is missing")
            })?;
        Ok(Self {
            form: Form::new(&boundary),
            file: File::Awaited,
            filename: None,
            purpose: false,
            anchor: false,
            seconds: None,
            seen: Vec::new(),
            part: None,
        })
    }

    /// Takes the next bytes; those of the file are added to `contents`.
    ///
    /// # Errors
    /// What is wrong, naming the part.
    pub fn push(&mut self, bytes: Bytes, contents: &mut Vec<Bytes>) -> Result<(), Refusal> {
        let broken = self.form.push(bytes).err();
        while let Some(event) = self.form.told() {
            match event {
                Event::Part(part) => self.begin(part)?,
                Event::Content(content) => self.content(content, contents)?,
                Event::Whole => self.whole()?,
            }
        }
        broken.map_or(Ok(()), |broken| Err(broken.refusal(self.reading())))
    }

    /// The form is over.
    ///
    /// # Errors
    /// What is missing or cut short, naming the part.
    pub fn end(self) -> Result<Uploaded, Refusal> {
        self.form.end().map_err(|broken| broken.refusal(self.reading()))?;
        if self.file != File::Read {
            return Err(wrong(FILE, "expected a file, but it is missing"));
        }
        if !self.purpose {
            return Err(wrong("purpose", "expected \"batch\", but it is missing"));
        }
        let expires_after = match (self.anchor, self.seconds) {
            (true, None) => {
                return Err(wrong(SECONDS, "expected with expires_after[anchor], but it is missing"));
            }
            (false, Some(_)) => return Err(wrong(ANCHOR, "expected \"created_at\", but it is missing")),
            (_, seconds) => seconds,
        };
        Ok(Uploaded { filename: plain_name(self.filename.as_deref().unwrap_or_default()), expires_after })
    }

    fn begin(&mut self, part: Part) -> Result<(), Refusal> {
        if part.name == FILE {
            if self.file != File::Awaited {
                return Err(wrong(FILE, "expected one file, got more than one"));
            }
            self.file = File::Reading;
            self.filename = part.filename;
        } else if part.is_file {
            let sentence = match shown(&part.name) {
                Some(name) => format!("expected the file in a part of this name, got a file in \"{name}\""),
                None => "expected the file in a part of this name, got a file in another".to_owned(),
            };
            return Err(wrong(FILE, sentence));
        }
        self.part = Some((part.name, Vec::new()));
        Ok(())
    }

    fn content(&mut self, content: Bytes, contents: &mut Vec<Bytes>) -> Result<(), Refusal> {
        if self.file == File::Reading {
            contents.push(content);
            return Ok(());
        }
        let Some((name, value)) = &mut self.part else { return Ok(()) };
        if value.len() + content.len() > MOST_FIELD {
            let name = shown(name).unwrap_or("form");
            return Err(wrong(name, format!("expected at most {MOST_FIELD} bytes")));
        }
        value.extend_from_slice(&content);
        Ok(())
    }

    fn whole(&mut self) -> Result<(), Refusal> {
        let Some((name, value)) = self.part.take() else { return Ok(()) };
        if self.file == File::Reading {
            self.file = File::Read;
            return Ok(());
        }
        let known = ["purpose", ANCHOR, SECONDS];
        // What other services take and what changes nothing here is passed over.
        let Some(name) = known.into_iter().find(|known| *known == name) else { return Ok(()) };
        if self.seen.iter().any(|seen| seen == name) {
            return Err(wrong(name, "expected it once, got it more than once"));
        }
        self.seen.push(name.to_owned());
        let text = std::str::from_utf8(&value).map_err(|_| wrong(name, "expected text in UTF-8"))?;
        self.field(name, text.trim())
    }

    fn field(&mut self, name: &'static str, text: &str) -> Result<(), Refusal> {
        match name {
            ANCHOR if text == "created_at" => self.anchor = true,
            ANCHOR => return Err(wrong(name, "expected \"created_at\"")),
            SECONDS => {
                let seconds = text.parse().ok().filter(|seconds| KEEP.contains(seconds));
                let sentence = || format!("expected a whole number from {} to {}", KEEP.start(), KEEP.end());
                self.seconds = Some(seconds.ok_or_else(|| wrong(name, sentence()))?);
            }
            _ if text == "batch" => self.purpose = true,
            _ => {
                let got = shown(text).map(|text| format!(", got \"{text}\"")).unwrap_or_default();
                return Err(wrong(name, format!("expected \"batch\"{got}")));
            }
        }
        Ok(())
    }

    fn reading(&self) -> Option<&str> {
        self.part.as_ref().and_then(|(name, _)| shown(name))
    }
}

const ANCHOR: &str = "expires_after[anchor]";
const SECONDS: &str = "expires_after[seconds]";

/// The last part of a path of any system, in a length that every file system takes.
fn plain_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|letter| !letter.is_control()).collect();
    while plain.len() > MOST_NAME {
        plain.pop();
    }
    let plain = plain.trim();
    if plain.is_empty() || plain.chars().all(|letter| letter == '.') {
        NAMELESS.to_owned()
    } else {
        plain.to_owned()
    }
}

fn wrong(name: &str, sentence: impl std::fmt::Display) -> Refusal {
    Refusal::invalid(name, format!("{name}: {sentence}."))
}

/// A word of the client's own that may be repeated to it: short and plain.
fn shown(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    fn part(name: &str, value: &str) -> String {
        format!("--B7\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    fn file(filename: &str, contents: &str) -> String {
        format!(
            "--B7\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n{contents}\r\n"
        )
    }

    fn read(parts: &[String], cuts: &[usize]) -> Result<(Uploaded, Vec<u8>), Refusal> {
        let body = parts.concat() + "--B7--\r\n";
        let mut upload = Upload::new("multipart/form-data; boundary=B7").unwrap();
        let mut contents = Vec::new();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        ends.extend([0, body.len()]);
        ends.sort_unstable();
        for pair in ends.windows(2) {
            upload.push(Bytes::copy_from_slice(&body.as_bytes()[pair[0]..pair[1]]), &mut contents)?;
        }
        Ok((upload.end()?, contents.concat()))
    }

    fn said(parts: &[String]) -> String {
        read(parts, &[]).unwrap_err().message.into_owned()
    }

    #[test]
    fn parts_come_in_any_order() {
        let (purpose, contents) = (part("purpose", "batch"), "{}\r\n{}\n");
        let (anchor, seconds) = (part(ANCHOR, "created_at"), part(SECONDS, "3600"));
        let file = file("a.jsonl", contents);
        let uploaded = Uploaded { filename: "a.jsonl".to_owned(), expires_after: Some(3_600) };
        for parts in [
            [purpose.clone(), file.clone(), anchor.clone(), seconds.clone()],
            [file.clone(), seconds.clone(), purpose.clone(), anchor.clone()],
            [anchor, seconds, file, purpose],
        ] {
            assert_eq!(read(&parts, &[]).unwrap(), (uploaded.clone(), contents.as_bytes().to_vec()));
        }
    }

    #[test]
    fn names_are_made_plain() {
        let long = "\u{e9}".repeat(200);
        for (given, plain) in [
            ("C:\\Users\\me\\a b.jsonl", "a b.jsonl"),
            ("../../etc/passwd", "passwd"),
            ("a\u{7f}\u{1}b", "ab"),
            ("", NAMELESS),
            ("x/..", NAMELESS),
            (&long, &"\u{e9}".repeat(127)),
        ] {
            assert_eq!(plain_name(given), plain, "{given:?}");
        }
    }

    #[test]
    fn what_is_wrong_names_its_part() {
        let (purpose, file) = (part("purpose", "batch"), file("a", "x"));
        let seconds = part(SECONDS, "3600");
        let cases: [(Vec<String>, &str); 10] = [
            (vec![purpose.clone()], "file: expected a file, but it is missing."),
            (vec![file.clone()], "purpose: expected \"batch\", but it is missing."),
            (vec![part("purpose", "fine-tune")], "purpose: expected \"batch\", got \"fine-tune\"."),
            (vec![part("purpose", "a b\u{e9}")], "purpose: expected \"batch\"."),
            (vec![purpose.clone(), purpose.clone()], "purpose: expected it once, got it more than once."),
            (vec![file.clone(), file.clone()], "file: expected one file, got more than one."),
            (
                vec![purpose.clone(), file.clone(), seconds.clone()],
                "expires_after[anchor]: expected \"created_at\", but it is missing.",
            ),
            (
                vec![purpose.clone(), file.clone(), part(ANCHOR, "created_at")],
                "expires_after[seconds]: expected with expires_after[anchor], but it is missing.",
            ),
            (
                vec![part(SECONDS, "60")],
                "expires_after[seconds]: expected a whole number from 3600 to 2592000.",
            ),
            (vec![part("purpose", &"x".repeat(2_000))], "purpose: expected at most 1024 bytes."),
        ];
        for (parts, sentence) in cases {
            assert_eq!(said(&parts), sentence);
        }
        let other = file.replace("name=\"file\"", "name=\"jsonl\"");
        assert_eq!(
            said(&[other]),
            "file: expected the file in a part of this name, got a file in \"jsonl\"."
        );
        assert!(Upload::new("application/json").is_err() && Upload::new("multipart/form-data").is_err());
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_same(contents in "[\\r\\n\\-b a]{0,60}", cuts in prop::collection::vec(any::<usize>(), 0..8)) {
            let parts = [part("purpose", "batch"), file("a", &contents)];
            prop_assert_eq!(read(&parts, &cuts).unwrap().1, contents.as_bytes().to_vec());
        }
    }
}
