//! Mutated inputs: nothing panics, and with the address sanitizer (`make native-parity`) nothing reads beyond its bytes.

use efo_parser::md5::{LANES, digest, digests};
use efo_parser::records::Base64;
use efo_parser::{aggregate, data, frame, packed, records};

const EVENT: &[u8] = br#"{"Records":[{"SequenceNumber":"17","ApproximateArrivalTimestamp":1.5,"Data":"AAECAwQFBgc=","PartitionKey":"k\u00e9","EncryptionType":"KMS"},{"SequenceNumber":"18","ApproximateArrivalTimestamp":2e3,"Data":"","PartitionKey":null,"EncryptionType":"KMS"}],"MillisBehindLatest":0,"ContinuationSequenceNumber":"18"}"#;
const AGGREGATE: &[u8] = b"\x0a\x03key\x0a\x01k\x12\x0212\x1a\x08\x08\x00\x10\x00\x1a\x02ab\x1a\x06\x08\x01\x1a\x02cd";
const DATA: &[u8] = b"\0\0\x03\0\0\0\0\0\x01abc\0\0\x02\0\0\0\0\0\x03de\0\0\x04\0\0\0\0\0\x01fg";
const INPUTS: u32 = 100_000;

/// Marsaglia's xorshift: the same inputs on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default().checked_rem(limit).unwrap_or_default()
    }

    fn mutated(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let byte = u8::try_from(self.below(256)).unwrap_or_default();
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, byte),
                2 if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                _ => {
                    if let Some(found) = bytes.get_mut(at) {
                        *found = byte;
                    }
                }
            }
        }
        bytes
    }
}

/// Returns how many records were packed.
fn read(input: &[u8], base64: &Base64) -> usize {
    let _ = frame::payload(input, b"headers");
    let _ = aggregate::parse(input, 100);
    let Some(found) = records::split(input) else { return 0 };
    let Some(columns) = packed::pack(&found.records) else { return 0 };
    let mut data = vec![0; columns.data_length];
    let _ = packed::unpack_data(base64, &found.records, &mut data);
    found.records.len()
}

#[test]
fn parts_of_mutated_inputs_are_hashed_together_as_one_by_one() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..500 {
        let input = random.mutated(EVENT);
        let lengths: [usize; LANES] = std::array::from_fn(|_| random.below(input.len().saturating_add(1)));
        let parts = lengths.map(|length| input.get(..length).unwrap_or_default());
        assert_eq!(digests(parts), parts.map(digest));
    }
}

#[test]
fn a_mutated_read_of_http2_never_panics() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut found = 0_usize;
    for _ in 0..INPUTS {
        let input = random.mutated(DATA);
        let (partial, bytes) = input.split_at_checked(random.below(15)).unwrap_or_default();
        let limits = data::Limits { joined: random.below(40_000), frames: random.below(4) };
        for stream in data::split(partial, bytes, limits, |id| id < 4).iter().flat_map(|split| &split.streams) {
            for chunk in &stream.chunks {
                chunk.write(&mut vec![0; chunk.length]);
            }
            assert_eq!(stream.length, stream.chunks.iter().map(|chunk| chunk.length).sum());
            found = found.saturating_add(1);
        }
    }
    assert!(found > 0, "no input was read: the seed is of no use");
}

#[test]
fn a_mutated_input_never_panics() {
    assert!(aggregate::parse(AGGREGATE, 100).is_some_and(|found| found.users.len() == 2));
    let (base64, mut random) = (Base64::new(), Random(0x9E37_79B9_7F4A_7C15));
    let found: usize = (0..INPUTS)
        .map(|number| {
            let seed = if number % 2 == 0 { EVENT } else { AGGREGATE };
            read(&random.mutated(seed), &base64)
        })
        .sum();
    assert!(found > 0, "no input was read: the seeds are of no use");
}
