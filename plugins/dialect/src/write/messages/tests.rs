//! The writer of messages: its grammar, its blocks, its usage.
