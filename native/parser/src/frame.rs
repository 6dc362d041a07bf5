//! One frame of the event stream (AWS: "Event stream encoding").

/// The prelude: total length, length of the headers, and their CRC, each a big-endian `u32`.
const PRELUDE: usize = 12;
/// The part of the prelude that its CRC covers.
const LENGTHS: usize = 8;
const CRC: usize = 4;

/// Returns the payload of a frame, if it is whole, its CRCs are right, and its headers are these bytes.
#[must_use]
pub fn payload<'a>(frame: &'a [u8], headers: &[u8]) -> Option<&'a [u8]> {
    let (covered, crc) = frame.split_at_checked(frame.len().checked_sub(CRC)?)?;
    let (prelude, rest) = covered.split_at_checked(PRELUDE)?;
    let (lengths, prelude_crc) = prelude.split_at_checked(LENGTHS)?;
    let (total, headers_length) = lengths.split_at_checked(CRC)?;
    let is_whole = number(total) == Some(frame.len()) && number(headers_length) == Some(headers.len());
    let payload = rest.strip_prefix(headers)?;
    let is_intact = has_crc(lengths, prelude_crc) && has_crc(covered, crc);
    (is_whole && is_intact).then_some(payload)
}

fn number(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
}

fn has_crc(bytes: &[u8], crc: &[u8]) -> bool {
    crc == crc32fast::hash(bytes).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::payload;

    fn frame(headers: &[u8], body: &[u8]) -> Vec<u8> {
        let total = u32::try_from(16_usize.saturating_add(headers.len()).saturating_add(body.len())).unwrap_or(0);
        let mut made = total.to_be_bytes().to_vec();
        made.extend(u32::try_from(headers.len()).unwrap_or(0).to_be_bytes());
        made.extend(crc32fast::hash(&made).to_be_bytes());
        made.extend_from_slice(headers);
        made.extend_from_slice(body);
        made.extend(crc32fast::hash(&made).to_be_bytes());
        made
    }

    #[test]
    fn the_payload_is_what_is_between_the_headers_and_the_crc() {
        assert_eq!(payload(&frame(b"head", b"body"), b"head"), Some(&b"body"[..]));
        assert_eq!(payload(&frame(b"", b""), b""), Some(&b""[..]));
    }

    #[test]
    fn other_headers_a_changed_byte_and_a_missing_one_are_left_to_python() {
        let good = frame(b"head", b"body");
        assert_eq!(payload(&good, b"heat"), None);
        assert_eq!(payload(&good, b"hea"), None);
        for (at, byte) in good.iter().enumerate() {
            let mut bad = good.clone();
            bad.splice(at..=at, [byte ^ 1]);
            assert_eq!(payload(&bad, b"head"), None);
            assert_eq!(payload(good.get(..at).unwrap_or_default(), b"head"), None);
        }
    }
}
