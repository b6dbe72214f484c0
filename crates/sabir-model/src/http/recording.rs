//! Makes models that record their traffic, and models that replay a recording.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use sabir_call::CallReader;
use sabir_wire::Wire;
use serde_json::Value;

use super::HttpModel;
use crate::cassette::{Cassette, RecordedProvider};
use crate::catalogue::ModelCatalogue;
use crate::network::NetworkTransport;
use crate::provider::{Provider, strip_url_secrets};
use crate::recording::{CassetteRecorder, RecordingTransport};
use crate::redact::ProviderRedactor;
use crate::replay::CassettePlayer;
use crate::transport::Transport;

/// The output limit in tokens if the request names none and the catalogue has a higher one.
const MAX_DEFAULT_OUTPUT: u64 = 32_000;

/// The limits to which a request is adapted: the default output limit, and whether images are
/// removed.
#[derive(Clone)]
pub(super) enum RequestLimits {
    /// The limits of the model's catalogue entry.
    Catalogue(ModelCatalogue),
    /// The limits at the time of the recording.
    Recorded {
        /// The output limit.
        limit: Option<u64>,
        /// True if the catalogue said that the model reads no images.
        blind: bool,
        /// The end of the prompt that the answers continued.
        prefill: String,
        /// True if a last call without its closing markup was accepted.
        closes_last_call: bool,
    },
}

/// The name of a wire that this version does not know. The `Display` text is the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownWire(String);

impl HttpModel {
    /// Makes a recorder for this model's traffic, to pass to [`recorded_by`](Self::recorded_by).
    ///
    /// `model` is the name of the model in the requests, `task` any data that a replay needs to
    /// make the same requests.
    ///
    /// # Errors
    /// The I/O error if the first line cannot be written.
    pub fn recorder(
        &self,
        to: Box<dyn Write + Send>,
        model: &str,
        task: Value,
    ) -> io::Result<CassetteRecorder> {
        let provider = RecordedProvider {
            name: self.provider.name.clone(),
            wire: self.provider.wire.name().to_owned(),
            base_url: strip_url_secrets(&self.provider.base_url),
            form: self.provider.form.clone(),
            output: self.request_limits.output_limit(&self.provider.name, model),
            blind: self
                .request_limits
                .rejects_images(&self.provider.name, model),
            prefill: self.request_limits.prefill(&self.provider.name, model),
            closes_last_call: self
                .request_limits
                .closes_last_call(&self.provider.name, model),
            deadlines: self.deadlines,
            retries: self.retries,
        };
        CassetteRecorder::new(to, ProviderRedactor::new(&self.provider), provider, task)
    }

    /// Records all traffic from now on; call it last. Models with different keys may share a
    /// recorder, and none of the keys is recorded.
    #[must_use]
    pub fn recorded_by(mut self, recorder: &CassetteRecorder) -> Self {
        // Added before the first request, so that no key is written even once.
        recorder.add_secrets(&ProviderRedactor::new(&self.provider));
        let network = Arc::new(NetworkTransport::new(
            &self.provider,
            self.deadlines.connect,
        ));
        self.transport = OnceLock::from(
            Arc::new(RecordingTransport::new(network, recorder.clone())) as Arc<dyn Transport>,
        );
        self
    }

    /// Makes a model that answers the recorded requests with the recorded responses, without
    /// network or waiting.
    ///
    /// # Errors
    /// [`UnknownWire`] if the cassette was recorded on a wire that this version does not know.
    pub fn from_cassette(cassette: &Cassette) -> Result<(Self, CassettePlayer), UnknownWire> {
        let RecordedProvider {
            name,
            wire,
            base_url,
            form,
            output,
            blind,
            prefill,
            closes_last_call,
            deadlines,
            retries,
        } = &cassette.provider;
        let known = Wire::from_name(wire).ok_or_else(|| UnknownWire(wire.clone()))?;
        let mut provider = Provider::new(name, known, base_url, None);
        provider.form = form.clone();
        // The model of a replay has no key: nothing is sent.
        let player = CassettePlayer::new(cassette);
        let mut model = Self::new(provider).deadlines(*deadlines).retries(*retries);
        model.request_limits = RequestLimits::Recorded {
            limit: *output,
            blind: *blind,
            prefill: prefill.clone(),
            closes_last_call: *closes_last_call,
        };
        Ok((model.replayed_by(&player), player))
    }

    /// Makes another model like this one, which continues at the player's position.
    #[must_use]
    pub fn replayed_by(&self, player: &CassettePlayer) -> Self {
        let mut model = Self::new(self.provider.clone())
            .deadlines(self.deadlines)
            .retries(self.retries);
        model.request_limits = self.request_limits.clone();
        model.transport = OnceLock::from(Arc::new(player.clone()) as Arc<dyn Transport>);
        model
    }
}

impl RequestLimits {
    /// Returns the output limit in tokens to request from that model.
    pub(super) fn output_limit(&self, provider: &str, model: &str) -> Option<u64> {
        match self {
            Self::Catalogue(catalogue) => {
                let limit = catalogue
                    .find_model(provider, model)
                    .and_then(|entry| entry.output);
                // Some providers reserve the whole limit against the rate limit or the context.
                limit.map(|limit| limit.min(MAX_DEFAULT_OUTPUT))
            }
            Self::Recorded { limit, .. } => *limit,
        }
    }

    /// Returns the end of the prompt that the answers of that model continue.
    pub(super) fn prefill(&self, provider: &str, model: &str) -> String {
        match self {
            Self::Catalogue(catalogue) => {
                let entry = catalogue.find_model(provider, model);
                entry.and_then(|entry| entry.prefill).unwrap_or_default()
            }
            Self::Recorded { prefill, .. } => prefill.clone(),
        }
    }

    /// Returns true if the last call of that model is accepted without its closing markup.
    pub(super) fn closes_last_call(&self, provider: &str, model: &str) -> bool {
        match self {
            Self::Catalogue(catalogue) => {
                let entry = catalogue.find_model(provider, model);
                let names = entry.and_then(|entry| entry.repairs_on);
                names.is_some_and(|names| {
                    names
                        .iter()
                        .any(|name| name == CallReader::MISSING_LAST_CLOSE)
                })
            }
            Self::Recorded {
                closes_last_call, ..
            } => *closes_last_call,
        }
    }

    /// Returns true if that model is known to read no images.
    pub(super) fn rejects_images(&self, provider: &str, model: &str) -> bool {
        match self {
            Self::Catalogue(catalogue) => {
                catalogue
                    .find_model(provider, model)
                    .and_then(|entry| entry.images)
                    == Some(false)
            }
            Self::Recorded { blind, .. } => *blind,
        }
    }
}
