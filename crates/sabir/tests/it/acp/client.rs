//! A client of the Agent Client Protocol for tests: it checks every message that it gets against the schema of the protocol.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use agent_client_protocol::v1::schema;
use jsonschema::Validator;
use sabir_testkit::ScriptedProvider;
use serde_json::{Value, json};

use crate::world::{Way, World, json_lines};

/// The time to wait for a message. Far more than needed on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `sabir acp` and its client.
pub(crate) struct AcpClient {
    pub(crate) child: Child,
    pub(crate) input: Option<ChildStdin>,
    lines: Receiver<Value>,
    next_id: i64,
    /// The methods of the requests that were sent.
    methods: HashMap<i64, String>,
    /// The responses that nobody has taken, by id.
    responses: HashMap<i64, Value>,
    /// The requests of Sabir that nobody has taken.
    pub(crate) requests: Vec<Value>,
    /// All updates so far: the session and the update.
    pub(crate) updates: Vec<(String, Value)>,
    /// Errors without an id.
    pub(crate) errors: Vec<Value>,
    /// The requests about terminals that nobody has taken.
    pub(crate) terminal_requests: Vec<Value>,
    /// The editor of the client, if it has one.
    pub(crate) buffers: Option<Buffers>,
}

/// The open files of an editor.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The texts, by the names of the files.
    pub(crate) texts: HashMap<String, String>,
    /// The methods and names that were asked for, in order.
    pub(crate) asked: Vec<(String, String)>,
    /// True if the editor takes requests and answers none.
    pub(crate) is_silent: bool,
    /// True if its answers do not fit the protocol.
    pub(crate) is_wrong: bool,
    /// The paths that were asked for, in order.
    pub(crate) paths: Vec<String>,
}

impl Buffers {
    pub(crate) fn with(texts: &[(&str, &str)]) -> Self {
        let texts = texts.iter();
        let texts = texts.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Self {
            texts: texts.collect(),
            ..Self::default()
        }
    }

    /// Answers a request as an editor does that saves what it is given; `None`: it does not answer.
    fn answer(&mut self, method: &str, params: &Value) -> Option<Result<Value, &'static str>> {
        let path = std::path::Path::new(params["path"].as_str().unwrap());
        assert!(path.is_absolute(), "{params}");
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        self.asked.push((method.to_owned(), name.clone()));
        self.paths.push(path.to_str().unwrap().to_owned());
        if self.is_wrong {
            return Some(Ok(json!({"content": 7})));
        }
        if self.is_silent {
            return None;
        }
        if method == "fs/read_text_file" {
            let text = self.texts.get(&name);
            return Some(text.map(|text| json!({"content": text})).ok_or("not open"));
        }
        let text = params["content"].as_str().unwrap();
        std::fs::write(path, text).unwrap();
        self.texts.insert(name, text.to_owned());
        Some(Ok(json!({})))
    }
}

impl AcpClient {
    /// Starts `sabir acp` with the provider's model in this protocol, and initializes the connection.
    pub(crate) fn start(world: &World, provider: &ScriptedProvider, way: Way) -> Self {
        let mut client = Self::spawn(world, provider, way, &[]);
        client.initialize(json!({}));
        client
    }

    /// Starts `sabir acp` with more arguments, and sends nothing.
    pub(crate) fn spawn(
        world: &World,
        provider: &ScriptedProvider,
        way: Way,
        arguments: &[&str],
    ) -> Self {
        let is_named = arguments.contains(&"--model");
        let model = (!is_named).then(|| ["--model", way.model()]);
        let mut child = world
            .sabir_with(provider)
            .args(["acp", "--protocol", way.protocol])
            .args(arguments)
            .args(model.into_iter().flatten())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = json_lines(child.stdout.take().unwrap());
        Self {
            input: child.stdin.take(),
            child,
            lines,
            next_id: 1,
            methods: HashMap::new(),
            responses: HashMap::new(),
            requests: Vec::new(),
            updates: Vec::new(),
            errors: Vec::new(),
            terminal_requests: Vec::new(),
            buffers: None,
        }
    }

