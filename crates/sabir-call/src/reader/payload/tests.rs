//! What the machine makes of texts.
