//! An empty crate in place of `insta`, which `brush-parser` 0.4 lists as a dependency and uses only in its own tests.
