//! Reads a stream of text chunk by chunk and returns the events of each chunk.

use sabir_call::{CallReader, Truncation};

use crate::error::BindingError;
use crate::event_batch::EventBatch;
use crate::reader_options::ReaderOptions;

/// A reader of one text that arrives in chunks.
///
/// ```
/// use sabir_bindings::{ReaderOptions, StreamReader};
///
/// let options = ReaderOptions::from_json(
///     r#"{"tools": [{"name": "look", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]}"#,
/// )?;
/// let mut reader = StreamReader::new(&options);
/// assert!(reader.push("<look><pa")?.is_empty());
/// assert!(reader.push("th>a.rs</path></look>")?.to_json().contains(r#"{"event":"arg_delta","index":0,"text":"a.rs"}"#));
/// let last = reader.finish("ended")?;
/// assert!(last.iter().all(|event| !matches!(event, sabir_bindings::Event::CallCut { .. })));
/// # Ok::<(), sabir_bindings::BindingError>(())
/// ```
#[derive(Debug)]
pub struct StreamReader {
    reader: CallReader,
    events: EventBatch,
    has_finished: bool,
}

impl StreamReader {
    /// Creates a reader.
    pub fn new(options: &ReaderOptions) -> Self {
        Self {
            reader: options.create_reader(),
            events: EventBatch::new(options.marks),
            has_finished: false,
        }
    }

    /// Creates a reader for another text with the same settings, which costs less than [`Self::new`]. A prefill is not repeated.
    #[must_use]
    pub fn for_next_text(&self) -> Self {
        Self {
            reader: self.reader.for_next_text(),
            events: EventBatch::new(self.events.keeps_marks()),
            has_finished: false,
        }
    }

    /// Reads a chunk and returns its events. They stay until the next call.
    ///
    /// # Errors
    /// The text has ended already.
    pub fn push(&mut self, chunk: &str) -> Result<&EventBatch, BindingError> {
        self.begin_chunk()?;
        self.reader.push(chunk, &mut self.events);
        Ok(&self.events)
    }

    /// Reads a chunk of bytes, which may end inside a character. Invalid UTF-8 becomes U+FFFD, with a fault.
    ///
    /// # Errors
    /// The text has ended already.
    pub fn push_bytes(&mut self, chunk: &[u8]) -> Result<&EventBatch, BindingError> {
        self.begin_chunk()?;
        self.reader.push_bytes(chunk, &mut self.events);
        Ok(&self.events)
    }

    /// Ends the text and returns the last events. `reason` is `ended`, `limit`, `broken` or `cancelled`.
    ///
    /// # Errors
    /// The reason is unknown, or the text has ended already.
    pub fn finish(&mut self, reason: &str) -> Result<&EventBatch, BindingError> {
        // An unknown reason must not end the text, so it is read before anything changes.
        let reason = read_reason(reason)?;
        self.begin_chunk()?;
        self.has_finished = true;
        self.reader.finish(reason, &mut self.events);
        Ok(&self.events)
    }

    /// Returns the events of the last chunk.
    pub fn events(&self) -> &EventBatch {
        &self.events
    }

    fn begin_chunk(&mut self) -> Result<(), BindingError> {
        self.events.clear();
        if self.has_finished {
            return Err(BindingError::AlreadyFinished);
        }
        Ok(())
    }
}

/// Reads the reason why a text ended.
pub(crate) fn read_reason(word: &str) -> Result<Truncation, BindingError> {
    match word {
        "ended" => Ok(Truncation::Ended),
        "limit" => Ok(Truncation::Limit),
        "broken" => Ok(Truncation::Broken),
        "cancelled" => Ok(Truncation::Cancelled),
        _ => Err(BindingError::UnknownWord {
            what: "a reason for the end of a text",
            found: word.to_owned(),
            known: "ended, limit, broken or cancelled",
        }),
    }
}
