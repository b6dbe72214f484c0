//! Lists modes, which are named sets of tools and instructions: the command `modes`.

use std::io::{self, Write};

use sabir_policy::Mode;
use serde::Serialize;

use crate::report::Report;

/// The report of `modes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModeListing {
    /// The modes.
    pub modes: Vec<ModeSummary>,
    /// The faults of definitions that could not be used. They are not part of the text.
    pub faults: Vec<String>,
}

/// The facts of a mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModeSummary {
    /// The name.
    pub name: String,
    /// The purpose, on one line.
    pub about: String,
    /// The names of the groups of tools.
    pub tools: Vec<&'static str>,
    /// The patterns of the files that may be changed; empty means every file.
    pub write: Vec<String>,
    /// Additional instructions for the model.
    pub instructions: String,
    /// The mode's own model, if it has one.
    pub model: Option<String>,
    /// The patterns of [`write`](Self::write) as a phrase.
    #[serde(skip)]
    writable: String,
}

impl ModeSummary {
    /// Collects the facts of a mode. The configuration says which model it has.
    pub fn new(mode: &Mode, model: Option<&str>) -> Self {
        Self {
            name: mode.name.clone(),
            about: mode.about.clone(),
            tools: mode.groups.iter().map(|group| group.name()).collect(),
            write: mode.write.iter().map(ToString::to_string).collect(),
            instructions: mode.instructions.clone(),
            model: model.map(str::to_owned),
            writable: mode.writable_patterns(),
        }
    }
}

impl Report for ModeListing {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        // The names are aligned by characters, not bytes: a user may name a mode in any script.
        let width = self
            .modes
            .iter()
            .map(|mode| mode.name.chars().count())
            .max()
            .unwrap_or_default();
        for mode in &self.modes {
            // No pattern means no limit, which needs no words.
            let limit = if mode.write.is_empty() {
                String::new()
            } else {
                format!(" ({})", mode.writable)
            };
            let model = mode
                .model
                .as_ref()
                .map(|model| format!("; model: {model}"))
                .unwrap_or_default();
            let groups = mode.tools.join(", ");
            writeln!(
                out,
                "{:<width$}  {}\n{:<width$}  tools: {groups}{limit}{model}",
                mode.name, mode.about, ""
            )?;
        }
        Ok(())
    }
}
