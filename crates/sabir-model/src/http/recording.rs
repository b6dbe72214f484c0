//! Models on tape: recording one, and playing what was recorded.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use sabir_wire::Wire;
use serde_json::Value;

use super::HttpModel;
use crate::cassette::{Cassette, RecordedProvider};
use crate::catalogue::ModelCatalogue;
use crate::network::NetworkTransport;
use crate::provider::{Provider, plain_address};
use crate::recording::{CassetteRecorder, RecordingTransport};
use crate::redact::ProviderRedactor;
use crate::replay::CassettePlayer;
use crate::transport::Transport;

/// The output limit asked for when the request names none and the catalogue knows a higher one.
const MAX_DEFAULT_OUTPUT: u64 = 32_000;

/// What a request is made to fit: the output limit where it names none, and whether pictures are left out.
#[derive(Clone)]
pub(super) enum RequestLimits {
    /// What is known of its model.
    Catalogue(ModelCatalogue),
    /// What was recorded.
    Recorded {
        /// The output limit.
        limit: Option<u64>,
        /// Whether the model was known to read no pictures.
        blind: bool,
    },
}

impl HttpModel {
    /// A recorder of what this model is asked and answered, to be given to [`recorded_by`](Self::recorded_by). `model` is the
    /// model that will be asked, `task` whatever a replay needs to ask the same.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn recorder(&self, to: Box<dyn Write + Send>, model: &str, task: Value) -> io::Result<CassetteRecorder> {
        let provider = RecordedProvider {
            name: self.provider.name.clone(),
            wire: self.provider.wire.name().to_owned(),
            base_url: plain_address(&self.provider.base_url),
            form: self.provider.form.clone(),
            output: self.request_limits.output_limit(model),
            blind: self.request_limits.rejects_images(model),
            deadlines: self.deadlines,
            retries: self.retries,
        };
        CassetteRecorder::new(to, ProviderRedactor::new(&self.provider), provider, task)
    }

    /// Records from now on: to be called last. Models with other keys may share a recorder; none of their keys is recorded.
    #[must_use]
    pub fn recorded_by(mut self, recorder: &CassetteRecorder) -> Self {
        recorder.add_secrets(&ProviderRedactor::new(&self.provider));
        let network = Arc::new(NetworkTransport::new(&self.provider, self.deadlines.connect));
        self.transport =
            OnceLock::from(Arc::new(RecordingTransport::new(network, recorder.clone())) as Arc<dyn Transport>);
        self
    }

    /// A model that says what was recorded, to whoever asks what was recorded. Nothing is sent, and nothing waits.
    ///
    /// # Errors
    /// If the recorded wire is unknown; its name.
    pub fn from_cassette(cassette: &Cassette) -> Result<(Self, CassettePlayer), String> {
        let RecordedProvider { name, wire, base_url, form, output, blind, deadlines, retries } = &cassette.provider;
        let known = Wire::from_name(wire).ok_or_else(|| wire.clone())?;
        let mut provider = Provider::new(name, known, base_url, None);
        provider.form = form.clone();
        let player = CassettePlayer::new(cassette);
        let mut model = Self::new(provider).deadlines(*deadlines).retries(*retries);
        model.request_limits = RequestLimits::Recorded { limit: *output, blind: *blind };
        Ok((model.replayed_by(&player), player))
    }

    /// Another model like this one, which goes on where the player is.
    #[must_use]
    pub fn replayed_by(&self, player: &CassettePlayer) -> Self {
        let mut model = Self::new(self.provider.clone()).deadlines(self.deadlines).retries(self.retries);
        model.request_limits = self.request_limits.clone();
        model.transport = OnceLock::from(Arc::new(player.clone()) as Arc<dyn Transport>);
        model
    }
}

impl RequestLimits {
    /// The output limit to ask that model for.
    pub(super) fn output_limit(&self, model: &str) -> Option<u64> {
        match self {
            Self::Catalogue(catalogue) => {
                let limit = catalogue.find_model(model).and_then(|entry| entry.output);
                limit.map(|limit| limit.min(MAX_DEFAULT_OUTPUT))
            }
            Self::Recorded { limit, .. } => *limit,
        }
    }

    /// Whether that model is known to read no pictures.
    pub(super) fn rejects_images(&self, model: &str) -> bool {
        match self {
            Self::Catalogue(catalogue) => catalogue.find_model(model).and_then(|entry| entry.images) == Some(false),
            Self::Recorded { blind, .. } => *blind,
        }
    }
}
