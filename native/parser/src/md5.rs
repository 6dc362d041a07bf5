//! MD5 (RFC 1321), which KPL aggregates end with and which gives the hash key of a partition key. It protects nothing.

/// As many messages are hashed at a time: MD5 makes one wait for itself, so that a processor is idle for most of the time.
///
/// With 16, the compiler makes vector instructions of the loops over them, and hashes 5 times as fast as one by one on a
/// processor with AVX2. With 8 it makes none, and hashes 1.5 times as fast.
pub const LANES: usize = 16;

/// A word of each of so many messages.
type Words<const N: usize> = [u32; N];
type State<const N: usize> = [Words<N>; 4];

const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const TURNS_1: [u32; 4] = [7, 12, 17, 22];
const TURNS_2: [u32; 4] = [5, 9, 14, 20];
const TURNS_3: [u32; 4] = [4, 11, 16, 23];
const TURNS_4: [u32; 4] = [6, 10, 15, 21];

/// Returns the MD5 of the bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 16] {
    finished(START, bytes.as_chunks::<64>().0.iter().chain(End::of(bytes).blocks()))
}

/// Returns the MD5 of each of some messages: of equally long ones in a fraction of the time.
#[must_use]
#[inline(always)] // so that it is compiled for the processor that its caller is compiled for
#[allow(clippy::inline_always)]
pub fn digests(messages: [&[u8]; LANES]) -> [[u8; 16]; LANES] {
    let parts = messages.map(|message| message.as_chunks::<64>().0);
    let ends = messages.map(End::of);
    let common = parts.iter().zip(&ends).map(|(blocks, end)| blocks.len().saturating_add(end.blocks().len())).min();
    let mut state = START.map(|word| [word; LANES]);
    for number in 0..common.unwrap_or_default() {
        let mut now = [&[0; 64]; LANES];
        for ((to, blocks), end) in now.iter_mut().zip(&parts).zip(&ends) {
            let last = || end.blocks().get(number.saturating_sub(blocks.len()));
            *to = blocks.get(number).or_else(last).unwrap_or(&[0; 64]);
        }
        let now = now.map(|block| block.as_chunks::<4>().0);
        let word = |place: usize| now.map(|words| u32::from_le_bytes(words.get(place).copied().unwrap_or_default()));
        state = mixed(state, &std::array::from_fn(word));
    }
    let [a, b, c, d] = state;
    let mut found = [[0; 16]; LANES];
    let states = a.into_iter().zip(b).zip(c).zip(d);
    for (((to, blocks), end), (((a, b), c), d)) in found.iter_mut().zip(parts).zip(&ends).zip(states) {
        *to = finished([a, b, c, d], blocks.iter().chain(end.blocks()).skip(common.unwrap_or_default()));
    }
    found
}

/// The last blocks of a message: at most 63 bytes of it, a mark, zeros, and its length.
struct End {
    bytes: [u8; 128],
    is_long: bool,
}

impl End {
    fn of(message: &[u8]) -> Self {
        let rest = message.as_chunks::<64>().1;
        let is_long = rest.len() >= 56;
        let mut bytes = [0; 128];
        if let Some((text, [mark, ..])) = bytes.split_at_mut_checked(rest.len()) {
            text.copy_from_slice(rest); // of the same length
            *mark = 0x80;
        }
        let bits = (message.len() as u64).wrapping_mul(8).to_le_bytes();
        bytes.iter_mut().skip(if is_long { 120 } else { 56 }).zip(bits).for_each(|(to, from)| *to = from);
        Self { bytes, is_long }
    }

    fn blocks(&self) -> &[[u8; 64]] {
        let blocks = self.bytes.as_chunks::<64>().0;
        if self.is_long { blocks } else { blocks.get(..1).unwrap_or(blocks) }
    }
}

/// Hashes the blocks that are left.
fn finished<'a>(start: [u32; 4], blocks: impl Iterator<Item = &'a [u8; 64]>) -> [u8; 16] {
    let state = blocks.fold(start.map(|word| [word]), |state, block| mixed(state, &words(block)));
    let mut digest = [0; 16];
    digest.as_chunks_mut::<4>().0.iter_mut().zip(state).for_each(|(to, [word])| *to = word.to_le_bytes());
    digest
}

fn words(block: &[u8; 64]) -> [Words<1>; 16] {
    let mut words = [[0]; 16];
    words.iter_mut().zip(block.as_chunks::<4>().0).for_each(|(word, bytes)| *word = [u32::from_le_bytes(*bytes)]);
    words
}

