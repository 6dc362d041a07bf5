//! The MD5 of several messages: together, if the processor makes that worth it.

use efo_parser::md5::{LANES, digest};

/// Of fewer messages, hashing them together takes longer than one by one.
#[cfg(target_arch = "x86_64")]
const WORTH: usize = 5;

/// Returns the digest of each message.
pub fn digests_of(messages: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut found = Vec::with_capacity(messages.len());
    for group in messages.chunks(LANES) {
        match together(group) {
            Some(together) => found.extend(together.into_iter().take(group.len())),
            None => found.extend(group.iter().map(|message| digest(message))),
        }
    }
    found
}

/// Hashes at most `LANES` messages together. None if that takes longer.
#[cfg(target_arch = "x86_64")]
fn together(group: &[&[u8]]) -> Option<[[u8; 16]; LANES]> {
    if group.len() < WORTH || !std::arch::is_x86_feature_detected!("avx2") {
        return None;
    }
    // What is not there is what the first one is: a shorter one would make all of them slow.
    let mut messages = [group.first().copied()?; LANES];
    for (to, message) in messages.iter_mut().zip(group) {
        *to = message;
    }
    // SAFETY: the processor has the instructions that the function is compiled to.
    #[allow(unsafe_code)]
    let found = unsafe { by_avx2(messages) };
    Some(found)
}

/// Without AVX2, messages are hashed one by one: nothing else was measured to be faster.
#[cfg(not(target_arch = "x86_64"))]
fn together(_group: &[&[u8]]) -> Option<[[u8; 16]; LANES]> {
    None
}

/// `efo_parser::md5::digests`, compiled for processors with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_avx2(messages: [&[u8]; LANES]) -> [[u8; 16]; LANES] {
    efo_parser::md5::digests(messages)
}
