//! Completes commands, modes, files and symbols at the cursor.

use std::collections::HashSet;

use ratatui_core::text::Line;

use super::{App, Effect};
use crate::commands::COMMANDS;
use crate::fuzzy::best_matches;
use crate::keys::{Key, KeyCode};
use crate::lines::{fit_line, one_line, span};
use crate::theme::Role;

/// The maximum number of rows in a list of completions.
pub(super) const MAX_COMPLETIONS: usize = 6;

/// The maximum number of places of a symbol while other symbols fit as well.
const MAX_PLACES: usize = 3;

/// A list of completions at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// The place where the completed word begins.
    start: usize,
    items: Vec<CompletionItem>,
    chosen: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CompletionItem {
    /// The text that replaces the word.
    text: String,
    /// A description.
    note: String,
}

impl App {
    pub(super) fn update_completion(&mut self, effects: &mut Vec<Effect>) {
        let found = self.find_completion(effects);
        let Some((start, items)) = found.filter(|(_, items)| !items.is_empty()) else {
            self.completion = None;
            self.closed_completion = None;
            return;
        };
        if self.closed_completion == Some(start) {
            self.completion = None;
            return;
        }
        self.closed_completion = None;
        let chosen = match &self.completion {
            // The list is made again for each key, and also for those that do not change it.
            Some(known) if known.items == items => known.chosen,
            _ => 0,
        };
        self.completion = Some(Completion {
            start,
            items,
            chosen,
        });
    }

    /// Returns the completions at the cursor: the place of the word, and the texts.
    fn find_completion(
        &mut self,
        effects: &mut Vec<Effect>,
    ) -> Option<(usize, Vec<CompletionItem>)> {
        if self.reason.is_some() || self.composer.search().is_some() {
            return None;
        }
        let before = self.composer.text().get(..self.composer.cursor())?;
        if before.starts_with('/') && !before.contains(char::is_whitespace) {
            let own = COMMANDS.iter().map(|command| CompletionItem {
                text: match command.argument {
                    "" => command.name.to_owned(),
                    _ => format!("{} ", command.name),
                },
                note: command.effect.to_owned(),
            });
            let custom = self.custom_commands.commands().into_iter();
            let custom = custom.map(|command| CompletionItem {
                text: match command.argument_hint.as_str() {
                    "" => format!("/{}", command.name),
                    _ => format!("/{} ", command.name),
                },
                note: one_line(&command.description),
            });
            let all: Vec<CompletionItem> = own.chain(custom).collect();
            // A list at a complete name would take the Enter that is meant to send it.
            if all.iter().any(|item| item.text.trim_end() == before) {
                return None;
            }
            let names = all.iter().map(|item| item.text.trim_end());
            let found = best_matches(before.trim_start_matches('/'), names, MAX_COMPLETIONS);
            let items = found.into_iter().filter_map(|name| {
                let item = all.iter().find(|item| item.text.trim_end() == name)?;
                Some(item.clone())
            });
            return Some((0, items.collect()));
        }
        if let Some(word) = before.strip_prefix("/mode ") {
            if self.modes.iter().any(|mode| mode == word) {
                return None;
            }
            let names = self.modes.iter().map(String::as_str);
            let items = best_matches(word, names, MAX_COMPLETIONS)
                .into_iter()
                .map(|mode| CompletionItem {
                    text: mode.to_owned(),
                    note: String::new(),
                });
            return Some(("/mode ".len(), items.collect()));
        }
        let start = before.rfind(char::is_whitespace).map_or(0, |at| {
            at + before
                .get(at..)
                .and_then(|rest| rest.chars().next())
                .map_or(1, char::len_utf8)
        });
        let word = before.get(start..)?;
        let pattern = word.strip_prefix('@')?;
        let Some(files) = &self.files else {
            // Asked for once, and in the background: a large folder takes seconds to list.
            if !std::mem::replace(&mut self.are_files_requested, true) {
                effects.push(Effect::ListFiles);
            }
            return None;
        };
        if files.iter().any(|file| file == pattern) {
            return None;
        }
        let found = best_matches(pattern, files.iter().map(String::as_str), MAX_COMPLETIONS);
        let mut items: Vec<_> = found
            .into_iter()
            .map(|file| CompletionItem {
                text: format!("@{file}"),
                note: String::new(),
            })
            .collect();
        let symbols = self.complete_symbol(pattern);
        // Both get room, and either may use what the other leaves.
        let most_files = MAX_COMPLETIONS - symbols.len().min(MAX_COMPLETIONS / 2);
        items.truncate(most_files);
        items.extend(symbols);
        items.truncate(MAX_COMPLETIONS);
        Some((start, items))
    }

