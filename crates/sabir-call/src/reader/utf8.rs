//! Decodes UTF-8 from chunks that may split characters.
//!
//! Each maximal invalid sequence becomes one U+FFFD, wherever the chunks are cut. This is the
//! Unicode standard's recommended practice and the behaviour of `String::from_utf8_lossy`.

/// A decoder that holds up to three bytes of an incomplete character.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    bytes: [u8; 4],
    length: u8,
}

impl Utf8Decoder {
    /// Returns true if a character is incomplete.
    pub(crate) fn is_cut(&self) -> bool {
        self.length > 0
    }

    /// Decodes bytes and passes text to `out`; the flag marks the replacement of an invalid
    /// sequence.
    pub(crate) fn push(&mut self, chunk: &[u8], mut out: impl FnMut(&str, bool)) {
        let mut rest = chunk;
        while self.length > 0 {
            let Some((&byte, after)) = rest.split_first() else {
                return;
            };
            if let Some(slot) = self.bytes.get_mut(usize::from(self.length)) {
                *slot = byte;
            }
            let joined = self
                .bytes
                .get(..=usize::from(self.length))
                .unwrap_or_default();
            match std::str::from_utf8(joined) {
                Ok(text) => {
                    out(text, false);
                    self.length = 0;
                    rest = after;
                }
                Err(error) if error.error_len().is_none() => {
                    self.length += 1;
                    rest = after;
                }
                Err(_) => {
                    // The new byte does not belong to the character, so it is decoded again on its
                    // own.
                    self.length = 0;
                    out("\u{fffd}", true);
                }
            }
        }
        loop {
            let (text, error) = match std::str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => {
                    let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
                    (std::str::from_utf8(valid).unwrap_or_default(), Some(error))
                }
            };
            if !text.is_empty() {
                out(text, false);
            }
            let Some(error) = error else { return };
            let tail = rest.get(error.valid_up_to()..).unwrap_or_default();
            let Some(length) = error.error_len() else {
                for (slot, byte) in self.bytes.iter_mut().zip(tail) {
                    *slot = *byte;
                }
                // An incomplete character has at most three bytes.
                self.length = u8::try_from(tail.len()).unwrap_or_default();
                return;
            };
            out("\u{fffd}", true);
            rest = tail.get(length..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Decoder;

    fn joined(bytes: &[u8], size: usize) -> String {
        let mut utf8 = Utf8Decoder::default();
        let mut text = String::new();
        for chunk in bytes.chunks(size) {
            utf8.push(chunk, |piece, _| text.push_str(piece));
        }
        if utf8.is_cut() {
            text.push('\u{fffd}');
        }
        text
    }

    #[test]
    fn equals_the_lossy_conversion_however_it_is_cut() {
        let cases: [&[u8]; 6] = [
            "Grüße 🌍 日本".as_bytes(),
            b"a\xffb\xc3",
            b"\xf0\x9f\x8c",
            b"\xf0\x9f\x8cx",
            b"\xe2\x28\xa1\xc3\xa9",
            b"\xc3\xc3\xa9",
        ];
        for bytes in cases {
            for size in 1..=bytes.len() {
                assert_eq!(
                    joined(bytes, size),
                    String::from_utf8_lossy(bytes),
                    "{bytes:?} in chunks of {size}"
                );
            }
        }
    }
}
