//! Finds bytes in short texts, eight bytes at a time.
//!
//! A provider's chunk is a few bytes long and mostly holds no `<` at all. `memchr` is made for long
//! texts; its start-up alone costs more than reading such a chunk. These functions process a 64-bit
//! register at a time, one byte per lane (SIMD within a register).

/// The number of bytes in a register.
pub(crate) const LANES: usize = size_of::<u64>();
/// The length from which `memchr` is faster, in bytes.
const LONG: usize = 48;

/// Returns the position of the first `needle` in `hay`.
pub(crate) fn find_byte(needle: u8, hay: &[u8]) -> Option<usize> {
    if hay.len() >= LONG {
        return memchr::memchr(needle, hay);
    }
    let (words, tail) = hay.as_chunks::<LANES>();
    for (at, word) in words.iter().enumerate() {
        let found = lanes_equal(u64::from_le_bytes(*word), needle);
        if found != 0 {
            return Some(at * LANES + first_lane(found));
        }
    }
    // The last register overlaps the one before it; the bytes in both are known not to match.
    if let Some(word) = hay.last_chunk::<LANES>() {
        let found = lanes_equal(u64::from_le_bytes(*word), needle);
        return (found != 0).then(|| hay.len() - LANES + first_lane(found));
    }
    tail.iter().position(|byte| *byte == needle)
}

/// Marks the lanes equal to `byte` by their highest bit. Marks above the lowest one may be wrong.
pub(crate) fn lanes_equal(word: u64, byte: u8) -> u64 {
    lanes_below(word ^ (ONES * u64::from(byte)), 1)
}

/// Marks the lanes below `limit` (at most 128) by their highest bit. Marks above the lowest one may be wrong.
pub(crate) fn lanes_below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGHS
}

/// Returns the first marked lane.
pub(crate) fn first_lane(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

#[cfg(test)]
mod tests {
    use super::find_byte;

    #[test]
    fn equals_the_plain_search() {
        let pattern = b"ab<\x3d\x3b\xbc\0<\xff;=";
        for length in 0..200 {
            let plain: Vec<u8> = (0..length).map(|at| b"a=;\xbc\0\xff\x3d"[at % 7]).collect();
            assert_eq!(find_byte(b'<', &plain), None, "{length}");
            for at in 0..length {
                let mut hay = plain.clone();
                hay[at] = b'<';
                assert_eq!(find_byte(b'<', &hay), Some(at), "{at} of {length}");
            }
        }
        for from in 0..pattern.len() {
            let hay = &pattern[from..];
            assert_eq!(
                find_byte(b'<', hay),
                hay.iter().position(|byte| *byte == b'<')
            );
        }
    }
}
