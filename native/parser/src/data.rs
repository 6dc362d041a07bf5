//! Frames of HTTP/2 that are DATA of known streams, as nearly all that a server sends (RFC 9113, section 4.1).

/// Length (24 bits), type, flags, stream id.
const HEADER: usize = 9;
const DATA: u8 = 0;
const END_STREAM_OR_PADDED: u8 = 0x1 | 0x8;
/// `SETTINGS_MAX_FRAME_SIZE`, which efo leaves at its default.
const MAX_LENGTH: usize = 16_384;
const STREAM_ID_MASK: u32 = 0x7FFF_FFFF;

/// The content of the frames of one stream.
#[derive(Debug, Default, PartialEq)]
pub struct Stream<'a> {
    /// The stream's id.
    pub id: u32,
    /// The bytes of all chunks.
    pub length: usize,
    /// In order. Each is at most as long as its limit, unless a frame is longer.
    pub chunks: Vec<Chunk<'a>>,
    /// Whether the last chunk may become longer.
    is_open: bool,
}

/// The content of some frames, in pieces: that of a frame may be two.
#[derive(Debug, Default, PartialEq)]
pub struct Chunk<'a> {
    /// The bytes of all pieces.
    pub length: usize,
    pieces: Vec<&'a [u8]>,
}

impl Chunk<'_> {
    /// Copies the pieces one after the other to `bytes`, as far as there is room.
    pub fn write(&self, bytes: &mut [u8]) {
        let mut to = bytes;
        for piece in &self.pieces {
            let Some((room, rest)) = to.split_at_mut_checked(piece.len()) else { return };
            room.copy_from_slice(piece); // of the same length
            to = rest;
        }
    }
}

/// The content of whole frames.
#[derive(Debug, Default, PartialEq)]
pub struct Split<'a> {
    /// In the order in which each has a whole chunk, or else a frame.
    pub streams: Vec<Stream<'a>>,
    /// After the last frame that was split: the start of another one, unless `is_limited`.
    pub rest: &'a [u8],
    /// Whether the limit of frames was reached. Nothing is known of the rest then.
    pub is_limited: bool,
    /// How many streams have a whole chunk: the first ones.
    whole: usize,
}

/// What is split at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a chunk.
    pub joined: usize,
    /// Frames, not counting the one that began before.
    pub frames: usize,
}

/// Splits the frames of `bytes`, the first of which began with `partial`, as `FrameSplitter` of the Python step does.
///
/// `None` unless each is DATA of a known stream, has content, has no padding, and does not end its stream, and unless one
/// is whole. Of a frame that is not, its header counts, if that is whole.
#[must_use]
pub fn split<'a>(
    partial: &'a [u8],
    bytes: &'a [u8],
    limits: Limits,
    mut is_known: impl FnMut(u32) -> bool,
) -> Option<Split<'a>> {
    let mut found = Split { rest: bytes, ..Split::default() };
    let mut known = None;
    let mut check = |id: u32| {
        if known != Some(id) {
            known = is_known(id).then_some(id);
        }
        known == Some(id)
    };
    if !partial.is_empty() {
        let (head, content) = partial.split_at_checked(HEADER).unwrap_or((partial, b""));
        let (tail, after) = bytes.split_at_checked(HEADER.checked_sub(head.len())?)?;
        let mut header = [0; HEADER];
        for (to, from) in header.iter_mut().zip(head.iter().chain(tail)) {
            *to = *from;
        }
        let (id, length) = plain(header)?;
        let (missing, rest) = after.split_at_checked(length.checked_sub(content.len())?)?;
        if !check(id) {
            return None;
        }
        found.add(id, [content, missing], limits)?;
        found.rest = rest;
    }
    let mut count = 0;
    while let Some((header, rest)) = found.rest.split_first_chunk() {
        let (id, length) = plain(*header)?;
        if !check(id) {
            return None;
        }
        let Some((content, rest)) = rest.split_at_checked(length) else { break };
        found.add(id, [content, b""], limits)?;
        found.rest = rest;
        count = usize::checked_add(count, 1)?;
        found.is_limited = count >= limits.frames;
        if found.is_limited {
            break;
        }
    }
    (!found.streams.is_empty()).then_some(found)
}

impl<'a> Split<'a> {
    fn add(&mut self, id: u32, content: [&'a [u8]; 2], limits: Limits) -> Option<()> {
        // The last one is that of most frames.
        let at = self.streams.iter().rposition(|stream| stream.id == id).unwrap_or_else(|| {
            self.streams.push(Stream { id, ..Stream::default() });
            self.streams.len().saturating_sub(1)
        });
        let stream = self.streams.get_mut(at)?;
        if !stream.is_open {
            stream.chunks.push(Chunk::default());
            stream.is_open = true;
        }
        let chunk = stream.chunks.last_mut()?;
        for piece in content.into_iter().filter(|piece| !piece.is_empty()) {
            chunk.length = chunk.length.checked_add(piece.len())?;
            stream.length = stream.length.checked_add(piece.len())?;
            chunk.pieces.push(piece);
        }
        if chunk.length.checked_add(MAX_LENGTH)? > limits.joined {
            stream.is_open = false;
            if at >= self.whole {
                self.streams.get_mut(self.whole..=at)?.rotate_right(1);
                self.whole = self.whole.checked_add(1)?;
            }
        }
        Some(())
    }
}

/// Returns the stream and the length of such a frame.
fn plain(header: [u8; HEADER]) -> Option<(u32, usize)> {
    let [high, middle, low, kind, flags, id @ ..] = header;
    let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
    let is_plain = kind == DATA && flags & END_STREAM_OR_PADDED == 0 && (1..=MAX_LENGTH).contains(&length);
    is_plain.then_some((u32::from_be_bytes(id) & STREAM_ID_MASK, length))
}

#[cfg(test)]
mod tests {
    use super::{Chunk, Limits, MAX_LENGTH, split};

