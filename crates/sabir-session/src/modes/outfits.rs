//! What a task works with in each mode: its tools, its bounds, its model.
//!
//! A mode's own model is used by tasks that are begun in it and after a switch to it, unless `--model` says otherwise. A task is locked to
//! its protocol: a model that could only be asked in a dialect does not come into a native task. Then, and where a model
//! cannot be reached at all, the task goes on with the model that it was begun with, and the user is told why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::Outfit;
use sabir_call::{Prices, Protocol};
use sabir_policy::Mode;
use sabir_workspace::{Bounds, Workspace};
use serde::{Deserialize, Serialize};

use crate::config::{Chosen, Config};
use crate::error::SessionError;
use crate::locked;
use crate::setup::TaskSetup;
use crate::spec::SessionSpec;
use crate::telemetry::AskedModel;

/// How a task was begun, as far as its models depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun<'a> {
    /// The name of the mode.
    pub(crate) mode: &'a str,
    /// The model, as the user names it.
    pub(crate) model: &'a str,
    pub(crate) protocol: &'a Protocol,
}

/// What is recorded of a mode whose model is another than the task's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToldMode {
    model: String,
    #[serde(default)]
    prices: Prices,
    #[serde(default)]
    window: Option<u64>,
}

/// The name of the mode that holds, wherever it is looked at.
pub(crate) type Now = Arc<Mutex<String>>;

/// One that nobody has switched.
pub(crate) fn now(mode: &str) -> Now {
    Arc::new(Mutex::new(Mode::usual_name(mode).to_owned()))
}

/// What it says.
pub(crate) fn name(now: &Now) -> String {
    now.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The modes of a task.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// What the instructions say of the mode that the task was begun in; none: of the present one.
    pub(super) words: Option<String>,
    pub(super) stations: Vec<Station>,
    /// The name of the one that holds.
    pub(super) now: Now,
}

/// A mode with all that belongs to it.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) outfit: Outfit,
    pub(super) bounds: Bounds,
    /// The model, as the user names it, and who has it.
    pub(super) model: String,
    provider: String,
    /// The model, where it is on another server than the task's.
    pub(super) elsewhere: Option<Chosen>,
    /// Why its own model is not used.
    pub(super) note: Option<String>,
}

/// The model for a mode, and why it is not the mode's own where that cannot be used.
pub(crate) fn chosen(
    mode: &str,
    begun: Begun<'_>,
    config: &Config,
    options: &SessionSpec,
) -> Result<(Chosen, Option<String>), SessionError> {
    if let Some(model) = &options.model {
        return Ok((config.choose(Some(model))?, None));
    }
    let wanted = wanted(Mode::usual_name(mode), begun, config);
    if wanted != begun.model {
        let why = match config.choose(Some(wanted)) {
            Ok(chosen) => match locked_out(&chosen, begun.protocol)? {
                None => return Ok((chosen, None)),
                Some(why) => why,
            },
            Err(failure) => failure.to_string(),
        };
        let note = format!("its model {wanted} is not used, but {}: {why}", begun.model);
        return Ok((config.choose(Some(begun.model))?, Some(note)));
    }
    Ok((config.choose(Some(begun.model))?, None))
}

/// The name of the model that a mode wants.
fn wanted<'a>(mode: &str, begun: Begun<'a>, config: &'a Config) -> &'a str {
    if mode == begun.mode {
        return begun.model;
    }
    // The model of another mode is not that of all.
    let usual = config.model.as_deref().filter(|_| super::model_of(config, begun.mode) == Some(begun.model));
    super::model_of(config, mode).or(usual).unwrap_or(begun.model)
}

/// Why a model cannot be asked in a task of that protocol.
fn locked_out(chosen: &Chosen, protocol: &Protocol) -> Result<Option<String>, SessionError> {
    let own = locked::protocol(None, None, chosen)?;
    let out = *protocol == Protocol::Native && own != Protocol::Native;
    Ok(out.then(|| format!("it has to be asked in the dialect {}, and the task is locked to native calls", own.name())))
}

impl Modes {
    /// The names, for whoever asks for one.
    pub(crate) fn names(&self) -> Vec<String> {
        self.stations.iter().map(|station| station.outfit.mode.name.clone()).collect()
    }

    /// What the task may switch to.
    pub(crate) fn outfits(&self) -> Vec<Outfit> {
        self.stations.iter().map(|station| station.outfit.clone()).collect()
    }

    /// What the instructions say of the mode.
    pub(crate) fn words(&self) -> Option<&str> {
        self.words.as_deref()
    }

    /// Whom the modes ask.
    pub(crate) fn asked(&self) -> BTreeMap<String, AskedModel> {
        let asked = self.stations.iter().map(|station| {
            let (provider, model) = (station.provider.clone(), station.outfit.model.clone());
            (station.outfit.mode.name.clone(), AskedModel { provider, model })
        });
        asked.collect()
    }

