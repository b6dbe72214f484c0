//! The simulator itself: that it finds nothing, that it would, and that it says the same twice.

mod honest;
mod sabotaged;
