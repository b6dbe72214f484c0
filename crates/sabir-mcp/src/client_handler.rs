//! Handles the requests and notifications of a server: roots, questions to the user, progress,
//! messages, changed lists.

#![expect(
    deprecated,
    reason = "roots, sampling and logging are deprecated in the newest protocol, and most servers speak older ones"
)]

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    FormElicitationCapability, Implementation, ListRootsResult, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    ResourceUpdatedNotificationParam, Root, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::limits::MAX_LOG_NOTICES;
use crate::result_content::one_line;
use crate::servers::McpNotice;
use crate::watched_resources::WatchedResources;

/// The most bytes of the text of a message or a question.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// A question of a server to the user.
#[derive(Debug, Clone, PartialEq)]
pub struct ElicitationRequest {
    /// The server that asks.
    pub server: String,
    /// The question, without control characters.
    pub message: String,
    /// The form of the answer.
    pub form: ElicitationForm,
}

/// The form of the answer to a server's question.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationForm {
    /// An object that fits this JSON Schema, whose properties are plain values.
    Object(Value),
    /// A visit to an address, which Sabir never opens by itself. The answer is consent.
    Url {
        /// The address, in full.
        url: String,
        /// Its host, which the user should read first.
        host: String,
    },
}

/// The answer of the user to a server's question.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationAnswer {
    /// Consent, with the object for a form.
    Accept(Option<Value>),
    /// A refusal.
    Decline,
    /// No answer: nobody can be asked, or the user left the question open.
    Cancel,
}

/// Asks the user questions of servers.
pub trait UserElicitor: Send + Sync {
    /// Asks a question. Dropping the future withdraws it.
    fn elicit(
        &self,
        request: ElicitationRequest,
    ) -> Pin<Box<dyn Future<Output = ElicitationAnswer> + Send + '_>>;
}

/// The latest progress of each call, by its token.
type ProgressWatchers = HashMap<ProgressToken, watch::Sender<Option<ProgressNotificationParam>>>;

/// Creates the client's side of each attempt to connect to a server.
#[derive(Clone)]
pub(crate) struct ClientFactory {
    /// The server's name.
    pub(crate) server: String,
    /// The folder that the server may know.
    pub(crate) root: PathBuf,
    /// Asks the user; `None` where nobody can be asked.
    pub(crate) elicitor: Option<Arc<dyn UserElicitor>>,
    /// Receives notices for the user.
    pub(crate) notify: Arc<dyn Fn(McpNotice) + Send + Sync>,
}

/// The client's side of one connection.
pub(crate) struct SabirClient {
    /// The server's name.
    pub(crate) server: String,
    /// The folder that the server may know.
    pub(crate) root: PathBuf,
    /// Asks the user; `None` where nobody can be asked.
    pub(crate) elicitor: Option<Arc<dyn UserElicitor>>,
    /// Receives notices for the user.
    pub(crate) notify: Arc<dyn Fn(McpNotice) + Send + Sync>,
    /// Woken when a list of the server has changed.
    pub(crate) lists_changed: Arc<Notify>,
    /// The resources that the model has read.
    pub(crate) resources: Arc<WatchedResources>,
    watchers: Mutex<ProgressWatchers>,
    log_notices: AtomicUsize,
}

impl ClientFactory {
    /// Creates a client.
    pub(crate) fn create_client(&self) -> SabirClient {
        SabirClient {
            server: self.server.clone(),
            root: self.root.clone(),
            elicitor: self.elicitor.clone(),
            notify: Arc::clone(&self.notify),
            lists_changed: Arc::new(Notify::new()),
            resources: Arc::new(WatchedResources::new(
                &self.server,
                Arc::clone(&self.notify),
            )),
            watchers: Mutex::default(),
            log_notices: AtomicUsize::new(0),
        }
    }
}

