//! Messages between the two processes of an upgrade, encoded as JSON. Each follows its length (4 bytes,
//! little-endian).

use crate::upgrade::handover_store::{StoreRequest, StoreResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Read, Result, Write};

/// Maximum message size in bytes; a page of rows is the largest.
const MAX_MESSAGE: usize = 64 << 20;

/// Ledger action that the old process sends to the new process, which writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SentLedgerAction {
    /// Ledger entry, as JSON.
    pub line: String,
    /// Id and text of the tariff's terms, if the action names a tariff.
    pub terms: Option<(String, String)>,
    /// Amount of the action in units of 10⁻⁸ EUR.
    pub eur: i64,
    /// True if the spend counters in the store, which the new process has read, already include the amount of the
    /// action.
    #[serde(default)]
    pub counted: bool,
}

/// Message from the old process to the new process of an upgrade.
#[derive(Serialize, Deserialize)]
pub enum OldToNew {
    /// Addresses of the listening sockets, whose descriptors follow this message.
    Sockets(Vec<std::net::SocketAddr>),
    /// Notice that the store is closed, and that the new process may open it.
    Yours,
    /// Ledger actions of the old process's exchanges, in order.
    Acts {
        /// Number that the acknowledgement repeats.
        number: u64,
        /// Ledger actions that the new process records.
        acts: Vec<SentLedgerAction>,
    },
    /// Request to the store, which the new process has open.
    Call {
        /// Number that the response repeats.
        number: u64,
        /// Request to the store, which the new process executes.
        call: StoreRequest,
    },
    /// Notice that the old process closes the connection.
    Bye,
}

/// Message from the new process to the old process of an upgrade.
#[derive(Serialize, Deserialize)]
pub enum NewToOld {
    /// Notice that the configuration is valid and the sockets are bound: the new process now needs only the store.
    Prepared,
    /// Notice that the new process serves requests.
    Ready,
    /// Acknowledgement that the ledger actions of the `Acts` message with this number are on the disk.
    #[serde(rename = "Kept")]
    Persisted(u64),
    /// Response of the store to the `Call` message with this number.
    Answer(u64, StoreResponse),
    /// Change of the API key with this id.
    Key(String),
    /// Change of the account with this id.
    Account(String),
}

impl SentLedgerAction {
    /// Returns the approximate size of the action in a message, in bytes.
    pub(super) fn size_estimate(&self) -> usize {
        let terms = self.terms.as_ref().map_or(0, |(id, text)| id.len() + text.len());
        self.line.len() + terms
    }
}

/// Writes a message to the other process.
///
/// # Errors
/// Returns `FileTooLarge` if the other process would not accept a message of this size, and writes nothing then.
/// Returns another error if the other process has closed the connection.
pub fn write_message(out: &mut impl Write, frame: &impl Serialize) -> Result<()> {
    let mut text = vec![0; 4];
    serde_json::to_writer(&mut text, frame)?;
    let length = text.len() - 4;
    let length = u32::try_from(length).ok().filter(|length| *length as usize <= MAX_MESSAGE);
    let length = length.ok_or_else(|| Error::from(ErrorKind::FileTooLarge))?;
    if let Some(head) = text.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    out.write_all(&text)
}

/// Reads the next message of the other process.
///
/// # Errors
/// Returns an error if the connection is closed or the message is invalid.
pub fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_message_that_the_reader_would_refuse_is_not_written() {
        let mut out = Vec::new();
        let largest = "x".repeat(MAX_MESSAGE - 2);
        write_message(&mut out, &largest).unwrap();
        assert_eq!(read_message::<String>(&mut &*out).unwrap(), largest);
        out.clear();
        let error = write_message(&mut out, &format!("{largest}x")).unwrap_err();
        assert_eq!((error.kind(), out.len()), (ErrorKind::FileTooLarge, 0));
    }
}
