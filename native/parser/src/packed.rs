//! The records of an event as packed columns: the values of a field one after the other, and the width of each.

use crate::records::{Base64, Record};

/// How the data of a KPL aggregate begins.
pub const MAGIC: &[u8] = b"\xf3\x89\x9a\xc2";

/// The columns, but for the data. Widths are in bytes.
#[derive(Debug, Default, PartialEq)]
pub struct Packed<'a> {
    /// The digits of all sequence numbers.
    pub numbers: Vec<u8>,
    /// Of each sequence number.
    pub number_widths: Vec<i32>,
    /// In seconds since the epoch.
    pub arrivals: Vec<f64>,
    /// Of the data of each record.
    pub data_widths: Vec<i32>,
    /// All partition keys.
    pub keys: Vec<u8>,
    /// Of each partition key; 0 if a record has none.
    pub key_widths: Vec<i32>,
    /// 1 for each record that has a partition key, else 0; empty if all have one.
    pub has_key: Vec<u8>,
    /// That of all records.
    pub encryption_type: Option<&'a str>,
    /// The bytes of all data.
    pub data_length: usize,
}

/// Packs records, at least one. `None` if they have several encryption types, or data that is no base64.
#[must_use]
pub fn pack<'a>(records: &[Record<'a>]) -> Option<Packed<'a>> {
    let first = records.first()?;
    let mut packed = Packed { encryption_type: first.encryption_type, ..Packed::default() };
    for record in records {
        let length = Base64::decoded_length(record.data)?;
        let key = record.partition_key.as_deref().unwrap_or_default();
        if record.encryption_type != packed.encryption_type {
            return None;
        }
        packed.numbers.extend_from_slice(record.sequence_number);
        packed.number_widths.push(i32::try_from(record.sequence_number.len()).ok()?);
        packed.arrivals.push(record.arrival);
        packed.data_widths.push(i32::try_from(length).ok()?);
        packed.keys.extend_from_slice(key);
        packed.key_widths.push(i32::try_from(key.len()).ok()?);
        packed.data_length = packed.data_length.checked_add(length)?;
    }
    if records.iter().any(|record| record.partition_key.is_none()) {
        packed.has_key = records.iter().map(|record| u8::from(record.partition_key.is_some())).collect();
    }
    Some(packed)
}

/// Decodes the data of records into the whole of `bytes`. `None` if one is no base64, or may be an aggregate.
pub fn unpack_data(base64: &Base64, records: &[Record<'_>], mut bytes: &mut [u8]) -> Option<()> {
    for record in records {
        let (data, rest) = bytes.split_at_mut_checked(Base64::decoded_length(record.data)?)?;
        base64.decode(record.data, data)?;
        if data.starts_with(MAGIC) {
            return None;
        }
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack_data};
    use crate::records::{Base64, Record};

    fn record<'a>(data: &'a [u8], key: Option<&'a str>, encryption_type: Option<&'a str>) -> Record<'a> {
        Record {
            sequence_number: b"17",
            arrival: 1.5,
            data,
            partition_key: key.map(|key| key.as_bytes().into()),
            encryption_type,
        }
    }

    #[test]
    fn values_follow_each_other() {
        let records = [record(b"AAE=", Some("k\u{e9}"), Some("KMS")), record(b"", None, Some("KMS"))];
        let packed = pack(&records).unwrap_or_default();
        assert_eq!(packed.numbers, b"1717");
        assert_eq!(packed.number_widths, [2, 2]);
        assert_eq!(packed.arrivals, [1.5, 1.5]);
        assert_eq!(packed.data_widths, [2, 0]);
        assert_eq!(packed.keys, "k\u{e9}".as_bytes());
        assert_eq!(packed.key_widths, [3, 0]);
        assert_eq!(packed.has_key, [1, 0]);
        assert_eq!(packed.encryption_type, Some("KMS"));
        let mut bytes = vec![9; packed.data_length];
        assert_eq!(unpack_data(&Base64::new(), &records, &mut bytes), Some(()));
        assert_eq!(bytes, [0, 1]);
    }

    #[test]
    fn what_is_unusual_is_left_to_python() {
        assert_eq!(pack(&[]), None);
        assert_eq!(pack(&[record(b"AAE=", None, Some("KMS")), record(b"AAE=", None, None)]), None);
        assert_eq!(pack(&[record(b"AAE", None, None)]), None);
        for (data, length) in [(&b"84mawg=="[..], 4), (b"AAF=", 2), (b"AAE=", 3)] {
            let mut bytes = vec![0; length];
            assert_eq!(unpack_data(&Base64::new(), &[record(data, None, None)], &mut bytes), None);
        }
    }
}
