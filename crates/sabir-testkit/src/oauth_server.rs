//! An MCP server on this machine that asks for a login, and the authorization server that it trusts.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// A mistake that the authorization server makes on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoginForgery {
    /// None.
    #[default]
    None,
    /// The browser comes back with another state, as if another program had sent it.
    State,
    /// The browser comes back in the name of another authorization server.
    Issuer,
    /// The user refuses.
    Refusal,
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct OAuthRequest {
    /// The method and path, without the query.
    pub line: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The fields of the query, or of the form in the body.
    pub fields: BTreeMap<String, String>,
}

/// An MCP server with a login. All of it is at one address; the MCP server is at `/mcp`, its tools are `echo`, `show_headers`,
/// `revoke`, which makes all tokens worthless, and `admin`, which needs the scope `admin`.
#[derive(Debug)]
pub struct OAuthServer {
    address: SocketAddr,
    state: Arc<Mutex<OAuthState>>,
    stopped: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct OAuthState {
    forgery: LoginForgery,
    token_seconds: Option<u64>,
    /// True if the list of tools repeats the token of the request.
    repeats_tokens: bool,
    /// The scopes of each valid token.
    access_tokens: BTreeMap<String, String>,
    refresh_tokens: BTreeMap<String, String>,
    /// The scopes of each code that was not exchanged.
    codes: BTreeMap<String, String>,
    issued: usize,
    requests: Vec<OAuthRequest>,
}

/// An answer of the server.
struct Answer {
    status: &'static str,
    header: Option<String>,
    body: String,
}

impl OAuthServer {
    /// Starts the server on a free port of the loopback interface.
    ///
    /// # Errors
    /// No port is available.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(OAuthState::default()));
        let stopped = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&state);
        let ended = Arc::clone(&stopped);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || _ = serve(&stream, address, &shared));
            }
        });
        Ok(Self {
            address,
            state,
            stopped,
        })
    }

    /// Returns the address of the MCP server.
    pub fn mcp_url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Makes the authorization server misbehave from now on.
    pub fn forge(&self, forgery: LoginForgery) {
        self.lock().forgery = forgery;
    }

    /// Sets the seconds after which tokens expire; they do not by default.
    pub fn expire_tokens_after(&self, seconds: u64) {
        self.lock().token_seconds = Some(seconds);
    }

    /// Repeats the token of a request in the name of a tool, and in the description of the tool `hint`, from now on.
    pub fn repeat_tokens(&self) {
        self.lock().repeats_tokens = true;
    }

    /// Returns true if no token that was handed out is valid.
    pub fn has_no_tokens(&self) -> bool {
        let state = self.lock();
        state.access_tokens.is_empty() && state.refresh_tokens.is_empty()
    }

    /// Makes the tokens that were handed out so far worthless; refresh tokens stay valid.
    pub fn revoke_access_tokens(&self) {
        self.lock().access_tokens.clear();
    }

    /// Makes everything that was handed out so far worthless.
    pub fn revoke_all(&self) {
        let mut state = self.lock();
        state.access_tokens.clear();
        state.refresh_tokens.clear();
    }

    /// Returns every secret that was handed out so far: tokens, refresh tokens and codes begin like this.
    pub fn secret_prefixes() -> [&'static str; 3] {
        ["access-secret-", "refresh-secret-", "code-secret-"]
    }

    /// Returns the requests so far whose method and path are this.
    pub fn requests(&self, line: &str) -> Vec<OAuthRequest> {
        let state = self.lock();
        let requests = state.requests.iter();
        requests
            .filter(|request| request.line == line)
            .cloned()
            .collect()
    }

    /// Opens a page as a browser does, follows its redirect, and returns the text of the last page.
    ///
    /// # Errors
    /// A server does not answer.
    pub fn browse(page: &str) -> io::Result<String> {
        let first = get(page)?;
        let location = first
            .lines()
            .find_map(|line| line.strip_prefix("location: "));
        match location {
            Some(next) => get(next.trim()),
            None => Ok(first),
        }
    }

    /// Returns the address that a browser is sent to by a page, without going there.
    ///
    /// # Errors
    /// The server does not answer, or with no redirect.
    pub fn redirect_of(page: &str) -> io::Result<String> {
        let first = get(page)?;
        let location = first
            .lines()
            .find_map(|line| line.strip_prefix("location: "));
        location
            .map(|text| text.trim().to_owned())
            .ok_or_else(|| io::Error::other("the page has no redirect"))
    }

    fn lock(&self) -> MutexGuard<'_, OAuthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OAuthServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // An own connection wakes the listener, which then sees the flag.
        _ = TcpStream::connect(self.address);
    }
}

