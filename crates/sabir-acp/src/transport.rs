//! Carries the lines of a connection: no line can stop it, and none can grow without limit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// The most bytes of a line: the images of a prompt in base64, and room for the rest.
const MAX_LINE_BYTES: u64 = 32 << 20;

/// Returns the lines of the input. A line that is not UTF-8, or too long, becomes one that is not JSON, so that it is answered with an error.
pub(crate) fn input_lines(
    input: impl AsyncRead + Send + Unpin + 'static,
) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    stream::unfold(BufReader::new(input), |mut input| async move {
        loop {
            match read_line(&mut input).await {
                Ok(None) => return None,
                // An empty line between messages says nothing.
                Ok(Some(line)) if line.trim().is_empty() => {}
                Ok(Some(line)) => return Some((Ok(line), input)),
                Err(error) => return Some((Err(error), input)),
            }
        }
    })
}

/// Reads the next line without its end; `None` at the end of the input.
async fn read_line(input: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<String>> {
    // Read as bytes: a line that is not UTF-8 is an error of its sender, not the end of the input.
    let mut bytes = Vec::new();
    let mut limited = (&mut *input).take(MAX_LINE_BYTES);
    if limited.read_until(b'\n', &mut bytes).await? == 0 {
        return Ok(None);
    }
    if bytes.last() != Some(&b'\n') && bytes.len() as u64 == MAX_LINE_BYTES {
        skip_line(input).await?;
        return Ok(Some("(a line that is too long)".to_owned()));
    }
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads the rest of a line and forgets it.
async fn skip_line(input: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(buffer.len(), |at| at + 1);
        input.consume(count);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Returns a sink that writes each line at once. `is_closed` is set when the other side no longer reads.
pub(crate) fn output_lines(
    output: impl AsyncWrite + Send + Unpin + 'static,
    is_closed: Arc<AtomicBool>,
) -> impl Sink<String, Error = io::Error> + Send + 'static {
    sink::unfold(output, move |mut output, line: String| {
        let is_closed = Arc::clone(&is_closed);
        async move {
            let mut bytes = line.into_bytes();
            bytes.push(b'\n');
            let written = match output.write_all(&bytes).await {
                Ok(()) => output.flush().await,
                failed => failed,
            };
            if let Err(error) = &written {
                is_closed.store(error.kind() == io::ErrorKind::BrokenPipe, Ordering::Relaxed);
            }
            written.map(|()| output)
        }
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn lines_of(input: Vec<u8>) -> Vec<String> {
        let lines = input_lines(std::io::Cursor::new(input));
        lines.map(|line| line.unwrap()).collect().await
    }

    #[tokio::test]
    async fn no_line_ends_the_input() {
        let lines = lines_of(b"{}\r\n\n\xff\xfe\n{\"a\": 1}".to_vec()).await;
        assert_eq!(lines, ["{}", "\u{fffd}\u{fffd}", "{\"a\": 1}"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped() {
        let mut input = vec![b'x'; MAX_LINE_BYTES as usize + 10];
        input.extend(b"\n{}\n");
        assert_eq!(lines_of(input).await, ["(a line that is too long)", "{}"]);
    }
}
