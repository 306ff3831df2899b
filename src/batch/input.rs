//! The lines of a batch's input that have no result yet, a handful at a time.
//! Calls block.

use crate::files::LineReader;
use bytes::Bytes;
use penstock_batch::done::Done;
use penstock_batch::jsonl;
use std::io::{Error, ErrorKind, Result};

/// Most lines that are read ahead at once.
const MOST: usize = 256;

/// Longest name of a model, in bytes; no catalogue has one as long.
const MOST_MODEL: usize = 256;

/// A line to be asked.
pub struct Asked {
    /// Its place among the lines, from 0 on.
    pub index: u32,
    /// What its owner calls it.
    pub custom_id: Box<str>,
    /// What is asked.
    pub body: Bytes,
    /// How often it was asked.
    pub times: u32,
}

/// The input, being read.
pub struct Input {
    reader: LineReader,
    next: u32,
    /// Its end was reached.
    pub over: bool,
}

impl Input {
    /// The input from its beginning.
    pub const fn new(reader: LineReader) -> Self {
        Self { reader, next: 0, over: false }
    }

    /// The next lines that are not done, about so many bytes of them; none at the end.
    ///
    /// # Errors
    /// `InvalidData` if they are damaged; what the disk says.
    pub fn read(&mut self, done: &Done, most: usize) -> Result<Vec<Asked>> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < MOST && bytes < most {
            let Some(line) = self.reader.next_line()? else {
                self.over = true;
                break;
            };
            let index = self.next;
            self.next += 1;
            if done.has(index) {
                continue;
            }
            let read = jsonl::line(&line.bytes).map_err(|_| Error::from(ErrorKind::InvalidData))?;
            bytes += line.bytes.len();
            lines.push(Asked {
                index,
                custom_id: read.custom_id.into(),
                // A copy: it must not hold on to all that was read with it.
                body: Bytes::copy_from_slice(read.body),
                times: 0,
            });
        }
        Ok(lines)
    }
}

/// The model that a body names, unless that is too long to be one: it is kept with the batch.
pub fn model(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        model: Option<String>,
    }
    serde_json::from_slice::<Named>(body).ok()?.model.filter(|model| model.len() <= MOST_MODEL)
}
