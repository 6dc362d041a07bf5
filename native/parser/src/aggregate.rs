//! KPL aggregates: the protobuf message `AggregatedRecord`. Python has checked the bytes around it.

use std::ops::RangeInclusive;

/// The maximum number of characters of a partition key (AWS: `PutRecord`).
const MAX_PARTITION_KEY: usize = 256;
/// The digits of the largest hash key, 2**128 - 1.
const MAX_HASH_KEY_DIGITS: usize = 39;
/// The most bytes of a varint that is read here: lengths and indexes are smaller than 2**28.
const MAX_VARINT: u32 = 4;

/// One user record, by the indexes of the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct User<'a> {
    /// The index of its partition key.
    pub key: usize,
    /// The index of its explicit hash key.
    pub hash: Option<usize>,
    /// Its data.
    pub data: &'a [u8],
}

/// A valid aggregate whose user records have no tags.
#[derive(Debug, Default, PartialEq)]
pub struct Aggregate<'a> {
    /// The partition keys, each of 1 to 256 characters.
    pub keys: Vec<&'a str>,
    /// The explicit hash keys; None for what is no hash key.
    pub hashes: Vec<Option<&'a str>>,
    /// The user records; their indexes are inside the tables.
    pub users: Vec<User<'a>>,
}

/// Reads an aggregate without MAGIC and MD5, if it has at most so many user records, and at least one.
#[must_use]
pub fn parse(body: &[u8], max_users: usize) -> Option<Aggregate<'_>> {
    let mut found = Aggregate::default();
    let mut message = Message(body);
    while let Some(field) = message.next()? {
        match field {
            (0x0A, Value::Bytes(key)) => found.keys.push(text(key).filter(|key| is_partition_key(key))?),
            (0x12, Value::Bytes(hash)) => found.hashes.push(Some(text(hash)?).filter(|hash| hash_key(hash).is_some())),
            (0x1A, Value::Bytes(user)) => found.users.push(user_record(user)?),
            _ => return None,
        }
    }
    let is_inside = |user: &User| user.key < found.keys.len() && user.hash.is_none_or(|at| at < found.hashes.len());
    let is_usual = (1..=max_users).contains(&found.users.len()) && found.users.iter().all(is_inside);
    is_usual.then_some(found)
}

impl Aggregate<'_> {
    /// Whether the hash key of every user record is in the range. `digests_of`: returns the MD5 of each message.
    #[must_use]
    pub fn is_inside(&self, range: &RangeInclusive<u128>, digests_of: impl Fn(&[&[u8]]) -> Vec<[u8; 16]>) -> bool {
        let keys: Vec<_> = self.keys.iter().map(|key| key.as_bytes()).collect();
        let kept_keys: Vec<_> =
            digests_of(&keys).into_iter().map(|digest| range.contains(&u128::from_be_bytes(digest))).collect();
        self.users.iter().all(|user| {
            let explicit = user.hash.and_then(|at| self.hashes.get(at).copied().flatten());
            match explicit {
                Some(hash) => hash_key(hash).is_some_and(|number| range.contains(&number)),
                None => kept_keys.get(user.key).copied().unwrap_or(false),
            }
        })
    }
}

fn user_record(message: &[u8]) -> Option<User<'_>> {
    let (mut key, mut hash, mut data) = (None, None, None);
    let mut message = Message(message);
    while let Some(field) = message.next()? {
        let is_first = match field {
            (0x08, Value::Number(index)) => key.replace(index).is_none(),
            (0x10, Value::Number(index)) => hash.replace(index).is_none(),
            (0x1A, Value::Bytes(bytes)) => data.replace(bytes).is_none(),
            _ => false,
        };
        if !is_first {
            return None;
        }
    }
    Some(User { key: key?, hash, data: data? })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn is_partition_key(text: &str) -> bool {
    (1..=MAX_PARTITION_KEY).contains(&text.len()) || (1..=MAX_PARTITION_KEY).contains(&text.chars().count())
}

