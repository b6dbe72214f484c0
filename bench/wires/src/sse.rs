//! Bytes to server-sent events, beside other decoders. Each counts the bytes of data that it gives out.

use std::convert::Infallible;
use std::fmt::Write;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use eventsource_stream::EventStream;
use futures_util::Stream;
use futures_util::stream::iter;
use sabir_wire::sse::{SseDecoder, SseEvent};
use sse_stream::SseStream;

use crate::median;

/// Sizes of chunks, in bytes.
const CHUNKS: [usize; 3] = [64, 1400, 16384];

/// A table of megabytes a second, and whether the targets hold.
pub(crate) fn table(bodies: &[Vec<u8>]) -> String {
    let total: usize = bodies.iter().map(Vec::len).sum();
    let mut text = "### Server-sent events, MB/s\n\n".to_owned();
    text.push_str("| chunk | Sabir | sse-stream | × | eventsource-stream | × | same data |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    for size in CHUNKS {
        let speed = |pass: fn(&[u8], usize) -> usize| {
            let time = median(|| {
                for body in bodies {
                    black_box(pass(body, size));
                }
            });
            total as f64 / 1e6 / time.as_secs_f64()
        };
        let counts = [sabir, peer, other].map(|pass| bodies.iter().map(|body| pass(body, size)).sum::<usize>());
        let [ours, first, second] = [sabir, peer, other].map(speed);
        let same = counts.iter().all(|count| Some(count) == counts.first());
        _ = writeln!(
            text,
            "| {size} B | {ours:.0} | {first:.0} | {:.1} | {second:.0} | {:.1} | {} |",
            ours / first,
            ours / second,
            if same { "yes".to_owned() } else { format!("{counts:?} bytes") }
        );
    }
    text
}

fn sabir(body: &[u8], size: usize) -> usize {
    let (mut decoder, mut count) = (SseDecoder::new(), 0);
    let mut take = |event: SseEvent<'_>| {
        if let SseEvent::Message { data, .. } = event {
            count += data.len();
        }
    };
    body.chunks(size).for_each(|chunk| decoder.push(chunk, &mut take));
    decoder.finish(&mut take);
    count
}

fn chunks(body: &[u8], size: usize) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
    let body = Bytes::copy_from_slice(body);
    let starts = (0..body.len()).step_by(size);
    iter(starts.map(move |start| Ok(body.slice(start..body.len().min(start + size)))))
}

fn peer(body: &[u8], size: usize) -> usize {
    drain(SseStream::from_bytes_stream(chunks(body, size)), |event| event.data.map_or(0, |data| data.len()))
}

fn other(body: &[u8], size: usize) -> usize {
    drain(EventStream::new(chunks(body, size)), |event| event.data.len())
}

/// Adds up what a stream gives; it is always ready. It ends at the first error.
fn drain<T, E>(stream: impl Stream<Item = Result<T, E>>, length: impl Fn(T) -> usize) -> usize {
    let mut stream = pin!(stream);
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    while let Poll::Ready(Some(Ok(event))) = stream.as_mut().poll_next(&mut context) {
        count += length(event);
    }
    count
}
