//! Whether aggregates are intact: their MD5, several at a time.

use efo_parser::md5::{LANES, digest, digests};

/// Of so many aggregates or more, the others of a group are hashed in vain.
const WORTH: usize = 3;

/// Returns which of the messages have the digest beside them. False for None.
pub fn are_intact(messages: &[Option<(&[u8], &[u8])>]) -> Vec<bool> {
    let mut found = Vec::with_capacity(messages.len());
    for group in messages.chunks(LANES) {
        let mut bodies = [&b""[..]; LANES];
        let count = group.iter().flatten().count();
        // What is not there is what the first one is: a shorter one would make all of them slow.
        bodies.fill(group.iter().flatten().next().map_or(b"", |(body, _)| body));
        for (to, (body, _)) in bodies.iter_mut().zip(group.iter().flatten()) {
            *to = body;
        }
        let computed = if count < WORTH { bodies.map(|_| [0; 16]) } else { all(bodies) };
        let mut computed = computed.into_iter();
        found.extend(group.iter().map(|message| {
            message.is_some_and(|(body, expected)| {
                let digest = if count < WORTH { digest(body) } else { computed.next().unwrap_or_default() };
                digest == expected
            })
        }));
    }
    found
}

fn all(messages: [&[u8]; LANES]) -> [[u8; 16]; LANES] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions that the function is compiled to.
        #[allow(unsafe_code)]
        return unsafe { all_by_avx2(messages) };
    }
    digests(messages)
}

/// The same, compiled for processors with AVX2: nearly four times as fast as one by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn all_by_avx2(messages: [&[u8]; LANES]) -> [[u8; 16]; LANES] {
    digests(messages)
}