    pub(crate) fn initialize(&mut self, capabilities: Value) -> Value {
        self.call(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": capabilities}),
        )
    }

    /// Opens a session in the workspace.
    pub(crate) fn new_session(&mut self, world: &World) -> String {
        let opened = self.call(
            "session/new",
            json!({"cwd": world.work.path(), "mcpServers": []}),
        );
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> i64 {
        self.send(
            "session/prompt",
            json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}),
        )
    }

    /// Sends a prompt, waits for its end and returns the stop reason.
    pub(crate) fn finish_prompt(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        self.stop_reason(id)
    }

    pub(crate) fn stop_reason(&mut self, id: i64) -> String {
        let response = self.response(id);
        let stop = response["result"]["stopReason"].as_str();
        stop.unwrap_or_else(|| panic!("{response}")).to_owned()
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.methods.insert(id, method.to_owned());
        self.write(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Sends a request and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let response = self.response(id);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// Sends a request that fails, and returns the code of the error.
    pub(crate) fn failure(&mut self, method: &str, params: Value) -> i64 {
        let id = self.send(method, params);
        let response = self.response(id);
        let code = response["error"]["code"].as_i64();
        code.unwrap_or_else(|| panic!("{method}: {response}"))
    }

    /// Waits for the response to a request.
    pub(crate) fn response(&mut self, id: i64) -> Value {
        loop {
            if let Some(response) = self.responses.remove(&id) {
                return response;
            }
            self.receive();
        }
    }

    /// Waits for a permission request.
    pub(crate) fn permission(&mut self) -> Value {
        loop {
            if !self.requests.is_empty() {
                return self.requests.remove(0);
            }
            self.receive();
        }
    }

    /// Waits for a request of this method about a terminal.
    pub(crate) fn terminal_request(&mut self, method: &str) -> Value {
        loop {
            if !self.terminal_requests.is_empty() {
                let request = self.terminal_requests.remove(0);
                assert_eq!(request["method"], method, "{request}");
                return request;
            }
            self.receive();
        }
    }

    /// Answers a request with an error.
    pub(crate) fn refuse(&mut self, request: &Value, words: &str) {
        let error = json!({"code": -32603, "message": words});
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
        self.write(&answer.to_string());
    }

    /// Waits for a permission request, or for the end of a prompt.
    pub(crate) fn permission_or_end(&mut self, prompt: i64) -> Option<Value> {
        loop {
            if !self.requests.is_empty() {
                return Some(self.requests.remove(0));
            }
            if self.responses.remove(&prompt).is_some() {
                return None;
            }
            self.receive();
        }
    }

    /// Waits for an error without an id.
    pub(crate) fn error(&mut self) -> Value {
        loop {
            if !self.errors.is_empty() {
                return self.errors.remove(0);
            }
            self.receive();
        }
    }

    /// Answers a permission request.
    pub(crate) fn answer(&mut self, request: &Value, option: &str) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.respond(request, outcome);
    }

    pub(crate) fn respond(&mut self, request: &Value, result: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string());
    }

    /// Waits until an update of this kind has come, and returns the last one.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            if let Some(found) = self.of_kind(kind).last() {
                return found.clone();
            }
            self.receive();
        }
    }

    /// The updates of a kind so far.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<Value> {
        let all = self.updates.iter().map(|(_, update)| update);
        all.filter(|update| update["sessionUpdate"] == kind)
            .cloned()
            .collect()
    }

    /// The text of all chunks of a kind so far.
    pub(crate) fn text(&self, kind: &str) -> String {
        let chunks = self.of_kind(kind);
        let texts = chunks
            .iter()
            .map(|chunk| chunk["content"]["text"].as_str().unwrap());
        texts.collect()
    }

    /// Ends the input and waits for the end of the process.
    pub(crate) fn close(mut self) -> i32 {
        self.input = None;
        let status = self.child.wait().unwrap();
        status.code().unwrap_or(-1)
    }

    /// Receives and checks one message.
    fn receive(&mut self) {
        let message = self
            .lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no message: {error}; {:?}", self.updates.last()));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let id = message.get("id");
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            if id.is_none_or(Value::is_null) {
                self.errors.push(message);
                return;
            }
            let id = id.and_then(Value::as_i64).unwrap();
            let method = self.methods.remove(&id);
            let method = method.unwrap_or_else(|| panic!("not asked: {message}"));
            match message.get("result") {
                Some(result) => check(&method, result),
                None => check("error", &message["error"]),
            }
            self.responses.insert(id, message);
            return;
        };
        check(method, &message["params"]);
        match method {
            "session/update" => self.updates.push((
                message["params"]["sessionId"].as_str().unwrap().to_owned(),
                message["params"]["update"].clone(),
            )),
            "session/request_permission" | "elicitation/create" => self.requests.push(message),
            method if method.starts_with("terminal/") => self.terminal_requests.push(message),
            "fs/read_text_file" | "fs/write_text_file" => {
                let buffers = self.buffers.as_mut().expect("there is no editor");
                match buffers.answer(method, &message["params"]) {
                    Some(Ok(result)) => self.respond(&message, result),
                    Some(Err(words)) => self.refuse(&message, words),
                    None => {}
                }
            }
            "$/cancel_request" => {
                let withdrawn = &message["params"]["requestId"];
                self.requests.retain(|request| request["id"] != *withdrawn);
            }
            other => panic!("{other} was not offered"),
        }
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // A failed test must leave no process.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Checks what Sabir sends: the parameters of its own messages, and the results of the client's requests.
fn check(method: &str, value: &Value) {
    static SCHEMAS: OnceLock<HashMap<&'static str, Validator>> = OnceLock::new();
    /// The schema of a type of the protocol.
    macro_rules! of_type {
        ($name:ident) => {{
            let schema = schemars::schema_for!(schema::$name).to_value();
            jsonschema::validator_for(&schema).unwrap()
        }};
    }
    let schemas = SCHEMAS.get_or_init(|| {
        HashMap::from([
            ("initialize", of_type!(InitializeResponse)),
            ("authenticate", of_type!(AuthenticateResponse)),
            ("session/new", of_type!(NewSessionResponse)),
            ("session/load", of_type!(LoadSessionResponse)),
            ("session/resume", of_type!(ResumeSessionResponse)),
            ("session/fork", of_type!(ForkSessionResponse)),
            ("session/list", of_type!(ListSessionsResponse)),
            ("session/close", of_type!(CloseSessionResponse)),
            ("session/prompt", of_type!(PromptResponse)),
            ("session/set_mode", of_type!(SetSessionModeResponse)),
            (
                "session/set_config_option",
                of_type!(SetSessionConfigOptionResponse),
            ),
            ("session/update", of_type!(SessionNotification)),
            (
                "session/request_permission",
                of_type!(RequestPermissionRequest),
            ),
            ("fs/read_text_file", of_type!(ReadTextFileRequest)),
            ("fs/write_text_file", of_type!(WriteTextFileRequest)),
            ("elicitation/create", of_type!(CreateElicitationRequest)),
            ("terminal/create", of_type!(CreateTerminalRequest)),
            ("terminal/output", of_type!(TerminalOutputRequest)),
            (
                "terminal/wait_for_exit",
                of_type!(WaitForTerminalExitRequest),
            ),
            ("terminal/kill", of_type!(KillTerminalRequest)),
            ("terminal/release", of_type!(ReleaseTerminalRequest)),
            ("$/cancel_request", of_type!(CancelRequestNotification)),
            ("error", of_type!(Error)),
        ])
    });
    let schema = schemas
        .get(method)
        .unwrap_or_else(|| panic!("no schema for {method}"));
    let faults: Vec<_> = schema
        .iter_errors(value)
        .map(|fault| fault.to_string())
        .collect();
    assert!(faults.is_empty(), "{method}: {faults:?}\n{value}");
}
