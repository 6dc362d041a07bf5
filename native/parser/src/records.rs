//! From the JSON of an event, or of a page of `GetRecords`, to its records.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig, Simd};

use crate::json::Cursor;
use crate::layout::{Found, Layout, Value};

/// The maximum number of digits of a sequence number (AWS: `SequenceNumber`, pattern).
const MAX_SEQUENCE_DIGITS: usize = 129;

/// A record as it is on the wire. `data` is base64 that nobody has looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<'a> {
    /// 1 to 129 digits.
    pub sequence_number: &'a [u8],
    /// In seconds since the epoch.
    pub arrival: f64,
    /// In base64, unless it has a quote or anything else that decoding refuses.
    pub data: &'a [u8],
    /// In UTF-8. None if it is missing or null.
    pub partition_key: Option<Cow<'a, [u8]>>,
    /// None if it is missing or null.
    pub encryption_type: Option<&'a str>,
}

/// The records of a JSON object, and the text before and after them: with `[]` between, it is the object without them.
#[derive(Debug, PartialEq)]
pub struct Records<'a> {
    /// The text up to the value of the member `Records`.
    pub before: &'a [u8],
    /// The elements of that value.
    pub records: Vec<Record<'a>>,
    /// The text after it.
    pub after: &'a [u8],
}

/// Reads the member `Records` of a JSON object.
///
/// The other members are not looked at: whoever parses `before`, `[]` and `after` finds whether they are valid. If that
/// is valid JSON, and the data of each record is base64, then so is the whole, with the same members.
#[must_use]
pub fn split(json: &[u8]) -> Option<Records<'_>> {
    let mut cursor = Cursor(json);
    let mut found = None;
    let mut has_more = cursor.open(b'{', b'}')?;
    while has_more {
        if name(&mut cursor)? == "Records" {
            cursor.peek();
            let before = json.get(..json.len().checked_sub(cursor.0.len())?)?;
            let records = array(&mut cursor)?;
            if found.replace(Records { before, records, after: cursor.0 }).is_some() {
                return None;
            }
        } else {
            cursor.skip()?;
        }
        has_more = cursor.next(b'}')?;
    }
    cursor.peek();
    found.filter(|_| cursor.0.is_empty())
}

fn array<'a>(cursor: &mut Cursor<'a>) -> Option<Vec<Record<'a>>> {
    let mut records = Vec::new();
    let mut layout: Option<Layout<'a>> = None;
    let mut has_more = cursor.open(b'[', b']')?;
    while has_more {
        let usual = layout.as_ref().and_then(|layout| layout.take(cursor));
        records.push(match usual {
            Some(record) => record,
            None => layout.insert(record(cursor)?).first(),
        });
        has_more = cursor.next(b']')?;
    }
    Some(records)
}

fn record<'a>(cursor: &mut Cursor<'a>) -> Option<Layout<'a>> {
    cursor.peek();
    let mut found = Found::new(cursor.0);
    let mut sequence_number = None;
    let mut arrival = None;
    let mut data = None;
    let mut partition_key = None;
    let mut encryption_type = None;
    let mut has_more = cursor.open(b'{', b'}')?;
    while has_more {
        let name = name(cursor)?;
        cursor.peek();
        let start = cursor.0;
        let (is_first, value) = match name {
            "SequenceNumber" => {
                (sequence_number.replace(cursor.digits(MAX_SEQUENCE_DIGITS)?).is_none(), Some(Value::Number))
            }
            "ApproximateArrivalTimestamp" => (arrival.replace(cursor.number()?).is_none(), Some(Value::Arrival)),
            "Data" => (data.replace(cursor.raw()?).is_none(), Some(Value::Data)),
            "PartitionKey" => {
                let key = if cursor.null() { None } else { Some(cursor.string()?) };
                let value = key.is_some().then_some(Value::Key);
                (partition_key.replace(key).is_none(), value)
            }
            "EncryptionType" => {
                let kind = if cursor.null() { None } else { Some(cursor.ascii()?) };
                (encryption_type.replace(kind).is_none(), None)
            }
            // The other fields of efo's Record, which no service sends.
            "SubSequenceNumber" | "ExplicitHashKey" | "Tags" => return None,
            _ => (cursor.simple().is_some(), None),
        };
        if !is_first {
            return None;
        }
        if let Some(value) = value {
            found.add(value, start, cursor.0)?;
        }
        has_more = cursor.next(b'}')?;
    }
    let record = Record {
        sequence_number: sequence_number?,
        arrival: arrival?,
        data: data?,
        partition_key: partition_key.flatten(),
        encryption_type: encryption_type.flatten(),
    };
    found.layout(record, cursor.0)
}

/// Takes the name of a member and the colon after it.
fn name<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let name = cursor.ascii()?;
    cursor.take(b':')?;
    Some(name)
}

/// Decodes base64 of one form alone: the standard alphabet, padded, and no bits after the last byte.
pub struct Base64(Simd);

impl Base64 {
    /// Finds out what the processor can do.
    #[must_use]
    pub fn new() -> Self {
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
        Self(Simd::standard(config))
    }

    /// Returns how many bytes the text is, if it is valid.
    #[must_use]
    pub fn decoded_length(text: &[u8]) -> Option<usize> {
        let padding = text.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
        let groups = text.len().is_multiple_of(4).then_some(text.len() / 4)?;
        groups.checked_mul(3)?.checked_sub(padding)
    }

