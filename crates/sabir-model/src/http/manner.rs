//! How a model is asked: by whom, and what of its answer is read for calls.

/// Who asks a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Callers {
    /// One task, whose history only grows: what one request met with is remembered for the next.
    #[default]
    Task,
    /// Anybody: nothing is remembered from request to request but open connections.
    Many,
}

/// Which text of an answer is read for calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reads {
    /// All of it, wherever tools are offered: models leak calls there.
    #[default]
    Text,
    /// None of it, unless the protocol is prompted: text stays what it is.
    Nothing,
}
