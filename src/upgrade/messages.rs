//! What the two processes say to each other: JSON, each frame behind its length.

use crate::upgrade::remote::{Answer, Call};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Read, Result, Write};

/// Bytes of a frame at most: a page of rows is the largest thing in one.
const MOST: usize = 64 << 20;

/// An act on its way to the process that writes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Ledger entry, as JSON.
    pub line: String,
    /// Id and text of the tariff.
    pub terms: Option<(String, String)>,
    /// Amount in 1e-8 EUR.
    pub eur: i64,
    /// The spends that were noted for the process that writes have it in them.
    #[serde(default)]
    pub counted: bool,
}

/// From the process that leaves.
#[derive(Serialize, Deserialize)]
pub enum ToNew {
    /// The sockets that come along, by the addresses they have.
    Sockets(Vec<std::net::SocketAddr>),
    /// The store is closed: it is the reader's.
    Yours,
    /// What its exchanges did, in order.
    Acts {
        /// Named in the answer.
        number: u64,
        /// The acts.
        acts: Vec<Sent>,
    },
    /// Something it wants of the store.
    Call {
        /// Named in the answer.
        number: u64,
        /// What.
        call: Call,
    },
    /// Nothing more comes.
    Bye,
}

/// To the process that leaves.
#[derive(Serialize, Deserialize)]
pub enum ToOld {
    /// Its configuration is good and its sockets are there; it needs the store.
    Prepared,
    /// It serves.
    Ready,
    /// Acts are on the disk.
    Kept(u64),
    /// What the store said.
    Answer(u64, Answer),
    /// A key is not what it was.
    Key(String),
    /// An account is not what it was.
    Account(String),
}

/// Writes a frame.
///
/// # Errors
/// Nobody reads.
pub fn write(out: &mut impl Write, frame: &impl Serialize) -> Result<()> {
    let mut text = vec![0; 4];
    serde_json::to_writer(&mut text, frame)?;
    let length = u32::try_from(text.len() - 4).map_err(|_| Error::from(ErrorKind::InvalidData))?;
    if let Some(head) = text.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    out.write_all(&text)
}

/// Reads the next frame.
///
/// # Errors
/// Nobody writes any more, or not this.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
