//! Lists what a user can choose for a session before it works: modes, models, and the commands that the folder defines.

use std::path::Path;

use sabir_agent::Record;
use sabir_call::{ToolProtocol, redact};
use sabir_model::KeySource;
use sabir_workspace::Workspace;

use crate::config::Config;
use crate::custom_commands::CustomCommands;
use crate::error::SessionError;
use crate::host::Host;
use crate::modes::{self, InitialMode};
use crate::setup;
use crate::spec::SessionSpec;

/// The choices of a session, with the present selection.
#[derive(Debug, Clone)]
pub struct SessionChoices {
    /// The name of the mode.
    pub mode: String,
    /// The modes that can be switched to.
    pub modes: Vec<ModeChoice>,
    /// The model of that mode.
    pub model: ModelChoice,
    /// The models whose providers have a key, the present one first.
    pub models: Vec<ModelChoice>,
    /// The protocol of tool calls: `native` or a dialect.
    pub protocol: String,
    /// The commands that the folder and the user define.
    pub commands: CustomCommands,
}

/// A mode that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChoice {
    /// The name.
    pub name: String,
    /// The description for users.
    pub about: String,
}

/// A model that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// The name, as in [`SessionSpec::model`].
    pub name: String,
    /// The size of its context in tokens, if it is known.
    pub window: Option<u64>,
}

impl Host {
    /// Returns the choices of a session with this spec: a new one, or that of a task with these records.
    ///
    /// # Errors
    /// When the configuration, the folder, the mode or the model cannot be used.
    pub fn session_choices(
        &self,
        spec: &SessionSpec,
        records: &[Record],
    ) -> Result<SessionChoices, SessionError> {
        let config = self.load_config(spec.config.as_deref())?;
        let start = match records {
            [Record::Started(start), ..] => Some(start),
            _ => None,
        };
        let kept = start.map(|_| setup::with_kept_mode(records, spec));
        let spec = kept.as_ref().unwrap_or(spec);
        let begun_in = start.map(setup::workspace_of);
        let folder = spec.workspace.as_deref().or(begun_in.as_deref());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let workspace =
            Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
        let mode = setup::initial_mode(spec, &config).to_owned();
        modes::find_mode(&mode, &config, &workspace)?;
        let (modes, _) = modes::all_modes(&config, &workspace);
        let model = match start {
            Some(start) => {
                let begun = InitialMode {
                    mode: setup::start_mode(start),
                    model: &start.model,
                    protocol: &start.protocol,
                };
                modes::resolve_mode_model(&mode, begun, &config, spec)?.0
            }
            None => {
                let own = || modes::model_of(&config, &mode);
                config.resolve_model(spec.model.as_deref().or_else(own))?
            }
        };
        let protocol = start.map_or_else(
            || spec.protocol.clone().or(config.protocol.clone()),
            |start| Some(start.protocol.name().to_owned()),
        );
        let model = ModelChoice {
            window: model.entry.as_ref().and_then(|entry| entry.context),
            name: model.name,
        };
        Ok(SessionChoices {
            models: usable_models(&config, &model),
            modes: modes
                .into_iter()
                .map(|mode| ModeChoice {
                    name: mode.name,
                    about: mode.about,
                })
                .collect(),
            commands: CustomCommands::find(folder, &config),
            protocol: protocol.unwrap_or_else(|| ToolProtocol::Native.name().to_owned()),
            mode,
            model,
        })
    }

    /// Checks that a model can be used, and returns it with the size of its context.
    ///
    /// # Errors
    /// When its provider is not known or has no key.
    pub fn find_model(&self, spec: &SessionSpec, name: &str) -> Result<ModelChoice, SessionError> {
        let config = self.load_config(spec.config.as_deref())?;
        let model = config.resolve_model(Some(name))?;
        Ok(ModelChoice {
            window: model.entry.as_ref().and_then(|entry| entry.context),
            name: model.name,
        })
    }
}

/// Returns the present model, and those of the catalogue whose providers have a key.
fn usable_models(config: &Config, present: &ModelChoice) -> Vec<ModelChoice> {
    let rows = config.provider_rows();
    let has_key = |vendor: &str| {
        let is_set = |key: &KeySource| {
            !matches!(
                key,
                KeySource::Nowhere | KeySource::Environment { present: None, .. }
            )
        };
        rows.iter()
            .any(|row| row.name == vendor && is_set(&row.key))
    };
    let known = config.model_catalogue();
    let known = known.all_entries().filter_map(|entry| {
        let vendor = entry.vendor.as_deref().filter(|vendor| has_key(vendor))?;
        Some(ModelChoice {
            name: format!("{vendor}/{}", entry.pattern),
            window: entry.context,
        })
    });
    let others = known.filter(|model| model.name != present.name);
    std::iter::once(present.clone()).chain(others).collect()
}

/// Returns a title for a task: the first line of its prompt, without secrets.
pub fn task_title(prompt: &str) -> String {
    let prompt = redact::redact_text(prompt);
    let line = prompt.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().chars().take(100).collect()
}