    /// Decodes the text to the whole of `bytes`.
    pub fn decode(&self, text: &[u8], bytes: &mut [u8]) -> Option<()> {
        let length = bytes.len();
        (self.0.decode_slice(text, bytes).ok()? == length).then_some(())
    }
}

impl Default for Base64 {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Base64, split};

    const RECORD: &str =
        r#"{"SequenceNumber":"17","ApproximateArrivalTimestamp":1.5,"Data":"AAE=","PartitionKey":"k"}"#;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; Base64::decoded_length(text)?];
        Base64::new().decode(text, &mut bytes)?;
        Some(bytes)
    }

    #[test]
    fn an_object_is_split_around_its_records() {
        let json = format!(r#"{{"A":{{"x":["}}\"",1]}}, "Records" : [{RECORD}, {RECORD}] , "B":null}} "#);
        let found = split(json.as_bytes());
        assert!(found.is_some_and(|found| {
            found.before == br#"{"A":{"x":["}\"",1]}, "Records" : "#
                && found.after == br#" , "B":null} "#
                && found.records.len() == 2
                && found.records.iter().all(|each| each.sequence_number == b"17" && each.data == b"AAE=")
        }));
    }

    #[test]
    fn what_is_unusual_is_left_to_python() {
        for bad in [
            r#"{"Records":[]} x"#,
            r#"{"Records":[],"Records":[]}"#,
            r#"{"Record\u0073":[]}"#,
            r#"{"Records":[],}"#,
            r#"{"Records":{}}"#,
            "{}",
            "",
            "[",
        ] {
            assert_eq!(split(bad.as_bytes()), None, "{bad}");
        }
        for (from, to) in [
            ("\"17\"", "\"1x\""),
            ("\"17\"", "17"),
            ("\"17\"", "\"\""),
            ("1.5", "01.5"),
            ("1.5", "1."),
            ("1.5", "1e999"),
            ("1.5", "-1.5"),
            ("1.5", "null"),
            ("\"k\"", r#""\ud800""#),
            ("\"k\"", r#""\x41""#),
            ("\"k\"", "\"\n\""),
            ("\"k\"", "\"k\",\"PartitionKey\":\"k\""),
            ("\"k\"", "\"k\",\"Tags\":[]"),
            ("\"k\"", "\"k\",\"New\":[]"),
        ] {
            let json = format!(r#"{{"Records":[{}]}}"#, RECORD.replace(from, to));
            assert_eq!(split(json.as_bytes()), None, "{json}");
        }
    }

    #[test]
    fn a_record_is_read_after_any_other_as_it_is_alone() {
        let changes = [
            ("17", "18"),
            ("17", "170"),
            ("17", "1x"),
            ("1.5", "1.55"),
            ("1.5", "1.5E2"),
            ("1.5", "2"),
            ("AAE=", "AAECAwQF"),
            ("AAE=", ""),
            ("\"AAE=\"", "null"),
            ("AAE=", "A\",\"New\":\""),
            ("\"k\"", "\"\u{e9}\""),
            ("\"k\"", r#""\u00e9""#),
            ("\"k\"", r#""\""#),
            ("\"k\"", "null"),
            (",\"PartitionKey\":\"k\"", ""),
            ("\"k\"", "\"k\",\"EncryptionType\":\"KMS\""),
            ("\"k\"", "\"k\",\"EncryptionType\":null"),
            ("\"k\"", "\"k\",\"New\":1"),
            (":", " : "),
            ("{", " {"),
            ("}", " } "),
            ("\"Sequence", "\"PartitionKey\":\"k\",\"Sequence"),
        ];
        let others: Vec<_> = changes.iter().map(|(from, to)| RECORD.replace(from, to)).collect();
        let texts: Vec<_> = others.iter().map(String::as_str).chain([RECORD]).collect();
        for (first, second) in texts.iter().flat_map(|first| texts.iter().map(move |second| (first, second))) {
            let json = format!(r#"{{"Records":[{first},{second},{first}]}}"#);
            let alone = |text: &str| {
                let json = format!(r#"{{"Records":[{text}]}}"#);
                format!("{:?}", split(json.as_bytes())?.records.first()?).into()
            };
            let expected: Option<Vec<String>> = [first, second, first].into_iter().map(|text| alone(text)).collect();
            let found = split(json.as_bytes()).map(|found| found.records);
            let found = found.map(|records| records.iter().map(|each| format!("{each:?}")).collect());
            assert_eq!(found, expected, "{json}");
        }
    }

    #[test]
    fn keys_are_unescaped() {
        let json = format!(r#"{{"Records":[{}]}}"#, RECORD.replace("\"k\"", r#""a\"\\\/\n\u00e9\ud83d\ude00é""#));
        let key = split(json.as_bytes()).and_then(|found| found.records.into_iter().next()?.partition_key);
        assert_eq!(key.as_deref(), Some("a\"\\/\né😀é".as_bytes()));
    }

    #[test]
    fn base64_is_decoded_if_it_is_canonical() {
        assert_eq!(decoded(b""), Some(vec![]));
        assert_eq!(decoded(b"AAE="), Some(vec![0, 1]));
        assert_eq!(decoded(&[b'A'; 400]), Some(vec![0; 300]));
        for bad in ["A", "AAE", "A\"E=", "AA==AA==", "AAF=", "====", "A===", "AA=A", "A-E=", "AAE=\n"] {
            assert_eq!(decoded(bad.as_bytes()), None, "{bad}");
        }
    }
}
