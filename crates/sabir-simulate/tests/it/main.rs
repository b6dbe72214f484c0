//! The simulator itself: that it finds nothing, that it would, and that it says the same twice.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod honest;
mod sabotaged;
