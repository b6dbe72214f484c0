//! Bounds the lines of a server's standard output.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::limits::MAX_FRAME_BYTES;

/// The facts about the lines that were read so far.
#[derive(Debug, Default)]
pub(crate) struct LineStats {
    /// True once a line was longer than a message may be.
    pub(crate) is_oversized: AtomicBool,
    /// The number of lines that are not messages.
    pub(crate) non_message_lines: AtomicU64,
}

/// Reads a server's output, and fails at a line that is too long: the text after it may not be a message, and a call would wait for its
/// answer until its time limit.
pub(crate) struct LineGuard<R> {
    inner: R,
    facts: Arc<LineStats>,
    line_bytes: usize,
}

impl<R> LineGuard<R> {
    pub(crate) fn new(inner: R, facts: Arc<LineStats>) -> Self {
        Self {
            inner,
            facts,
            line_bytes: 0,
        }
    }

    /// Counts the bytes of lines; false if one is too long.
    fn count_bytes(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            // A message is a JSON object or, in old protocols, an array of them.
            if self.line_bytes == 0 && !matches!(first, b'{' | b'[' | b'\n' | b'\r' | b' ') {
                self.facts.non_message_lines.fetch_add(1, Ordering::Relaxed);
            }
            match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    if self.line_bytes + end > MAX_FRAME_BYTES {
                        return false;
                    }
                    self.line_bytes = 0;
                    rest = rest.get(end + 1..).unwrap_or_default();
                }
                None => {
                    self.line_bytes += rest.len();
                    return self.line_bytes <= MAX_FRAME_BYTES;
                }
            }
        }
        true
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineGuard<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if self.count_bytes(read) {
            return Poll::Ready(Ok(()));
        }
        self.facts.is_oversized.store(true, Ordering::Relaxed);
        Poll::Ready(Err(std::io::Error::other("a line is too long")))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn guard(bytes: &[u8]) -> (LineGuard<&[u8]>, Arc<LineStats>) {
        let facts = Arc::new(LineStats::default());
        (LineGuard::new(bytes, Arc::clone(&facts)), facts)
    }

    #[tokio::test]
    async fn noise_is_counted_and_passed_on() {
        let (mut guard, facts) = guard(b"hello\n{\"a\": 1}\n\nworld\n");
        let mut text = String::new();
        guard.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello\n{\"a\": 1}\n\nworld\n");
        assert_eq!(facts.non_message_lines.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_line_without_end_fails() {
        let flood = vec![b'x'; MAX_FRAME_BYTES + 1];
        let (mut guard, facts) = guard(&flood);
        let mut buffer = vec![0; 64 << 10];
        let mut total = 0;
        let end = loop {
            match guard.read(&mut buffer).await {
                Ok(count) => total += count,
                Err(error) => break error,
            }
        };
        assert_eq!(end.to_string(), "a line is too long");
        assert!(facts.is_oversized.load(Ordering::Relaxed));
        assert!(total <= MAX_FRAME_BYTES);
    }
}
