//! Evaluation of a group of transactions that one commit of an engine writes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{StoreError, Transaction, row};

/// Writes by disk key; `None` removes the row.
pub(crate) type WritesByKey = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Evaluates each transaction on the stored rows, which `read_row` returns by disk key, and on the writes of the
/// earlier transactions of the group. Returns the result of each transaction, and the combined writes of those that
/// succeeded, at most one for each row.
pub(crate) fn evaluate_group<'a>(
    transactions: impl Iterator<Item = &'a Transaction>,
    mut read_row: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
) -> (Vec<Result<(), StoreError>>, WritesByKey) {
    let mut order: WritesByKey = Vec::new();
    let mut indexes: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut results = Vec::new();
    for transaction in transactions {
        let mut writes: WritesByKey = Vec::new();
        let result = transaction.evaluate(
            |space, key| {
                let key = row::disk_key(space, key);
                match indexes.get(&key).and_then(|index| order.get(*index)) {
                    Some((_, value)) => Ok(value.clone()),
                    None => read_row(&key),
                }
            },
            |space, key, value| writes.push((row::disk_key(space, key), value.map(<[u8]>::to_vec))),
        );
        for (key, value) in writes {
            match indexes.entry(key) {
                Entry::Occupied(index) => {
                    if let Some(earlier) = order.get_mut(*index.get()) {
                        earlier.1 = value;
                    }
                }
                Entry::Vacant(index) => {
                    order.push((index.key().clone(), value));
                    index.insert(order.len() - 1);
                }
            }
        }
        results.push(result);
    }
    (results, order)
}