    const LIMITS: Limits = Limits { joined: 65_536, frames: 256 };

    fn frame(kind: u8, flags: u8, id: u32, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap_or_default().to_be_bytes();
        let mut made = length.into_iter().skip(1).collect::<Vec<_>>();
        made.extend([kind, flags]);
        made.extend(id.to_be_bytes());
        made.extend_from_slice(content);
        made
    }

    /// The content of each stream, and the rest.
    type Contents = (Vec<(u32, Vec<u8>)>, Vec<u8>);

    fn contents(partial: &[u8], bytes: &[u8]) -> Option<Contents> {
        let found = split(partial, bytes, LIMITS, |id| id == 1 || id == 3)?;
        let streams = found.streams.iter().map(|stream| {
            let content = stream.chunks.iter().flat_map(|chunk| chunk.pieces.concat()).collect::<Vec<_>>();
            assert_eq!(content.len(), stream.length);
            (stream.id, content)
        });
        Some((streams.collect(), found.rest.to_vec()))
    }

    #[test]
    fn the_content_of_each_stream_is_joined_wherever_the_bytes_are_cut() {
        let wire = [frame(0, 0, 1, b"ab"), frame(0, 0xF6, 3, b"c"), frame(0, 0, 0x8000_0001, b"de")].concat();
        let all = vec![(1, b"abde".to_vec()), (3, b"c".to_vec())];
        assert_eq!(contents(b"", &wire), Some((all.clone(), vec![])));
        for at in 1..wire.len() {
            let (first, second) = wire.split_at_checked(at).unwrap_or_default();
            let (before, rest) = contents(b"", first).unwrap_or_else(|| (vec![], first.to_vec()));
            let after = contents(&rest, second).map(|(after, _)| after).unwrap_or_default();
            let joined = |id: u32| {
                let parts = before.iter().chain(&after).filter(|(found, _)| *found == id);
                parts.flat_map(|(_, content)| content.clone()).collect::<Vec<_>>()
            };
            assert_eq!((joined(1), joined(3)), (b"abde".to_vec(), b"c".to_vec()), "{at}");
        }
    }

    #[test]
    fn pieces_are_joined_as_far_as_there_is_room() {
        let chunk = Chunk { length: 4, pieces: vec![b"ab", b"", b"cd"] };
        for (size, joined) in [(4, &b"abcd"[..]), (5, b"abcd\0"), (3, b"ab\0"), (0, b"")] {
            let mut bytes = vec![0; size];
            chunk.write(&mut bytes);
            assert_eq!(bytes, joined);
        }
    }

    #[test]
    fn a_chunk_ends_where_another_frame_may_be_too_much_and_the_first_that_ends_is_the_first() {
        let (short, long) = (frame(0, 0, 1, b"a"), frame(0, 0, 3, &[7; MAX_LENGTH]));
        let wire = [short.clone(), [long.as_slice(); 5].concat(), short].concat();
        let found = split(b"", &wire, LIMITS, |_| true).unwrap_or_default();
        let lengths = |at: usize| {
            let stream = found.streams.get(at);
            stream.map(|stream| (stream.id, stream.chunks.iter().map(|chunk| chunk.length).collect::<Vec<_>>()))
        };
        assert_eq!((lengths(0), lengths(1)), (Some((3, vec![65_536, MAX_LENGTH])), Some((1, vec![2]))));
    }

    #[test]
    fn so_many_frames_are_split_at_once() {
        let wire = frame(0, 0, 1, b"a").repeat(10);
        let limits = Limits { frames: 4, ..LIMITS };
        let first = split(b"", &wire, limits, |_| true).unwrap_or_default();
        assert_eq!(first.rest.len(), 60);
        let (partial, bytes) = wire.split_at_checked(5).unwrap_or_default();
        let second = split(partial, bytes, limits, |_| true).unwrap_or_default();
        assert_eq!(second.rest.len(), 50);
    }

    #[test]
    fn what_is_unusual_is_left_to_python() {
        let good = frame(0, 0, 1, b"ab");
        for odd in [
            frame(0, 0, 5, b"ab"),
            frame(0, 0, 0, b"ab"),
            frame(0, 1, 1, b"ab"),
            frame(0, 8, 1, b"\0ab"),
            frame(0, 0, 1, b""),
            frame(0, 0, 1, &vec![0; MAX_LENGTH + 1]),
            frame(6, 0, 0, &[0; 8]),
            frame(7, 0, 0, &[0; 8]),
        ] {
            assert_eq!(contents(b"", &[good.clone(), odd.clone()].concat()), None);
            let (head, rest) = odd.split_at_checked(9).unwrap_or_default();
            assert_eq!(contents(b"", &[&good, head].concat()), None);
            assert_eq!(contents(head, &[rest, &good].concat()), None);
        }
        assert_eq!(contents(b"", b""), None);
        assert_eq!(contents(b"", &[0; 8]), None);
        assert!(contents(b"", &frame(0, 0, 1, &vec![0; MAX_LENGTH])).is_some());
    }
}