    /// What a recording must hold of them, where that is their model.
    pub(crate) fn told(&self, model: &str) -> BTreeMap<String, ToldMode> {
        let other = self.stations.iter().filter(|station| station.outfit.model != model);
        let told = other.map(|Station { outfit: Outfit { mode, model, prices, window, .. }, .. }| {
            (mode.name.clone(), ToldMode { model: model.clone(), prices: *prices, window: *window })
        });
        told.collect()
    }
}

impl TaskSetup {
    /// Lets tasks on this bench switch modes. `present`: the model of the mode that they are in. `taped`: what is asked is recorded,
    /// and a recording holds one server.
    pub(crate) fn among(
        mut self,
        config: &Config,
        options: &SessionSpec,
        begun: Begun<'_>,
        present: &Chosen,
        taped: bool,
    ) -> Result<Self, SessionError> {
        let mut stations = Vec::new();
        for (mode, foreign) in all(config, &self.workspace) {
            let (mut model, mut note) = chosen(&mode.name, begun, config, options)?;
            let mut elsewhere = !present.shares_server(&model);
            if elsewhere && taped {
                note = Some(format!(
                    "its model {} is not used, but {}: a recording holds one server",
                    model.name, present.name
                ));
                model = config.choose(Some(&present.name))?;
                elsewhere = false;
            }
            if mode.name == super::ORCHESTRATOR && self.resources.household.is_none() {
                note =
                    Some("this task has no subtasks: begin or resume it in this mode, or with --subtasks".to_owned());
            }
            let known = model.entry.as_ref().and_then(|entry| entry.context);
            let outfit = Outfit {
                foreign,
                model: model.id.clone(),
                prices: model.prices,
                window: config.limits.context_window.or(known),
                tools: self.offer(&mode)?,
                mode,
            };
            let bounds = super::bounds_of(&self.rules.clone().within(outfit.mode.clone()), config)?;
            let (name, provider) = (model.name.clone(), model.reached.provider.name.clone());
            stations.push(Station {
                outfit,
                bounds,
                model: name,
                provider,
                elsewhere: elsewhere.then_some(model),
                note,
            });
        }
        self.modes = self.station(stations, begun.mode);
        Ok(self)
    }

    /// Has the name of the mode told there.
    pub(crate) fn in_mode(mut self, now: Now) -> Self {
        self.modes.now = now;
        self
    }

    /// The same for a replay, with the models of the recording.
    pub(crate) fn among_recorded(
        mut self,
        config: &Config,
        begun: &str,
        model: &str,
        told: &BTreeMap<String, ToldMode>,
    ) -> Result<Self, SessionError> {
        let mut stations = Vec::new();
        for (mode, foreign) in all(config, &self.workspace) {
            let usual = || ToldMode { model: model.to_owned(), prices: self.prices, window: self.context.window };
            let ToldMode { model, prices, window } = told.get(&mode.name).cloned().unwrap_or_else(usual);
            let bounds = super::bounds_of(&self.rules.clone().within(mode.clone()), config)?;
            let (name, tools) = (model.clone(), self.offer(&mode)?);
            let outfit = Outfit { mode, foreign, model, prices, window, tools };
            stations.push(Station {
                outfit,
                bounds,
                model: name,
                provider: String::new(),
                elsewhere: None,
                note: None,
            });
        }
        self.modes = self.station(stations, begun);
        Ok(self)
    }

    fn station(&self, stations: Vec<Station>, begun: &str) -> Modes {
        let first = stations.iter().find(|station| station.outfit.mode.name == begun);
        let words = first.map(|station| station.outfit.mode.words());
        let now = self.rules.mode().map(|mode| mode.name.clone()).unwrap_or_default();
        Modes { words, stations, now: Arc::new(Mutex::new(now)) }
    }

    fn offer(&self, mode: &Mode) -> Result<sabir_call::ToolSet, SessionError> {
        let set = self.registry.offer(&|name| super::offers(mode, name));
        set.map_err(|error| SessionError::internal(error.to_string()))
    }
}

impl Chosen {
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
fn all(config: &Config, workspace: &Workspace) -> Vec<(Mode, bool)> {
    let (all, _) = super::all(config, workspace);
    all.into_iter()
        .map(|mode| (super::is_foreign(&mode.name, config), mode))
        .map(|(foreign, mode)| (mode, foreign))
        .collect()
}

impl Modes {
    /// The name of the mode that holds.
    pub(super) fn name(&self) -> String {
        name(&self.now)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Station> {
        self.stations.iter().find(|station| station.outfit.mode.name == name)
    }
}
