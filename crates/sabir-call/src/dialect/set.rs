//! Sets of dialects: the built-in rows, and those that a session defines on top of them.
//!
//! A set is a value. Whatever resolves the name of a dialect, or listens for calls, takes the set of its session, so two sessions
//! of one process can give the same name to different tables.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::define::{self, DefineError, DialectTable};
use super::{Dialect, json, tagged, untagged};

/// The set that holds no defined dialect.
static BUILT_IN: DialectSet = DialectSet { defined: None };

/// The dialects that a session knows. Cheap to clone; a change of one clone does not affect the others.
///
/// ```
/// use sabir_call::dialect::{DialectSet, DialectTable};
///
/// let table: DialectTable = serde_json::from_str(r#"{"name": "acme", "machine": "json", "open": "<acme>"}"#)?;
/// let mut dialects = DialectSet::default();
/// dialects.define(&table)?;
/// assert!(dialects.find("acme").is_some());
/// assert!(DialectSet::built_in().find("acme").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct DialectSet {
    /// `None` as long as nothing was defined, so that the usual set needs no allocation.
    defined: Option<Arc<DefinedDialects>>,
}

/// The part of a set that was defined by tables.
#[derive(Clone, Default)]
struct DefinedDialects {
    /// The rows of the user's tables, in the order of their definition.
    rows: Vec<Dialect>,
    pool: Arc<DefinitionPool>,
}

/// The rows that were built from tables, with their tables.
///
/// The reader borrows markers for `'static`, so the texts of a row are never freed. The pool bounds that memory: the sets that share it
/// have one row for equal tables, however often they are defined. A table that breaks a rule is remembered too, because its first values
/// may have been leaked before the rule was checked.
#[derive(Default)]
struct DefinitionPool(Mutex<Vec<PooledDefinition>>);

/// A table, and the row built from it or the rule that it breaks.
type PooledDefinition = (DialectTable, Result<Dialect, DefineError>);

/// The dialects of a set that a reader listens for.
#[derive(Debug, Clone, Copy)]
pub struct DialectSelection<'d> {
    dialects: &'d DialectSet,
    only: Option<&'d Dialect>,
    /// True if the text is expected to hold calls, because the model was taught to write them.
    text_calls: bool,
    /// The end of the prompt, which the text continues.
    prefill: &'d str,
}

impl DialectSet {
    /// Returns the set of the built-in dialects.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// Returns a set from which the sets of many sessions are cloned. Equal tables that its clones define share one
    /// row, which bounds the memory of a process that loads the same tables for every session.
    pub fn with_shared_definitions() -> Self {
        Self {
            defined: Some(Arc::default()),
        }
    }

    /// Iterates over the dialects: the built-in ones, then those that were [defined](Self::define),
    /// in that order.
    pub fn iter(&self) -> impl Iterator<Item = &Dialect> + Clone {
        let built_in = [tagged::ROWS, json::ROWS, untagged::ROWS]
            .into_iter()
            .flatten();
        built_in.chain(self.defined_rows())
    }

    fn defined_rows(&self) -> &[Dialect] {
        self.defined.as_ref().map_or(&[], |defined| &defined.rows)
    }

    /// Returns the dialect with that name or alias.
    pub fn find(&self, name: &str) -> Option<&Dialect> {
        self.iter()
            .find(|dialect| dialect.name == name || dialect.aliases.contains(&name))
    }

    /// Adds a dialect. A table that the set holds already changes nothing.
    ///
    /// The dialect is tried out first: it must read what it writes, both alone and among the other dialects of the set, and must not claim
    /// their calls.
    ///
    /// # Errors
    /// The first rule that the table breaks; the set is as it was then.
    pub fn define(&mut self, table: &DialectTable) -> Result<(), DefineError> {
        let defined = self.defined.clone().unwrap_or_default();
        let made = defined.pool.intern_definition(table)?;
        if let Some(known) = self.find(made.name) {
            // The same table once more is not a second dialect.
            return if *known == made {
                Ok(())
            } else {
                Err(DefineError::NameInUse(table.name.clone()))
            };
        }
        if let Some(taken) = made.aliases.iter().find(|alias| self.find(alias).is_some()) {
            return Err(DefineError::NameInUse((*taken).to_owned()));
        }
        let mut grown = DefinedDialects::clone(&defined);
        grown.rows.push(made);
        let grown = Self {
            defined: Some(Arc::new(grown)),
        };
        define::check_round_trip(&made, self, &grown)?;
        *self = grown;
        Ok(())
    }

