//! The layout of a record. That of the next ones is nearly always the same, so that only their values have to be read.

use crate::json::Cursor;
use crate::records::Record;

/// A value that differs from record to record.
#[derive(Clone, Copy)]
pub enum Value {
    Number,
    Arrival,
    Data,
    Key,
}

/// A record, and its text around those values. Who has the same text there has the same members, in the same order.
pub struct Layout<'a> {
    record: Record<'a>,
    /// The text before each value, and the text of the value.
    values: Vec<(&'a [u8], Value, &'a [u8])>,
    /// The text after the last value.
    end: &'a [u8],
}

/// The values of a record, as they are found.
pub struct Found<'a> {
    rest: &'a [u8],
    values: Vec<(&'a [u8], Value, &'a [u8])>,
}

impl<'a> Found<'a> {
    /// Begins with the text of a record, and what follows it.
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text, values: Vec::with_capacity(4) }
    }

    /// Adds the value between `start` and `end`: what remained of the text before it, and after it.
    pub fn add(&mut self, value: Value, start: &[u8], end: &[u8]) -> Option<()> {
        let before = self.up_to(start)?;
        let text = self.up_to(end)?;
        self.values.push((before, value, text));
        Some(())
    }

    /// Returns the layout of `record`, whose text ends where `end` remained of it.
    pub fn layout(mut self, record: Record<'a>, end: &[u8]) -> Option<Layout<'a>> {
        let end = self.up_to(end)?;
        Some(Layout { record, values: self.values, end })
    }

    fn up_to(&mut self, after: &[u8]) -> Option<&'a [u8]> {
        let (text, rest) = self.rest.split_at_checked(self.rest.len().checked_sub(after.len())?)?;
        self.rest = rest;
        Some(text)
    }
}

impl<'a> Layout<'a> {
    /// Returns the record whose layout it is.
    pub fn first(&self) -> Record<'a> {
        self.record.clone()
    }

    /// Takes a record that has this layout. `None` if it has another one, or may have: then nothing is taken.
    pub fn take(&self, cursor: &mut Cursor<'a>) -> Option<Record<'a>> {
        let mut ahead = *cursor;
        let mut record = Record { partition_key: None, ..self.record };
        ahead.peek();
        for (before, value, like) in &self.values {
            ahead.take_text(before)?;
            match value {
                Value::Number => record.sequence_number = ahead.digits_like(like)?,
                // Records that were put together have the same; if it is only the start of another, the next text is missing.
                Value::Arrival if ahead.take_text(like).is_some() => {}
                Value::Arrival => record.arrival = ahead.number()?,
                Value::Data => record.data = ahead.raw_like(like)?,
                Value::Key => record.partition_key = Some(ahead.string_like(like)?),
            }
        }
        ahead.take_text(self.end)?;
        *cursor = ahead;
        Some(record)
    }
}
