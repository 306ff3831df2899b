//! The head of an HTTP/1.1 request, looked at before anything acts on it: whole,
//! within its limits, and of one meaning. What two servers could read in two
//! ways is refused, above all where a body ends.

/// Longest of what stands around the target in a request line.
const AROUND: usize = 64;

/// What a head may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes in all.
    pub bytes: usize,
    /// Bytes of the request target.
    pub target: usize,
    /// Header fields.
    pub fields: usize,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It breaks a rule, or could be read in two ways.
    Malformed(&'static str),
    /// Its target is too long.
    LongTarget,
    /// It is too large.
    Large,
    /// It has too many fields.
    ManyFields,
}

/// A head that arrives in pieces.
#[derive(Debug, Default)]
pub struct Scan {
    /// Where the next line begins.
    at: usize,
    begun: bool,
    blank: bool,
    old: bool,
    fields: usize,
    host: bool,
    length: bool,
    coded: bool,
}

impl Scan {
    /// Goes on where the last call stopped; the length of the head once it is whole. `bytes` are always those of
    /// the last call and what came since.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn push(&mut self, bytes: &[u8], caps: Caps) -> Result<Option<usize>, Wrong> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'\n', rest) else { break };
            let line = rest.get(..end).unwrap_or_default();
            self.at += end + 1;
            if self.at > caps.bytes {
                return Err(self.large(line, caps));
            }
            let line = line.strip_suffix(b"\r").ok_or(Wrong::Malformed("a line ends without CR LF"))?;
            if line.iter().fold(false, |found, byte| found | control(*byte)) {
                return Err(Wrong::Malformed("it holds a control character"));
            }
            if !self.begun {
                self.first(line, caps)?;
            } else if line.is_empty() {
                return self.end().map(|()| Some(self.at));
            } else {
                self.field(line, caps)?;
            }
        }
        let rest = bytes.get(self.at..).unwrap_or_default();
        if bytes.len() > caps.bytes || (!self.begun && rest.len() > caps.target.saturating_add(AROUND)) {
            return Err(self.large(rest, caps));
        }
        Ok(None)
    }

    /// Whether the body comes in chunks.
    #[must_use]
    pub const fn chunked(&self) -> bool {
        self.coded
    }

    /// Which limit a line is over, or the last of many.
    fn large(&self, line: &[u8], caps: Caps) -> Wrong {
        if !self.begun && line.len() > caps.target { Wrong::LongTarget } else { Wrong::Large }
    }

    fn first(&mut self, line: &[u8], caps: Caps) -> Result<(), Wrong> {
        if line.is_empty() && !std::mem::replace(&mut self.blank, true) {
            return Ok(());
        }
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next())
        else {
            return Err(Wrong::Malformed("the request line is not METHOD TARGET VERSION"));
        };
        if target.len() > caps.target {
            return Err(Wrong::LongTarget);
        }
        if !name(method) || target.is_empty() {
            return Err(Wrong::Malformed("the request line is not METHOD TARGET VERSION"));
        }
        self.old = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Wrong::Malformed("the version is neither HTTP/1.1 nor HTTP/1.0")),
        };
        self.begun = true;
        Ok(())
    }

    fn field(&mut self, line: &[u8], caps: Caps) -> Result<(), Wrong> {
        self.fields += 1;
        if self.fields > caps.fields {
            return Err(Wrong::ManyFields);
        }
        let colon = memchr::memchr(b':', line).ok_or(Wrong::Malformed("a field has no colon"))?;
        let (field, value) = line.split_at(colon);
        if !name(field) {
            // Here are those that go on in a second line, and those with a space before the colon.
            return Err(Wrong::Malformed("the name of a field is not one"));
        }
        let value = || value.get(1..).unwrap_or_default().trim_ascii();
        match field.len() {
            4 if field.eq_ignore_ascii_case(b"host") => once(&mut self.host, "there is more than one Host"),
            14 if field.eq_ignore_ascii_case(b"content-length") => {
                once(&mut self.length, "there is more than one Content-Length")?;
                let value = value();
                let number = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
                if number { Ok(()) } else { Err(Wrong::Malformed("Content-Length is not a number")) }
            }
            17 if field.eq_ignore_ascii_case(b"transfer-encoding") => {
                once(&mut self.coded, "there is more than one Transfer-Encoding")?;
                let chunked = value().eq_ignore_ascii_case(b"chunked");
                if chunked { Ok(()) } else { Err(Wrong::Malformed("Transfer-Encoding is not chunked")) }
            }
            _ => Ok(()),
        }
    }

    fn end(&self) -> Result<(), Wrong> {
        match (self.coded, self.length, self.old) {
            (true, true, _) => Err(Wrong::Malformed("there are both Content-Length and Transfer-Encoding")),
            (true, _, true) => Err(Wrong::Malformed("HTTP/1.0 has no Transfer-Encoding")),
            _ if !self.host && !self.old => Err(Wrong::Malformed("there is no Host")),
            _ => Ok(()),
        }
    }
}

/// The target of a head that may be wrong otherwise, for what is said of it.
#[must_use]
pub fn target(bytes: &[u8]) -> &str {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    let target = line.unwrap_or_default().split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    std::str::from_utf8(target).unwrap_or_default()
}

fn once(seen: &mut bool, twice: &'static str) -> Result<(), Wrong> {
    if std::mem::replace(seen, true) { Err(Wrong::Malformed(twice)) } else { Ok(()) }
}

const fn control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Whether it is a token, as names of methods and fields are.
fn name(bytes: &[u8]) -> bool {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(token)
}

#[cfg(test)]
mod tests;