    /// Selects all dialects. The text after a marker decides between dialects that share it.
    pub fn all(&self) -> DialectSelection<'_> {
        DialectSelection {
            dialects: self,
            only: None,
            text_calls: true,
            prefill: "",
        }
    }

    /// Returns the selection with that name: `auto` for all dialects, or the name or alias of one.
    pub fn select(&self, name: &str) -> Option<DialectSelection<'_>> {
        match name {
            "auto" => Some(self.all()),
            _ => self.find(name).map(|dialect| self.only(dialect)),
        }
    }

    /// Selects one dialect. The others of the set are still recognised, so that a fault can name
    /// them.
    pub fn only<'d>(&'d self, dialect: &'d Dialect) -> DialectSelection<'d> {
        DialectSelection {
            dialects: self,
            only: Some(dialect),
            text_calls: true,
            prefill: "",
        }
    }
}

impl fmt::Debug for DialectSet {
    /// The names of the defined dialects: everything else is the same in every set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DialectSet ")?;
        f.debug_list()
            .entries(self.defined_rows().iter().map(|dialect| dialect.name))
            .finish()
    }
}

impl PartialEq for DialectSet {
    /// Reports whether both hold the same dialects in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.defined_rows() == other.defined_rows()
    }
}

impl DefinitionPool {
    /// The row of a table, which is built at most once.
    fn intern_definition(&self, table: &DialectTable) -> Result<Dialect, DefineError> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = rows.iter().find(|(known, _)| known == table) {
            return known.clone();
        }
        let made = define::build_dialect(table);
        rows.push((table.clone(), made.clone()));
        made
    }
}

impl<'d> DialectSelection<'d> {
    /// Returns true if calls in that dialect are read.
    pub fn includes(self, name: &str) -> bool {
        self.only.is_none_or(|only| only.name == name)
    }

    /// Returns the selection for a model that calls natively. Its text is an answer, so an element that
    /// names no tool is part of the answer, not a call of an unknown tool.
    #[must_use]
    pub fn for_native_calls(self) -> Self {
        Self {
            text_calls: false,
            ..self
        }
    }

    /// Returns the selection for a text that continues `prefill`, the end of the prompt. If that opens
    /// a thought, as many chat templates do with `<think>`, the text begins inside it.
    #[must_use]
    pub fn with_prefill(self, prefill: &'d str) -> Self {
        Self { prefill, ..self }
    }

    /// Returns the end of the prompt that the text continues.
    pub(crate) fn prefill(self) -> &'d str {
        self.prefill
    }

    /// Reports whether the text is expected to hold calls.
    pub(crate) fn expects_text_calls(self) -> bool {
        self.text_calls
    }

    /// Reports whether one dialect was chosen.
    pub(crate) fn is_chosen(self) -> bool {
        self.only.is_some()
    }

    /// Returns true if the reader listens for all dialects, and all of them are built in.
    pub(crate) fn is_all_built_in(self) -> bool {
        self.only.is_none() && self.dialects.defined_rows().is_empty()
    }

    /// Returns every dialect that can be recognised, with true for the active ones.
    pub(crate) fn recognized_dialects(self) -> impl Iterator<Item = (&'d Dialect, bool)> {
        // The chosen dialect may not be in the set; then it replaces the one with its name.
        let chosen = self.only.filter(|only| {
            !self
                .dialects
                .iter()
                .any(|dialect| std::ptr::eq(dialect, *only))
        });
        let others = self
            .dialects
            .iter()
            .filter(move |dialect| chosen.is_none_or(|chosen| chosen.name != dialect.name));
        others
            .chain(chosen)
            .map(move |dialect| (dialect, self.includes(dialect.name)))
    }
}

impl<'d> From<&'d Dialect> for DialectSelection<'d> {
    /// One dialect alone, next to the built-in ones.
    fn from(dialect: &'d Dialect) -> Self {
        BUILT_IN.only(dialect)
    }
}