#[inline(always)]
#[allow(clippy::inline_always)] // as `digests`
#[rustfmt::skip]
fn mixed<const N: usize>(before: State<N>, words: &[Words<N>; 16]) -> State<N> {
    let [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15] = *words;
    let f = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let g = |x: u32, y: u32, z: u32| (x & z).wrapping_add(y & !z); // no bit is in both: they need not wait for each other
    let h = |x: u32, y: u32, z: u32| x ^ y ^ z;
    let i = |x: u32, y: u32, z: u32| y ^ (x | !z);
    let mut state = before;
    state = four(state, f, TURNS_1, [w0, w1, w2, w3], [0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee]);
    state = four(state, f, TURNS_1, [w4, w5, w6, w7], [0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501]);
    state = four(state, f, TURNS_1, [w8, w9, w10, w11], [0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be]);
    state = four(state, f, TURNS_1, [w12, w13, w14, w15], [0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821]);
    state = four(state, g, TURNS_2, [w1, w6, w11, w0], [0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa]);
    state = four(state, g, TURNS_2, [w5, w10, w15, w4], [0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8]);
    state = four(state, g, TURNS_2, [w9, w14, w3, w8], [0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed]);
    state = four(state, g, TURNS_2, [w13, w2, w7, w12], [0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a]);
    state = four(state, h, TURNS_3, [w5, w8, w11, w14], [0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c]);
    state = four(state, h, TURNS_3, [w1, w4, w7, w10], [0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70]);
    state = four(state, h, TURNS_3, [w13, w0, w3, w6], [0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05]);
    state = four(state, h, TURNS_3, [w9, w12, w15, w2], [0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665]);
    state = four(state, i, TURNS_4, [w0, w7, w14, w5], [0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039]);
    state = four(state, i, TURNS_4, [w12, w3, w10, w1], [0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1]);
    state = four(state, i, TURNS_4, [w8, w15, w6, w13], [0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1]);
    state = four(state, i, TURNS_4, [w4, w11, w2, w9], [0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391]);
    let mut after = before;
    for (to, word) in after.as_flattened_mut().iter_mut().zip(state.as_flattened()) {
        *to = to.wrapping_add(*word);
    }
    after
}

/// Four steps of the RFC: each of the four words changes once.
#[inline(always)]
#[allow(clippy::inline_always, clippy::many_single_char_names)] // as `digests`; the RFC's
fn four<const N: usize>(
    [a, b, c, d]: State<N>,
    function: impl Fn(u32, u32, u32) -> u32,
    [s1, s2, s3, s4]: [u32; 4],
    [w1, w2, w3, w4]: [Words<N>; 4],
    [k1, k2, k3, k4]: [u32; 4],
) -> State<N> {
    // One loop over the messages, so that the compiler makes one instruction of several.
    let step = |old: Words<N>, x: Words<N>, y: Words<N>, z: Words<N>, word: Words<N>, sine: u32, turn: u32| {
        let mut after = old;
        for ((((to, x), y), z), word) in after.iter_mut().zip(x).zip(y).zip(z).zip(word) {
            let sum = to.wrapping_add(word).wrapping_add(sine).wrapping_add(function(x, y, z));
            *to = x.wrapping_add(sum.rotate_left(turn));
        }
        after
    };
    let a = step(a, b, c, d, w1, k1, s1);
    let d = step(d, a, b, c, w2, k2, s2);
    let c = step(c, d, a, b, w3, k3, s3);
    let b = step(b, c, d, a, w4, k4, s4);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::{LANES, digest, digests};

    #[test]
    fn the_test_suite_of_the_rfc_passes() {
        for (text, number) in [
            ("", 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e),
            ("a", 0x0cc1_75b9_c0f1_b6a8_31c3_99e2_6977_2661),
            ("message digest", 0xf96b_697d_7cb7_938d_525a_2f31_aaf1_61d0),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                0x57ed_f4a2_2be3_c955_ac49_da2e_2107_b67a,
            ),
        ] {
            assert_eq!(u128::from_be_bytes(digest(text.as_bytes())), number, "{text}");
        }
    }

    #[test]
    fn messages_hashed_at_a_time_have_the_digests_of_each() {
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(3000).collect();
        let mixed = [0, 1, 55, 56, 64, 119, 128, 2999, 3000, 63, 65, 120, 127, 129, 183, 184];
        for lengths in [
            [0; LANES],
            [55; LANES],
            [56; LANES],
            [700; LANES],
            mixed,
            mixed.map(|more| 640_usize.wrapping_add(more % 64)),
        ] {
            let messages = lengths.map(|length| bytes.get(..length).unwrap_or_default());
            assert_eq!(digests(messages), messages.map(digest), "{lengths:?}");
        }
    }
}
