//! Prepares the tools, the file bounds and the model of a task for each of its modes.
//!
//! A mode's own model is used by tasks that begin in the mode and after a switch to it, unless `--model` names another. A task is
//! locked to its protocol, so a native task cannot use a model that needs a dialect. In that case, and where the provider of a
//! model cannot be used, the task keeps the model that it began with, and a notice says why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::ModeConfig;
use sabir_call::dialect::DialectSet;
use sabir_call::{TokenPrices, ToolProtocol};
use sabir_policy::Mode;
use sabir_workspace::{Bounds, Workspace};
use serde::{Deserialize, Serialize};

use crate::config::{Config, ResolvedModel};
use crate::error::SessionError;
use crate::images::ImageSupport;
use crate::locked;
use crate::setup::TaskSetup;
use crate::spec::SessionSpec;
use crate::telemetry::TargetModel;

/// The mode, model and protocol that a task began with. The models of its other modes depend on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitialMode<'a> {
    /// The name of the mode.
    pub(crate) mode: &'a str,
    /// The model's name as the user gave it.
    pub(crate) model: &'a str,
    pub(crate) protocol: &'a ToolProtocol,
}

/// The part of a recording about a mode that has another model than the task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedMode {
    model: String,
    #[serde(default)]
    prices: TokenPrices,
    #[serde(default)]
    window: Option<u64>,
}

/// The name of the current mode, shared by everything that depends on it.
pub(crate) type CurrentMode = Arc<Mutex<String>>;

/// Creates the shared name of a mode that was not switched yet.
pub(crate) fn shared_mode(mode: &str) -> CurrentMode {
    Arc::new(Mutex::new(Mode::canonical_name(mode).to_owned()))
}

