//! Serves the fixtures that the server scenarios of the official MCP conformance suite call by name, over the same HTTP code as
//! `sabir mcp serve`: `cargo run -p sabir-mcp --example conformance_server 127.0.0.1:4849`. `crates/sabir-testkit/mcp/run` uses it.
#![allow(
    deprecated,
    reason = "scenarios of the older generation are about logging, sampling and subscriptions"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "it writes into JSON objects that it has just made"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, CreateMessageRequestParams, ElicitRequestParams, ErrorData,
    GetPromptRequestParams, GetPromptResponse, InputRequiredResult, InputResponses,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use sabir_mcp::{HttpServerLimits, HttpServerSettings, serve_over_http};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::broadcast;

const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// The key of the seals on states that go through the client.
const SEAL_KEY: &str = "a fixture has no secrets";

/// Tools without behaviour of their own: each name with its result.
fn fixed_results() -> BTreeMap<&'static str, Value> {
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let embedded = |uri: &str, media_type: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": text}});
    BTreeMap::from([
        (
            "test_simple_text",
            json!([{"type": "text", "text": "This is a simple text response for testing."}]),
        ),
        ("test_image_content", json!([image])),
        (
            "test_audio_content",
            json!([{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]),
        ),
        (
            "test_embedded_resource",
            json!([embedded(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )]),
        ),
        (
            "test_multiple_content_types",
            json!([
                {"type": "text", "text": "Multiple content types test:"},
                image,
                embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#)
            ]),
        ),
        (
            "test_logging_tool",
            json!([{"type": "text", "text": "nothing was logged: no level was asked for"}]),
        ),
        (
            "test_streaming_elicitation",
            json!([{"type": "text", "text": "done"}]),
        ),
        (
            "test_custom_headers",
            json!([{"type": "text", "text": "done"}]),
        ),
        (
            "json_schema_2020_12_tool",
            json!([{"type": "text", "text": "done"}]),
        ),
    ])
}

/// Tools with behaviour.
const TOOLS: [&str; 19] = [
    "test_tool_with_logging",
    "test_error_handling",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

/// Returns the schema of a tool's arguments.
fn input_schema(name: &str) -> Value {
    match name {
        "test_sampling" => {
            json!({"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]})
        }
        "test_elicitation" => {
            json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]})
        }
        "test_custom_headers" => {
            json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}, "required": ["region"]})
        }
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
            }},
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"}
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false
        }),
        _ => json!({"type": "object", "properties": {}}),
    }
}

/// A list that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedList {
    Tools,
    Prompts,
}

/// The server of the fixtures.
#[derive(Clone)]
struct FixtureServer {
    changes: broadcast::Sender<ChangedList>,
}

/// Reads a result from JSON of this file, and marks it as complete, as the newer generation wants.
fn complete_result<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    typed(value)
}