/// Makes a GET request and returns the whole answer.
fn get(url: &str) -> io::Result<String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| io::Error::other("no plain address"))?;
    let at = rest.find('/').unwrap_or(rest.len());
    let host = rest.get(..at).unwrap_or_default();
    let path = rest.get(at..).unwrap_or_default();
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Answers the requests of a connection.
fn serve(stream: &TcpStream, address: SocketAddr, state: &Mutex<OAuthState>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let length = header("content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let first = head.lines().next().unwrap_or_default();
        let mut words = first.split(' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let form = match method {
            "POST" if !body.starts_with('{') => body.as_str(),
            _ => query,
        };
        let request = OAuthRequest {
            line: format!("{method} {path}"),
            authorization: header("authorization"),
            fields: parse_form(form),
        };
        let answer = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests.push(request.clone());
            state.answer(&request, &body, address)
        };
        let more = answer
            .header
            .map(|line| format!("{line}\r\n"))
            .unwrap_or_default();
        write!(
            writer,
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n{}",
            answer.status,
            answer.body.len(),
            answer.body
        )?;
        if header("connection").as_deref() == Some("close") {
            return Ok(());
        }
    }
}

fn parse_form(form: &str) -> BTreeMap<String, String> {
    form.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Decodes the text of a form.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.extend(u8::from_str_radix(&digits, 16).ok());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Answer {
    fn json(body: &Value) -> Self {
        Self {
            status: "200 OK",
            header: None,
            body: body.to_string(),
        }
    }

    fn error(status: &'static str, error: &str) -> Self {
        Self {
            status,
            header: None,
            body: json!({"error": error}).to_string(),
        }
    }
}

impl OAuthState {
    fn answer(&mut self, request: &OAuthRequest, body: &str, address: SocketAddr) -> Answer {
        let origin = format!("http://{address}");
        match request.line.as_str() {
            "POST /mcp" => self.answer_mcp(request, body, &origin),
            "GET /.well-known/oauth-protected-resource/mcp" => Answer::json(&json!({
                "resource": format!("{origin}/mcp"),
                "authorization_servers": [origin],
                "scopes_supported": ["read"],
            })),
            "GET /.well-known/oauth-authorization-server" => Answer::json(&json!({
                "issuer": origin,
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "registration_endpoint": format!("{origin}/register"),
                "revocation_endpoint": format!("{origin}/revoke"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
                "authorization_response_iss_parameter_supported": true,
            })),
            "POST /register" => Answer::json(&json!({
                "client_id": format!("client-{}", self.requests.len()),
                "redirect_uris": [],
            })),
            "GET /authorize" => self.authorize(request, &origin),
            "POST /token" => self.exchange(request),
            "POST /revoke" => {
                let token = request.fields.get("token").cloned().unwrap_or_default();
                self.access_tokens.remove(&token);
                self.refresh_tokens.remove(&token);
                Answer::json(&json!({}))
            }
            _ => Answer::error("404 Not Found", "not_found"),
        }
    }

    /// Lets the user in at once, and sends the browser back.
    fn authorize(&mut self, request: &OAuthRequest, origin: &str) -> Answer {
        let field = |name: &str| request.fields.get(name).cloned().unwrap_or_default();
        if field("code_challenge").is_empty() || field("resource").is_empty() {
            return Answer::error("400 Bad Request", "invalid_request");
        }
        self.issued += 1;
        let code = format!("code-secret-{}", self.issued);
        self.codes.insert(code.clone(), field("scope"));
        let state = match self.forgery {
            LoginForgery::State => "another-state".to_owned(),
            _ => field("state"),
        };
        let issuer = match self.forgery {
            LoginForgery::Issuer => "http://evil.example",
            _ => origin,
        };
        let result = match self.forgery {
            LoginForgery::Refusal => "error=access_denied".to_owned(),
            _ => format!("code={code}"),
        };
        let target = field("redirect_uri");
        Answer {
            status: "302 Found",
            header: Some(format!(
                "location: {target}?{result}&state={state}&iss={issuer}"
            )),
            body: String::new(),
        }
    }

    fn exchange(&mut self, request: &OAuthRequest) -> Answer {
        let field = |name: &str| request.fields.get(name).cloned().unwrap_or_default();
        if field("resource").is_empty() {
            return Answer::error("400 Bad Request", "invalid_target");
        }
        let scopes = match field("grant_type").as_str() {
            "authorization_code" if !field("code_verifier").is_empty() => {
                self.codes.remove(&field("code"))
            }
            // A refresh token is good for one refresh.
            "refresh_token" => self.refresh_tokens.remove(&field("refresh_token")),
            "client_credentials" => {
                (field("client_secret") == "client-secret").then(|| field("scope"))
            }
            _ => None,
        };
        let Some(scopes) = scopes else {
            return Answer::error("400 Bad Request", "invalid_grant");
        };
        self.issued += 1;
        let access = format!("access-secret-{}", self.issued);
        let refresh = format!("refresh-secret-{}", self.issued);
        self.access_tokens.insert(access.clone(), scopes.clone());
        self.refresh_tokens.insert(refresh.clone(), scopes.clone());
        let mut token = json!({
            "access_token": access,
            "token_type": "Bearer",
            "refresh_token": refresh,
            "scope": scopes,
        });
        if let (Some(seconds), Some(fields)) = (self.token_seconds, token.as_object_mut()) {
            fields.insert("expires_in".to_owned(), seconds.into());
        }
        Answer::json(&token)
    }

    fn answer_mcp(&mut self, request: &OAuthRequest, body: &str, origin: &str) -> Answer {
        let token = request
            .authorization
            .as_deref()
            .and_then(|text| text.strip_prefix("Bearer "));
        let Some(scopes) = token.and_then(|token| self.access_tokens.get(token)) else {
            let mut answer = Answer::error("401 Unauthorized", "invalid_token");
            answer.header = Some(format!(
                "www-authenticate: Bearer resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\""
            ));
            return answer;
        };
        let message: &Value = &serde_json::from_str(body).unwrap_or_default();
        let params = &message["params"];
        let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }),
            "tools/list" => {
                let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
                let names = ["echo", "show_headers", "revoke", "admin"];
                let tools = names.map(|name| json!({"name": name, "inputSchema": schema}));
                let mut tools = tools.to_vec();
                if self.repeats_tokens {
                    let own = token.unwrap_or_default();
                    let description = format!("Needs {own}.");
                    tools.push(json!({"name": own, "inputSchema": schema}));
                    tools.push(
                        json!({"name": "hint", "description": description, "inputSchema": schema}),
                    );
                }
                json!({"tools": tools})
            }
            "tools/call" if params["name"] == "admin" && !scopes.contains("admin") => {
                let mut answer = Answer::error("403 Forbidden", "insufficient_scope");
                answer.header = Some(
                    "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"admin\""
                        .to_owned(),
                );
                return answer;
            }
            "tools/call" if params["name"] == "revoke" => {
                self.access_tokens.clear();
                self.refresh_tokens.clear();
                text("revoked".to_owned())
            }
            "tools/call" if params["name"] == "show_headers" => text(format!(
                "your header: {}",
                request.authorization.as_deref().unwrap_or("")
            )),
            "tools/call" => text(format!("{}: {}", params["name"], params["arguments"])),
            _ if message["id"].is_null() => {
                return Answer {
                    status: "202 Accepted",
                    header: None,
                    body: String::new(),
                };
            }
            method => {
                let error = json!({"code": -32601, "message": format!("no method {method}")});
                return Answer::json(
                    &json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                );
            }
        };
        Answer::json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    }
}
