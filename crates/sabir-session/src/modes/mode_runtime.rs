//! What a task works with in each mode: its tools, its bounds, its model.
//!
//! A mode's own model is used by tasks that are begun in it and after a switch to it, unless `--model` says otherwise. A task is locked to
//! its protocol: a model that could only be asked in a dialect does not come into a native task. Then, and where a model
//! cannot be reached at all, the task goes on with the model that it was begun with, and the user is told why.

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
use crate::locked;
use crate::setup::TaskSetup;
use crate::spec::SessionSpec;
use crate::telemetry::AskedModel;

/// How a task was begun, as far as its models depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitialMode<'a> {
    /// The name of the mode.
    pub(crate) mode: &'a str,
    /// The model, as the user names it.
    pub(crate) model: &'a str,
    pub(crate) protocol: &'a ToolProtocol,
}

/// What is recorded of a mode whose model is another than the task's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedMode {
    model: String,
    #[serde(default)]
    prices: TokenPrices,
    #[serde(default)]
    window: Option<u64>,
}

/// The name of the mode that holds, wherever it is looked at.
pub(crate) type CurrentMode = Arc<Mutex<String>>;

/// One that nobody has switched.
pub(crate) fn shared_mode(mode: &str) -> CurrentMode {
    Arc::new(Mutex::new(Mode::canonical_name(mode).to_owned()))
}

/// What it says.
pub(crate) fn mode_name(now: &CurrentMode) -> String {
    now.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The modes of a task. Clones share the present mode.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionModes {
    /// What the instructions say of the mode that the task was begun in; none: of the present one.
    pub(super) prompt_text: Option<String>,
    pub(super) runtimes: Vec<ModeRuntime>,
    /// The name of the one that holds.
    pub(super) current_mode: CurrentMode,
}

/// A mode with all that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct ModeRuntime {
    pub(super) config: ModeConfig,
    pub(super) bounds: Bounds,
    /// The model, as the user names it, and who has it.
    pub(super) model: String,
    provider: String,
    /// The model, where it is on another server than the task's.
    pub(super) other_server: Option<Arc<ResolvedModel>>,
    /// Why its own model is not used.
    pub(super) note: Option<String>,
}

/// The model for a mode, and why it is not the mode's own where that cannot be used.
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

/// The name of the model that a mode wants.
fn wanted_model<'a>(mode: &str, begun: InitialMode<'a>, config: &'a Config) -> &'a str {
    if mode == begun.mode {
        return begun.model;
    }
    // The model of another mode is not that of all.
    let usual = config.model.as_deref().filter(|_| super::model_of(config, begun.mode) == Some(begun.model));
    super::model_of(config, mode).or(usual).unwrap_or(begun.model)
}

/// Why a model cannot be asked in a task of that protocol.
fn protocol_conflict(
    dialects: &DialectSet,
    chosen: &ResolvedModel,
    protocol: &ToolProtocol,
) -> Result<Option<String>, SessionError> {
    let own = locked::task_protocol(dialects, None, None, chosen)?;
    let out = *protocol == ToolProtocol::Native && own != ToolProtocol::Native;
    Ok(out.then(|| format!("it has to be asked in the dialect {}, and the task is locked to native calls", own.name())))
}

impl SessionModes {
    /// The names, for whoever asks for one.
    pub(crate) fn mode_names(&self) -> Vec<String> {
        self.runtimes.iter().map(|station| station.config.mode.name.clone()).collect()
    }

    /// What the task may switch to.
    pub(crate) fn mode_configs(&self) -> Vec<ModeConfig> {
        self.runtimes.iter().map(|station| station.config.clone()).collect()
    }

    /// What the instructions say of the mode.
    pub(crate) fn mode_prompt(&self) -> Option<&str> {
        self.prompt_text.as_deref()
    }

    /// Whom the modes ask.
    pub(crate) fn asked_models(&self) -> BTreeMap<String, AskedModel> {
        let asked = self.runtimes.iter().map(|station| {
            let (provider, model) = (station.provider.clone(), station.config.model.clone());
            (station.config.mode.name.clone(), AskedModel { provider, model })
        });
        asked.collect()
    }

    /// What a recording must hold of them, where that is their model.
    pub(crate) fn recorded_modes(&self, model: &str) -> BTreeMap<String, RecordedMode> {
        let other = self.runtimes.iter().filter(|station| station.config.model != model);
        let told = other.map(|ModeRuntime { config: ModeConfig { mode, model, prices, window, .. }, .. }| {
            (mode.name.clone(), RecordedMode { model: model.clone(), prices: *prices, window: *window })
        });
        told.collect()
    }
}

