//! Prompts of servers: texts that a user sends by typing their names.

use rmcp::model::{GetPromptResult, Prompt, Role};
use sabir_call::Image;

use crate::result_content::{ResultContent, one_line};

/// A prompt of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPrompt {
    /// The name of the server.
    pub server: String,
    /// The name of the prompt.
    pub name: String,
    /// The purpose, in one line.
    pub description: String,
    /// The arguments, in the order in which a user writes them.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// True if the prompt cannot do without it.
    pub is_required: bool,
}

/// The messages of a prompt, as one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptContent {
    /// The text.
    pub text: String,
    /// The images.
    pub images: Vec<Image>,
}

impl ServerPrompt {
    pub(crate) fn new(server: &str, prompt: &Prompt) -> Self {
        let arguments = prompt.arguments.iter().flatten();
        let description = prompt.description.as_deref().or(prompt.title.as_deref());
        Self {
            server: server.to_owned(),
            name: prompt.name.clone(),
            description: one_line(description.unwrap_or_default()),
            arguments: arguments
                .map(|argument| PromptArgument {
                    name: argument.name.clone(),
                    is_required: argument.required.unwrap_or(false),
                })
                .collect(),
        }
    }
}

/// Joins the messages of a prompt.
pub(crate) fn join_messages(result: &GetPromptResult) -> PromptContent {
    let mut content = ResultContent::default();
    // A prompt of several messages is a conversation, of which the model must know who says what.
    let names_roles = result
        .messages
        .iter()
        .any(|message| message.role != Role::User);
    for message in &result.messages {
        if names_roles {
            content.push_text(match message.role {
                Role::User => "User:",
                Role::Assistant => "Assistant:",
            });
        }
        content.push_block(&message.content);
    }
    let output = content.into_output(false);
    PromptContent {
        text: output.content,
        images: output.images,
    }
}