    /// Returns the functions and types whose names fit best.
    fn complete_symbol(&self, pattern: &str) -> Vec<CompletionItem> {
        // A short pattern fits everything, and a path is a file's.
        if pattern.chars().count() < 2 || pattern.contains(['/', '.']) {
            return Vec::new();
        }
        // Each match below brings all its places, so each name is matched once.
        let mut seen = HashSet::new();
        let names = self.symbols.iter().map(|symbol| symbol.name.as_str());
        let names = names.filter(|name| seen.insert(*name));
        let found = best_matches(pattern, names, MAX_COMPLETIONS);
        let places = found.into_iter().enumerate().flat_map(|(rank, name)| {
            let same = self.symbols.iter().filter(move |one| one.name == name);
            let same = same.take(MAX_COMPLETIONS).enumerate();
            same.map(move |(nth, symbol)| (nth / MAX_PLACES, rank, symbol))
        });
        let mut places: Vec<_> = places.collect();
        // Further definitions of a name are shown only if other names leave room, and then next to
        // its first ones.
        places.sort_by_key(|(round, rank, _)| (*round, *rank));
        places.truncate(MAX_COMPLETIONS);
        places.sort_by_key(|(_, rank, _)| *rank);
        let items = places.into_iter().map(|(_, _, symbol)| CompletionItem {
            text: format!("`{}` ({}:{})", symbol.name, symbol.path, symbol.line),
            note: symbol.kind.to_owned(),
        });
        items.collect()
    }

    /// Handles a key while completions are shown; `None` if the key has its usual meaning.
    pub(super) fn press_in_completion(&mut self, key: Key) -> Option<Vec<Effect>> {
        let completion = self.completion.as_mut()?;
        let count = completion.items.len();
        match key.code {
            KeyCode::Up => {
                completion.chosen = completion.chosen.checked_sub(1).unwrap_or(count - 1)
            }
            KeyCode::Down => completion.chosen = (completion.chosen + 1) % count,
            KeyCode::Escape => {
                self.closed_completion = Some(completion.start);
                self.completion = None;
            }
            KeyCode::Tab | KeyCode::Enter if !key.shift && !key.alt => {
                let start = completion.start;
                let text = completion.items.get(completion.chosen)?.text.clone();
                self.completion = None;
                // A command without an argument is complete, and Enter runs it.
                let runs = key.code == KeyCode::Enter
                    && start == 0
                    && !text.ends_with(' ')
                    && text.starts_with('/');
                self.composer.replace_before_cursor(start, &text);
                if text.starts_with(['@', '`']) {
                    self.composer.press(Key::plain(KeyCode::Char(' ')));
                }
                if runs {
                    return None;
                }
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    /// Returns the rows of the open completions.
    pub(super) fn completion_rows(&self, width: usize, max_rows: usize) -> Vec<Line<'static>> {
        let Some(completion) = &self.completion else {
            return Vec::new();
        };
        let rows = completion
            .items
            .iter()
            .enumerate()
            .take(max_rows)
            .map(|(at, item)| {
                let role = if at == completion.chosen {
                    Role::Selected
                } else {
                    Role::Plain
                };
                let line = Line::from(vec![
                    span(&format!("  {}", item.text), self.theme.style(role)),
                    span(&format!("  {}", item.note), self.theme.style(Role::Dim)),
                ]);
                fit_line(line, width)
            });
        rows.collect()
    }
}