/// Reads a typed value from JSON of this file.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text_result(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A request for a form with one field, as an entry of `inputRequests`.
fn form_request(message: &str, field: &str, kind: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

/// A request for a message of the client's model, as an entry of `inputRequests`.
fn message_request(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
    json!({"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}})
}

/// A result that asks for input, with a sealed state or without one.
fn input_required(requests: Value, state: Option<&str>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({"resultType": "input_required", "inputRequests": requests});
    if let Some(state) = state {
        result["requestState"] = json!(format!("{state}.{}", seal_state(state)));
    }
    typed(result)
}

fn seal_state(state: &str) -> String {
    let digest = Sha256::digest(format!("{SEAL_KEY}/{state}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the state that the client sent back.
fn opened_state(sealed: Option<&str>) -> Result<Option<&str>, ErrorData> {
    let Some(sealed) = sealed else {
        return Ok(None);
    };
    match sealed.split_once('.') {
        Some((state, given)) if seal_state(state) == given => Ok(Some(state)),
        _ => Err(ErrorData::invalid_params(
            "the request state was changed",
            None,
        )),
    }
}

/// Runs a tool in which the client's input is part of a later call.
fn call_with_input(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let state = opened_state(request.request_state.as_deref())?;
    let empty = InputResponses::new();
    let input = request.input_responses.as_ref().unwrap_or(&empty);
    let answer = |key: &str, path: &str| input.get(key)?.pointer(path).cloned();
    let name = form_request("What is your name?", "name", "string");
    let roots = json!({"method": "roots/list", "params": {}});
    let suffix = request
        .name
        .trim_start_matches("test_input_required_result_");
    let response = match suffix {
        "elicitation" => match answer("user_name", "/content/name") {
            Some(Value::String(name)) => text_result(format!("Hello, {name}!")).into(),
            _ => input_required(json!({"user_name": name}), None)?.into(),
        },
        "sampling" => match answer("capital_question", "/content/text") {
            Some(Value::String(text)) => text_result(text).into(),
            _ => input_required(
                json!({"capital_question": message_request("What is the capital of France?")}),
                None,
            )?
            .into(),
        },
        "list_roots" => match answer("client_roots", "/roots") {
            Some(roots) => text_result(roots.to_string()).into(),
            None => input_required(json!({"client_roots": roots}), None)?.into(),
        },
        "request_state" | "tampered_state" => match (answer("confirm", ""), state) {
            (Some(_), Some("confirm")) => text_result("state-ok").into(),
            _ => input_required(
                json!({"confirm": form_request("Please confirm", "ok", "boolean")}),
                Some("confirm"),
            )?
            .into(),
        },
        "multiple_inputs" => {
            let keys = ["user_name", "greeting", "client_roots"];
            match keys.iter().all(|key| input.contains_key(*key)) && state == Some("all") {
                true => text_result("all inputs are there").into(),
                false => input_required(
                    json!({
                        "user_name": name,
                        "greeting": message_request("Generate a greeting"),
                        "client_roots": roots
                    }),
                    Some("all"),
                )?
                .into(),
            }
        }
        "multi_round" => match state {
            Some("round-2") if input.contains_key("step2") => text_result("both steps done").into(),
            Some("round-1") if input.contains_key("step1") => input_required(
                json!({"step2": form_request("Step 2: What is your favorite color?", "color", "string")}),
                Some("round-2"),
            )?
            .into(),
            _ => input_required(
                json!({"step1": form_request("Step 1: What is your name?", "name", "string")}),
                Some("round-1"),
            )?
            .into(),
        },
        "capabilities" => {
            let declared = context.client_capabilities().unwrap_or_default();
            let mut requests = json!({});
            if declared.elicitation.is_some() {
                requests["name"] = name;
            }
            if declared.sampling.is_some() {
                requests["greeting"] = message_request("Generate a greeting");
            }
            input_required(requests, None)?.into()
        }
        _ => return Err(ErrorData::invalid_params("there is no such tool", None)),
    };
    Ok(response)
}

/// Asks the client's user, and repeats the answer.
async fn elicit(
    context: &RequestContext<RoleServer>,
    message: &str,
    schema: Value,
) -> Result<CallToolResult, ErrorData> {
    let params: ElicitRequestParams =
        typed(json!({"mode": "form", "message": message, "requestedSchema": schema}))?;
    match context.peer.create_elicitation(params).await {
        Ok(answer) => Ok(text_result(format!(
            "User response: action={}, content={}",
            serde_json::to_value(&answer.action).unwrap_or_default(),
            answer.content.unwrap_or_default()
        ))),
        Err(error) => Ok(CallToolResult::error(vec![ContentBlock::text(
            error.to_string(),
        )])),
    }
}

impl FixtureServer {
    async fn call_fixture(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let pause = || tokio::time::sleep(Duration::from_millis(50));
        let arguments = request.arguments.clone().unwrap_or_default();
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or("");
        let result = match request.name.as_ref() {
            "test_tool_with_logging" => {
                for text in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    let message =
                        LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
                    let _ = context.peer.notify_logging_message(message).await;
                    pause().await;
                }
                text_result("logged")
            }
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let params = ProgressNotificationParam::new(token, progress);
                        let _ = context.peer.notify_progress(params.with_total(100.0)).await;
                    }
                    pause().await;
                }
                text_result("progressed")
            }
            "test_error_handling" => CallToolResult::error(vec![ContentBlock::text(
                "This tool intentionally returns an error for testing",
            )]),
            "test_sampling" => {
                let params: CreateMessageRequestParams = typed(
                    json!({"messages": [{"role": "user", "content": {"type": "text", "text": argument("prompt")}}], "maxTokens": 100}),
                )?;
                match context.peer.create_message(params).await {
                    Ok(answer) => {
                        let content = answer.message.content.first();
                        let text = content.and_then(|block| Some(block.as_text()?.text.clone()));
                        text_result(format!("LLM response: {}", text.unwrap_or_default()))
                    }
                    Err(error) => {
                        CallToolResult::error(vec![ContentBlock::text(error.to_string())])
                    }
                }
            }
            "test_elicitation" => {
                let field =
                    |description: &str| json!({"type": "string", "description": description});
                let schema = json!({
                    "type": "object",
                    "properties": {"username": field("User's response"), "email": field("User's email address")},
                    "required": ["username", "email"]
                });
                elicit(context, argument("message"), schema).await?
            }
            "test_elicitation_sep1034_defaults" => {
                let schema = json!({"type": "object", "properties": {
                    "name": {"type": "string", "default": "John Doe"},
                    "age": {"type": "integer", "default": 30},
                    "score": {"type": "number", "default": 95.5},
                    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                    "verified": {"type": "boolean", "default": true}
                }});
                elicit(context, "Please check these values", schema).await?
            }
            "test_elicitation_sep1330_enums" => {
                let titled = |word: &str| {
                    let option = |number: usize, name: &str| json!({"const": format!("value{number}"), "title": format!("{name} {word}")});
                    json!([option(1, "First"), option(2, "Second"), option(3, "Third")])
                };
                let options = json!(["option1", "option2", "option3"]);
                let schema = json!({"type": "object", "properties": {
                    "untitledSingle": {"type": "string", "enum": options},
                    "titledSingle": {"type": "string", "oneOf": titled("Option")},
                    "legacyEnum": {
                        "type": "string",
                        "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"]
                    },
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                    "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}}
                }});
                elicit(context, "Please choose", schema).await?
            }
            "test_reconnection" => {
                pause().await;
                text_result("reconnected")
            }
            "test_missing_capability" => {
                let declared = context.client_capabilities().unwrap_or_default();
                if declared.sampling.is_none() {
                    return Err(ErrorData::missing_required_client_capability(typed(
                        json!({"sampling": {}}),
                    )?));
                }
                text_result("the client has the capability")
            }
            "test_trigger_tool_change" => {
                let _ = self.changes.send(ChangedList::Tools);
                text_result("changed")
            }
            "test_trigger_prompt_change" => {
                let _ = self.changes.send(ChangedList::Prompts);
                text_result("changed")
            }
            name => match fixed_results().remove(name) {
                Some(content) => CallToolResult::success(typed(content)?),
                None => return call_with_input(&request, context),
            },
        };
        Ok(result.into())
    }
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_prompts()
                .enable_prompts_list_changed()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_completions()
                .enable_logging()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let fixed = fixed_results();
        let names = fixed.keys().copied().chain(TOOLS);
        Ok(ListToolsResult::with_all_items(
            names.filter_map(|name| self.get_tool(name)).collect(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let fixed = fixed_results();
        let mut names = fixed.keys().copied().chain(TOOLS);
        let name = names.find(|known| *known == name)?;
        let schema = input_schema(name).as_object()?.clone();
        Some(Tool::new(name, "A fixture.", schema))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call_fixture(request, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        complete_result(json!({"resources": [
            {"uri": "test://static-text", "name": "text", "description": "A text.", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "binary", "description": "An image.", "mimeType": "image/png"}
        ]}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        complete_result(json!({"resourceTemplates": [
            {"uriTemplate": "test://template/{id}/data", "name": "data", "description": "Data.", "mimeType": "application/json"}
        ]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let mut contents = match (uri, id) {
            ("test://static-text", _) => {
                json!({"mimeType": "text/plain", "text": "This is the content of the static text resource."})
            }
            ("test://static-binary", _) => json!({"mimeType": "image/png", "blob": IMAGE}),
            (_, Some(id)) => {
                let text =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"mimeType": "application/json", "text": text.to_string()})
            }
            _ => {
                let data = Some(json!({"uri": uri}));
                return Err(ErrorData::resource_not_found("Resource not found", data));
            }
        };
        contents["uri"] = json!(uri);
        let result: rmcp::model::ReadResourceResult =
            complete_result(json!({"contents": [contents]}))?;
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument =
            |name: &str| json!({"name": name, "description": "A test argument.", "required": true});
        complete_result(json!({"prompts": [
            {"name": "test_simple_prompt", "description": "A fixture."},
            {"name": "test_prompt_with_arguments", "description": "A fixture.", "arguments": [argument("arg1"), argument("arg2")]},
            {"name": "test_prompt_with_embedded_resource", "description": "A fixture.", "arguments": [argument("resourceUri")]},
            {"name": "test_prompt_with_image", "description": "A fixture."},
            {"name": "test_input_required_result_prompt", "description": "A fixture."}
        ]}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or("");
        let text = |text: &str| json!({"type": "text", "text": text});
        let contents = match request.name.as_str() {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => vec![text(&format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))],
            "test_prompt_with_embedded_resource" => vec![
                json!({"type": "resource", "resource": {
                    "uri": argument("resourceUri"),
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing."
                }}),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image" => vec![
                json!({"type": "image", "data": IMAGE, "mimeType": "image/png"}),
                text("Please analyze the image above."),
            ],
            "test_input_required_result_prompt" => {
                let given = request.input_responses.unwrap_or_default();
                let Some(context) = given
                    .get("user_context")
                    .and_then(|answer| answer.pointer("/content/context"))
                else {
                    let form =
                        form_request("What context should the prompt use?", "context", "string");
                    return Ok(input_required(json!({"user_context": form}), None)?.into());
                };
                vec![text(&format!("With the context {context}."))]
            }
            _ => return Err(ErrorData::invalid_params("there is no such prompt", None)),
        };
        let messages: Vec<_> = contents
            .into_iter()
            .map(|content| json!({"role": "user", "content": content}))
            .collect();
        let result: rmcp::model::GetPromptResult = complete_result(json!({"messages": messages}))?;
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let known = ["paris", "park", "party"];
        let values: Vec<_> = known
            .into_iter()
            .filter(|word| word.starts_with(&request.argument.value))
            .collect();
        complete_result(
            json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}),
        )
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    let _ = match change {
                        Ok(ChangedList::Tools) => context.sink().notify_tool_list_changed().await,
                        Ok(ChangedList::Prompts) => context.sink().notify_prompt_list_changed().await,
                        Err(_) => return Ok(()),
                    };
                }
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:4849");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let settings = HttpServerSettings {
        token: None,
        hosts: Vec::new(),
        limits: HttpServerLimits::default(),
    };
    let handler = FixtureServer {
        changes: broadcast::channel(16).0,
    };
    serve_over_http(listener, settings, handler, std::future::pending()).await?;
    Ok(())
}