/// Returns a copy of the current mode's name.
pub(crate) fn mode_name(now: &CurrentMode) -> String {
    now.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The modes that a task can switch to, and the current one.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionModes {
    /// The text of the system prompt about the mode that the task began in; `None` means the mode
    /// of the rules.
    pub(super) prompt_text: Option<String>,
    pub(super) runtimes: Vec<ModeRuntime>,
    /// The name of the current mode.
    pub(super) current_mode: CurrentMode,
}

/// A mode with its bounds and its model.
#[derive(Debug, Clone)]
pub(super) struct ModeRuntime {
    pub(super) config: ModeConfig,
    pub(super) bounds: Bounds,
    /// The model's name as the user gave it.
    pub(super) model: String,
    /// The name of the model's provider.
    provider: String,
    /// The model, where it is on another server than the task's.
    pub(super) other_server: Option<Arc<ResolvedModel>>,
    /// The reason why the mode's own model is not used.
    pub(super) note: Option<String>,
    /// The support of its model for images.
    pub(super) image_support: ImageSupport,
}

/// Returns the model for a mode. Where the mode's own model cannot be used, it returns the task's model and the reason.
pub(crate) fn resolve_mode_model(
    mode: &str,
    begun: InitialMode<'_>,
    config: &Config,
    options: &SessionSpec,
) -> Result<(ResolvedModel, Option<String>), SessionError> {
    if let Some(model) = &options.model {
        return Ok((config.resolve_model(Some(model))?, None));
    }
    let wanted = wanted_model(Mode::canonical_name(mode), begun, config);
    if wanted != begun.model {
        let why = match config.resolve_model(Some(wanted)) {
            Ok(chosen) => match protocol_conflict(&config.dialects, &chosen, begun.protocol)? {
                None => return Ok((chosen, None)),
                Some(why) => why,
            },
            Err(failure) => failure.to_string(),
        };
        let note = format!("its model {wanted} is not used, but {}: {why}", begun.model);
        return Ok((config.resolve_model(Some(begun.model))?, Some(note)));
    }
    Ok((config.resolve_model(Some(begun.model))?, None))
}

/// Returns the name of the model that a mode should use, whether or not it can be used.
fn wanted_model<'a>(mode: &str, begun: InitialMode<'a>, config: &'a Config) -> &'a str {
    if mode == begun.mode {
        return begun.model;
    }
    // A task that began with the model of its first mode does not carry it into other modes: they
    // use the configured one.
    let usual = config
        .model
        .as_deref()
        .filter(|_| super::model_of(config, begun.mode) == Some(begun.model));
    super::model_of(config, mode)
        .or(usual)
        .unwrap_or(begun.model)
}

/// Returns the reason why a model cannot be used in a task with this protocol, if there is one.
fn protocol_conflict(
    dialects: &DialectSet,
    chosen: &ResolvedModel,
    protocol: &ToolProtocol,
) -> Result<Option<String>, SessionError> {
    let own = locked::task_protocol(dialects, None, None, chosen)?;
    let out = *protocol == ToolProtocol::Native && own != ToolProtocol::Native;
    Ok(out.then(|| {
        format!(
            "it has to be asked in the dialect {}, and the task is locked to native calls",
            own.name()
        )
    }))
}

impl SessionModes {
    /// Returns the names of all modes.
    pub(crate) fn mode_names(&self) -> Vec<String> {
        self.runtimes
            .iter()
            .map(|runtime| runtime.config.mode.name.clone())
            .collect()
    }

    /// Returns the modes in the form that the task machine takes.
    pub(crate) fn mode_configs(&self) -> Vec<ModeConfig> {
        self.runtimes
            .iter()
            .map(|runtime| runtime.config.clone())
            .collect()
    }

    /// Returns the text of the system prompt about the mode that the task began in.
    pub(crate) fn mode_prompt(&self) -> Option<&str> {
        self.prompt_text.as_deref()
    }

    /// Returns the model of each mode, by the mode's name.
    pub(crate) fn target_models(&self) -> BTreeMap<String, TargetModel> {
        let asked = self.runtimes.iter().map(|runtime| {
            let asked = TargetModel {
                provider: runtime.provider.clone(),
                model: runtime.config.model.clone(),
            };
            (runtime.config.mode.name.clone(), asked)
        });
        asked.collect()
    }

    /// Returns the modes whose model is not `model`, for the header of a recording.
    pub(crate) fn recorded_modes(&self, model: &str) -> BTreeMap<String, RecordedMode> {
        let other = self
            .runtimes
            .iter()
            .filter(|runtime| runtime.config.model != model);
        let recorded = other.map(
            |ModeRuntime {
                 config:
                     ModeConfig {
                         mode,
                         model,
                         prices,
                         window,
                         ..
                     },
                 ..
             }| {
                (
                    mode.name.clone(),
                    RecordedMode {
                        model: model.clone(),
                        prices: *prices,
                        window: *window,
                    },
                )
            },
        );
        recorded.collect()
    }
}

impl TaskSetup {
    /// Adds the modes that the task can switch to. `present` is the model of its current mode. `taped` says that requests are
    /// recorded: since a recording holds one server, no mode can then use a model on another.
    pub(crate) fn with_modes(
        mut self,
        config: &Config,
        options: &SessionSpec,
        begun: InitialMode<'_>,
        present: &ResolvedModel,
        taped: bool,
    ) -> Result<Self, SessionError> {
        let mut runtimes = Vec::new();
        // Its patterns are compiled once: they are the same in every mode.
        let hidden = super::hidden_files(&self.rules, config)?;
        for (mode, foreign) in modes_with_origin(config, &self.workspace) {
            let (mut model, mut note) = resolve_mode_model(&mode.name, begun, config, options)?;
            // A mode on the task's own server needs no client of its own.
            let mut elsewhere = !present.shares_server(&model);
            if elsewhere && taped {
                note = Some(format!(
                    "its model {} is not used, but {}: a recording holds one server",
                    model.name, present.name
                ));
                model = config.resolve_model(Some(&present.name))?;
                elsewhere = false;
            }
            if mode.name == super::ORCHESTRATOR && self.resources.subtask_spawner.is_none() {
                note =
                    Some("this task has no subtasks: begin or resume it in this mode, or with --subtasks".to_owned());
            }
            let known = model.entry.as_ref().and_then(|entry| entry.context);
            let mode_config = ModeConfig {
                from_repository: foreign,
                model: model.id.clone(),
                prices: model.prices,
                window: config.limits.context_window.or(known),
                recovery: self.recovery.for_model(model.entry.as_ref()).resolve(),
                renders_template: model.renders_template(),
                tools: self.offered_tools(&mode)?,
                mode,
            };
            // Computed now for every mode, so that a switch in the middle of a turn cannot fail.
            let bounds = super::limit_to_mode(hidden.clone(), Some(&mode_config.mode))?;
            let name = model.name.clone();
            let provider = model.reached.provider.name.clone();
            let image_support = ImageSupport::for_model(&model);
            runtimes.push(ModeRuntime {
                config: mode_config,
                bounds,
                model: name,
                provider,
                other_server: elsewhere.then(|| Arc::new(model)),
                note,
                image_support,
            });
        }
        self.modes = self.build_modes(runtimes, begun.mode);
        Ok(self)
    }

    /// Shares the name of the current mode with its other holders, such as the spawner of subtasks.
    pub(crate) fn with_current_mode(mut self, now: CurrentMode) -> Self {
        self.modes.current_mode = now;
        self
    }

    /// Adds the modes to a replayed task, with the models of the recording.
    pub(crate) fn with_recorded_modes(
        mut self,
        config: &Config,
        begun: &str,
        model: &str,
        recorded: &BTreeMap<String, RecordedMode>,
    ) -> Result<Self, SessionError> {
        let mut runtimes = Vec::new();
        // Its patterns are compiled once: they are the same in every mode.
        let hidden = super::hidden_files(&self.rules, config)?;
        for (mode, foreign) in modes_with_origin(config, &self.workspace) {
            let usual = || RecordedMode {
                model: model.to_owned(),
                prices: self.prices,
                window: self.context.window,
            };
            let RecordedMode {
                model,
                prices,
                window,
            } = recorded.get(&mode.name).cloned().unwrap_or_else(usual);
            let bounds = super::limit_to_mode(hidden.clone(), Some(&mode))?;
            let name = model.clone();
            let tools = self.offered_tools(&mode)?;
            let mode_config = ModeConfig {
                mode,
                from_repository: foreign,
                model,
                prices,
                window,
                recovery: self.recovery.resolve(),
                renders_template: self.renders_template,
                tools,
            };
            runtimes.push(ModeRuntime {
                config: mode_config,
                bounds,
                model: name,
                provider: String::new(),
                other_server: None,
                note: None,
                image_support: ImageSupport::Supported,
            });
        }
        self.modes = self.build_modes(runtimes, begun);
        Ok(self)
    }

    fn build_modes(&self, runtimes: Vec<ModeRuntime>, begun: &str) -> SessionModes {
        let first = runtimes
            .iter()
            .find(|runtime| runtime.config.mode.name == begun);
        let words = first.map(|runtime| runtime.config.mode.prompt_text());
        let now = self
            .rules
            .mode()
            .map(|mode| mode.name.clone())
            .unwrap_or_default();
        SessionModes {
            prompt_text: words,
            runtimes,
            current_mode: Arc::new(Mutex::new(now)),
        }
    }

    fn offered_tools(&self, mode: &Mode) -> Result<sabir_call::ToolSet, SessionError> {
        let set = self
            .registry
            .offered_set(&|group| super::mode_offers(mode, group));
        set.map_err(|error| SessionError::internal(error.to_string()))
    }
}

impl ResolvedModel {
    /// Reports whether both models are on the same server. The provider's name decides about the key, so it must be equal too.
    fn shares_server(&self, other: &Self) -> bool {
        let place = |chosen: &Self| {
            let provider = &chosen.reached.provider;
            (
                provider.name.clone(),
                provider.wire,
                provider.base_url.clone(),
            )
        };
        place(self) == place(other)
    }
}

/// Returns all modes, each with a flag that is true for a mode of the repository.
fn modes_with_origin(config: &Config, workspace: &Workspace) -> Vec<(Mode, bool)> {
    let (all, _) = super::all_modes(config, workspace);
    all.into_iter()
        .map(|mode| (super::is_from_repository(&mode.name, config), mode))
        .map(|(foreign, mode)| (mode, foreign))
        .collect()
}

impl SessionModes {
    /// Returns the name of the current mode.
    pub(super) fn current_name(&self) -> String {
        mode_name(&self.current_mode)
    }

    pub(super) fn find_runtime(&self, name: &str) -> Option<&ModeRuntime> {
        self.runtimes
            .iter()
            .find(|runtime| runtime.config.mode.name == name)
    }
}
