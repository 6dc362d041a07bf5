//! Parses what Kinesis sends: frames, events and KPL aggregates. Bytes in, slices of them out.
//!
//! `None` always means: not the common form, so that the Python step reads it, and its answer or its error counts. What
//! is returned is what the Python step returns. Nothing here may panic, whatever the bytes are.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod data;
pub mod frame;
mod json;
mod layout;
pub mod md5;
pub mod packed;
pub mod records;
