//! Filter `tojson`, in the format of Python's `json.dumps(…, ensure_ascii=False)`.
//!
//! Guarantees: keys in their order, separators `", "` and `": "`, indentation on request, floats written as in Python.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, Write};

/// Writes a value as JSON.
pub(super) fn dumps(value: &Value, options: &Kwargs) -> Result<Value, Error> {
    let mut out = Vec::new();
    let written = match options.get::<Option<usize>>("indent")? {
        Some(indent) => {
            let spaces = vec![b' '; indent.min(64)];
            value.serialize(&mut Serializer::with_formatter(
                &mut out,
                IndentedFormatter(PrettyFormatter::with_indent(&spaces)),
            ))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, OneLineFormatter)),
    };
    let failed = |_| Error::new(ErrorKind::InvalidOperation, "tojson was given something that is no JSON");
    written.map_err(failed)?;
    let text = String::from_utf8(out).map_err(|_| Error::from(ErrorKind::InvalidOperation))?;
    Ok(Value::from_safe_string(text))
}

struct OneLineFormatter;

impl Formatter for OneLineFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(python_float(number).as_bytes())
    }
}

struct IndentedFormatter<'i>(PrettyFormatter<'i>);

impl Formatter for IndentedFormatter<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(python_float(number).as_bytes())
    }
}

/// Writes the shortest digits that parse to the same number. As in Python, numbers below 1e-4 and from 1e16 on have
/// an exponent.
fn python_float(number: f64) -> String {
    let size = number.abs();
    if number != 0.0 && !(1e-4..1e16).contains(&size) {
        let written = format!("{number:e}");
        let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let written = number.to_string();
    if written.contains('.') { written } else { format!("{written}.0") }
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases =
            [(0.0, "0.0"), (1.5, "1.5"), (-2.0, "-2.0"), (1e15, "1000000000000000.0"), (1e16, "1e+16")];
        for (number, written) in cases {
            assert_eq!(python_float(number), written);
        }
        assert_eq!(python_float(0.0001), "0.0001");
        assert_eq!(python_float(0.000_012_5), "1.25e-05");
        assert_eq!(python_float(-1.5e300), "-1.5e+300");
    }
}