impl TaskSetup {
    /// Lets tasks on this bench switch modes. `present`: the model of the mode that they are in. `taped`: what is asked is recorded,
    /// and a recording holds one server.
    pub(crate) fn with_modes(
        mut self,
        config: &Config,
        options: &SessionSpec,
        begun: InitialMode<'_>,
        present: &ResolvedModel,
        taped: bool,
    ) -> Result<Self, SessionError> {
        let mut stations = Vec::new();
        for (mode, foreign) in modes_with_origin(config, &self.workspace) {
            let (mut model, mut note) = resolve_mode_model(&mode.name, begun, config, options)?;
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
            let outfit = ModeConfig {
                from_repository: foreign,
                model: model.id.clone(),
                prices: model.prices,
                window: config.limits.context_window.or(known),
                tools: self.offered_tools(&mode)?,
                mode,
            };
            let bounds = super::bounds_of(&self.rules.clone().with_mode(outfit.mode.clone()), config)?;
            let (name, provider) = (model.name.clone(), model.reached.provider.name.clone());
            stations.push(ModeRuntime {
                config: outfit,
                bounds,
                model: name,
                provider,
                other_server: elsewhere.then(|| Arc::new(model)),
                note,
            });
        }
        self.modes = self.build_modes(stations, begun.mode);
        Ok(self)
    }

    /// Has the name of the mode told there.
    pub(crate) fn with_current_mode(mut self, now: CurrentMode) -> Self {
        self.modes.current_mode = now;
        self
    }

    /// The same for a replay, with the models of the recording.
    pub(crate) fn with_recorded_modes(
        mut self,
        config: &Config,
        begun: &str,
        model: &str,
        told: &BTreeMap<String, RecordedMode>,
    ) -> Result<Self, SessionError> {
        let mut stations = Vec::new();
        for (mode, foreign) in modes_with_origin(config, &self.workspace) {
            let usual = || RecordedMode { model: model.to_owned(), prices: self.prices, window: self.context.window };
            let RecordedMode { model, prices, window } = told.get(&mode.name).cloned().unwrap_or_else(usual);
            let bounds = super::bounds_of(&self.rules.clone().with_mode(mode.clone()), config)?;
            let (name, tools) = (model.clone(), self.offered_tools(&mode)?);
            let outfit = ModeConfig { mode, from_repository: foreign, model, prices, window, tools };
            stations.push(ModeRuntime {
                config: outfit,
                bounds,
                model: name,
                provider: String::new(),
                other_server: None,
                note: None,
            });
        }
        self.modes = self.build_modes(stations, begun);
        Ok(self)
    }

    fn build_modes(&self, stations: Vec<ModeRuntime>, begun: &str) -> SessionModes {
        let first = stations.iter().find(|station| station.config.mode.name == begun);
        let words = first.map(|station| station.config.mode.prompt_text());
        let now = self.rules.mode().map(|mode| mode.name.clone()).unwrap_or_default();
        SessionModes { prompt_text: words, runtimes: stations, current_mode: Arc::new(Mutex::new(now)) }
    }

    fn offered_tools(&self, mode: &Mode) -> Result<sabir_call::ToolSet, SessionError> {
        let set = self.registry.offered_set(&|group| super::mode_offers(mode, group));
        set.map_err(|error| SessionError::internal(error.to_string()))
    }
}

impl ResolvedModel {
    /// Whether both are asked at the same place with the same key.
    fn shares_server(&self, other: &Self) -> bool {
        let place = |chosen: &Self| {
            let provider = &chosen.reached.provider;
            (provider.name.clone(), provider.wire, provider.base_url.clone())
        };
        place(self) == place(other)
    }
}

/// All modes, each with whether it is the folder's.
fn modes_with_origin(config: &Config, workspace: &Workspace) -> Vec<(Mode, bool)> {
    let (all, _) = super::all_modes(config, workspace);
    all.into_iter()
        .map(|mode| (super::is_from_repository(&mode.name, config), mode))
        .map(|(foreign, mode)| (mode, foreign))
        .collect()
}

impl SessionModes {
    /// The name of the mode that holds.
    pub(super) fn current_name(&self) -> String {
        mode_name(&self.current_mode)
    }

    pub(super) fn find_runtime(&self, name: &str) -> Option<&ModeRuntime> {
        self.runtimes.iter().find(|station| station.config.mode.name == name)
    }
}