/// Returns the number that a hash key is, if it is one.
fn hash_key(text: &str) -> Option<u128> {
    let is_decimal = text.len() <= MAX_HASH_KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

enum Value<'a> {
    Number(usize),
    Bytes(&'a [u8]),
}

/// The rest of a protobuf message.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    /// Takes the next field: its tag and its value. The inner None is the end of the message.
    #[allow(clippy::option_option)]
    fn next(&mut self) -> Option<Option<(u8, Value<'a>)>> {
        let [tag, rest @ ..] = self.0 else { return Some(None) };
        self.0 = rest;
        let number = self.varint()?;
        match tag & 7 {
            0 => Some(Some((*tag, Value::Number(number)))),
            2 => {
                let (value, rest) = self.0.split_at_checked(number)?;
                self.0 = rest;
                Some(Some((*tag, Value::Bytes(value))))
            }
            _ => None,
        }
    }

    fn varint(&mut self) -> Option<usize> {
        let mut number = 0;
        for place in 0..MAX_VARINT {
            let [byte, rest @ ..] = self.0 else { return None };
            self.0 = rest;
            number |= usize::from(byte & 0x7F) << place.wrapping_mul(7);
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Aggregate, User, parse};
    use crate::md5::digest;

    fn read(body: &[u8]) -> Option<usize> {
        parse(body, 10).map(|found| found.users.len())
    }

    #[test]
    fn user_records_refer_to_the_tables_before_and_after_them() {
        let body = b"\x1a\x07\x10\x00\x1a\x01x\x08\x01\x0a\x01a\x0a\x01b\x12\x0212\x1a\x04\x08\x00\x1a\x00";
        let users = vec![User { key: 1, hash: Some(0), data: b"x" }, User { key: 0, hash: None, data: b"" }];
        assert_eq!(parse(body, 10), Some(Aggregate { keys: vec!["a", "b"], hashes: vec![Some("12")], users }));
        assert_eq!(parse(body, 1), None);
    }

    #[test]
    fn the_range_holds_explicit_hash_keys_and_those_of_partition_keys() {
        let body = b"\x0a\x01a\x12\x0212\x1a\x06\x08\x00\x10\x00\x1a\x00\x1a\x04\x08\x00\x1a\x00";
        let found = parse(body, 10).unwrap_or_default();
        let of_a = u128::from_be_bytes(digest(b"a"));
        let is_inside = |range| found.is_inside(&range, |keys| keys.iter().map(|key| digest(key)).collect());
        assert!(is_inside(12..=of_a));
        assert!(!is_inside(13..=of_a));
        assert!(!is_inside(12..=of_a.saturating_sub(1)));
    }

    #[test]
    fn what_is_unusual_is_left_to_python() {
        assert_eq!(read(b"\x0a\x01a\x1a\x04\x08\x00\x1a\x00"), Some(1));
        for bad in [
            &b""[..],
            b"\x0a\x01a",
            b"\x0a\x00\x1a\x04\x08\x00\x1a\x00",
            b"\x0a\x01\xff\x1a\x04\x08\x00\x1a\x00",
            b"\x0a\x01a\x1a\x04\x08\x01\x1a\x00",
            b"\x0a\x01a\x1a\x06\x08\x00\x10\x00\x1a\x00",
            b"\x0a\x01a\x1a\x02\x08\x00",
            b"\x0a\x01a\x1a\x02\x1a\x00",
            b"\x0a\x01a\x1a\x06\x08\x00\x08\x00\x1a\x00",
            b"\x0a\x01a\x1a\x06\x08\x00\x1a\x00\x22\x00",
            b"\x0a\x01a\x1a\x04\x08\x00\x1a\x01",
            b"\x0a\x01a\x1a\x05\x08\x00\x1a\x00",
            b"\x0a\x01a\x1a\x09\x08\x80\x80\x80\x80\x00\x1a\x00",
            b"\x0a\x01a\x1a\x04\x08\x00\x1a\x00\x20\x00",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