impl SabirClient {
    /// Follows the progress of a call until the watcher is dropped. However many notifications come, only the latest is kept.
    pub(crate) fn watch_progress(
        &self,
        token: ProgressToken,
    ) -> watch::Receiver<Option<ProgressNotificationParam>> {
        let (sender, receiver) = watch::channel(None);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|_, sender| !sender.is_closed());
        watchers.insert(token, sender);
        receiver
    }

    /// Answers a question of the server, which may come as a request or as part of a result.
    pub(crate) async fn answer_elicitation(&self, request: ElicitRequestParams) -> ElicitResult {
        let Some(elicitor) = &self.elicitor else {
            return ElicitResult::new(ElicitationAction::Cancel);
        };
        let request = match request {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => {
                let schema = serde_json::to_value(&requested_schema).unwrap_or_default();
                (message, ElicitationForm::Object(schema))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                // Anything but a web address could start a program of the desktop.
                let Ok(parsed) = url::Url::parse(&url) else {
                    return ElicitResult::new(ElicitationAction::Decline);
                };
                if !matches!(parsed.scheme(), "http" | "https") {
                    return ElicitResult::new(ElicitationAction::Decline);
                }
                let host = parsed.host_str().unwrap_or_default().to_owned();
                let url = parsed.to_string();
                (message, ElicitationForm::Url { url, host })
            }
            _ => return ElicitResult::new(ElicitationAction::Decline),
        };
        let (message, form) = request;
        let answer = elicitor
            .elicit(ElicitationRequest {
                server: self.server.clone(),
                message: clean_message(&message),
                form,
            })
            .await;
        match answer {
            ElicitationAnswer::Accept(Some(content)) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(content)
            }
            ElicitationAnswer::Accept(None) => ElicitResult::new(ElicitationAction::Accept),
            ElicitationAnswer::Decline => ElicitResult::new(ElicitationAction::Decline),
            ElicitationAnswer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        }
    }

    /// Returns the roots: the folder of the task.
    pub(crate) fn roots(&self) -> ListRootsResult {
        let root = url::Url::from_file_path(&self.root)
            .map(|url| Root::new(url.to_string()))
            .ok();
        ListRootsResult::new(root.into_iter().collect())
    }
}

impl ClientHandler for SabirClient {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_roots();
        let capabilities = match self.elicitor {
            // Both ways are named: a capability without any means forms only.
            Some(_) => capabilities
                .enable_elicitation_with(
                    ElicitationCapability::new()
                        .with_form(FormElicitationCapability::new())
                        .with_url(UrlElicitationCapability::new()),
                )
                .build(),
            None => capabilities.build(),
        };
        ClientConfig::new(
            capabilities,
            Implementation::new("sabir", env!("CARGO_PKG_VERSION")),
        )
        // The newest version has no `initialize`; a server that speaks only that one is discovered.
        .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(self.roots())
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        // A server could otherwise spend the user's money and read what the model knows.
        Err(ErrorData::invalid_request("sampling is refused", None))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.answer_elicitation(request).await)
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = watchers.get(&progress.progress_token) {
            watcher.send_replace(Some(progress));
        }
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let is_worth_showing = matches!(
            message.level,
            LoggingLevel::Error
                | LoggingLevel::Critical
                | LoggingLevel::Alert
                | LoggingLevel::Emergency
        );
        if !is_worth_showing || self.log_notices.fetch_add(1, Ordering::Relaxed) >= MAX_LOG_NOTICES
        {
            return;
        }
        let text = match &message.data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (self.notify)(McpNotice {
            server: self.server.clone(),
            text: format!("it says: {}", one_line(&text)),
        });
    }

    async fn on_resource_updated(
        &self,
        update: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.resources.note_change(&update.uri);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.lists_changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.lists_changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.lists_changed.notify_one();
    }
}

/// Removes control characters and invisible ones from a message, and shortens it.
fn clean_message(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter(|&c| c == '\n' || !(c.is_control() || sabir_policy::is_deceptive_char(c)))
        .collect();
    crate::result_content::cut_text(plain.trim(), MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl UserElicitor for Nobody {
        fn elicit(
            &self,
            _: ElicitationRequest,
        ) -> Pin<Box<dyn Future<Output = ElicitationAnswer> + Send + '_>> {
            Box::pin(std::future::ready(ElicitationAnswer::Cancel))
        }
    }

    #[test]
    fn both_ways_to_ask_the_user_are_announced_where_one_can_be_asked() {
        let announced = |elicitor: Option<Arc<dyn UserElicitor>>| {
            let clients = ClientFactory {
                server: "s".to_owned(),
                root: PathBuf::from("/"),
                elicitor,
                notify: Arc::new(drop),
            };
            let info = clients.create_client().get_info();
            serde_json::to_value(info.capabilities).unwrap()["elicitation"].clone()
        };
        let both = serde_json::json!({"form": {}, "url": {}});
        assert_eq!(announced(Some(Arc::new(Nobody))), both);
        assert_eq!(announced(None), Value::Null);
    }
}
