//! Tests logins to MCP servers through the binary, with a server and an authorization server of the testkit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Output, Stdio};

use sabir_testkit::{LoginForgery, OAuthServer, ScriptedProvider};
use serde_json::{Value, json};

use crate::interactive::Talk;
use crate::mcp::wait_until;
use crate::world::{Turn, WAYS, Way, World, code, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];

/// Configures the server as `guarded`, with more lines in its table.
fn configure(world: &World, server: &OAuthServer, more: &str) {
    let url = server.mcp_url();
    let path = world.configure(format!("[mcp.servers.guarded]\nurl = {url:?}\n{more}\n"));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A running `sabir mcp login`.
struct Login {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The address of the page to log in.
    page: String,
}

impl Login {
    fn start(world: &World, words: &[&str]) -> Self {
        let mut child = world
            .sabir()
            .args(["mcp", "login", "--no-browser"])
            .args(words)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut page = String::new();
        output.read_line(&mut page).unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output,
            page: page.trim().to_owned(),
            child,
        }
    }

    fn paste(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
    }

    /// Waits for its end, and returns its code and all that it said.
    fn finish(mut self) -> (i32, String) {
        drop(self.input);
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (code(&output), said + &stderr(&output))
    }
}

/// Logs in with a browser, and returns what was said.
fn log_in(world: &World, words: &[&str]) -> String {
    let login = Login::start(world, words);
    let page = OAuthServer::browse(&login.page).unwrap();
    let (code, said) = login.finish();
    assert_eq!(code, 0, "{said}{page}");
    assert!(page.contains("You are logged in"), "{page}");
    said
}

fn run(world: &World, words: &[&str]) -> Output {
    world.sabir().args(words).output().unwrap()
}

fn call(world: &World, tool: &str) -> Output {
    run(
        world,
        &["mcp", "call", "guarded", tool, "{\"text\": \"hi\"}"],
    )
}

/// The files of logins.
fn login_files(world: &World) -> Vec<PathBuf> {
    let folder = world.home.path().join(".local/share/sabir/mcp-logins");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Asserts that no secret of the server is in a text or in any file of the home except the logins.
fn assert_no_secrets(world: &World, said: &str) {
    let mut texts = vec![("the output".to_owned(), said.to_owned())];
    let mut folders = vec![world.home.path().to_owned(), world.work.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("mcp-logins") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                texts.push((path.display().to_string(), text));
            }
        }
    }
    for secret in OAuthServer::secret_prefixes() {
        for (place, text) in &texts {
            assert!(!text.contains(secret), "{secret} in {place}");
        }
    }
}

fn finish() -> Turn {
    turn(
        "Done.",
        vec![("attempt_completion", json!({"result": "done"}))],
    )
}

/// Runs a task that calls these tools of the server, and returns its output and the model's last request.
fn run_task(world: &World, tools: &[&'static str], words: &[&str]) -> (Output, String) {
    let mut turns: Vec<Turn> = tools
        .iter()
        .map(|tool| turn("", vec![(*tool, json!({"text": "hi"}))]))
        .collect();
    turns.push(finish());
    let provider = world.plays(NATIVE, &turns);
    let mut all = vec!["--approve", "mcp=guarded/*"];
    all.extend(words);
    all.push("do it");
    let output = world.run(&provider, NATIVE, &all);
    (output, last_request(&provider))
}

fn last_request(provider: &ScriptedProvider) -> String {
    let requests = provider.received_requests();
    requests.last().unwrap().body.to_string()
}

#[test]
fn a_login_is_kept_for_the_user_alone_and_shown_nowhere() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "required = true");
    let refused = call(&world, "echo");
    assert_eq!(code(&refused), 2);
    let hint = "run `sabir mcp login guarded`";
    assert!(stderr(&refused).contains(hint), "{}", stderr(&refused));
    let list = stdout(&run(&world, &["mcp", "list"]));
    assert!(list.contains("needs a login"), "{list}");
    let said = log_in(&world, &["guarded"]);
    assert!(
        said.contains("logged in to guarded at http://127"),
        "{said}"
    );
    let files = login_files(&world);
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = std::fs::metadata(&files[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let list = stdout(&run(&world, &["mcp", "list"]));
    assert!(list.contains("logged in"), "{list}");
    let listed = stdout(&run(&world, &["mcp", "list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["servers"][0]["login"], "logged_in");
    // The server repeats the token, as a debugging tool might.
    let tools = ["guarded__echo", "guarded__show_headers"];
    let (output, request) = run_task(&world, &tools, &["--output", "json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        request.contains("[redacted: secret of the server]"),
        "{request}"
    );
    assert!(stdout(&output).contains("echo"), "{}", stdout(&output));
    let all = [said, list, request, stdout(&output), stderr(&output)].concat();
    assert_no_secrets(&world, &all);
    // Each authorized request went to the server itself.
    let tokens = server.requests("POST /mcp");
    assert!(tokens.iter().any(|one| one.authorization.is_some()));
}

#[test]
fn tokens_in_the_definitions_of_tools_are_hidden() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    server.repeat_tokens();
    configure(&world, &server, "required = true");
    log_in(&world, &["guarded"]);
    let tested = run(&world, &["mcp", "test", "guarded", "--json"]);
    assert!(
        stdout(&tested).contains("Needs [redacted: secret of the server]."),
        "{}",
        stdout(&tested)
    );
    let (output, request) = run_task(&world, &["guarded__hint"], &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let notice = "repeats a secret that it was sent in names of its tools or prompts; 1 of them";
    assert!(stderr(&output).contains(notice), "{}", stderr(&output));
    assert!(request.contains("guarded__hint"), "{request}");
    let all = [request, stdout(&output), stderr(&output), stdout(&tested)].concat();
    assert_no_secrets(&world, &all);
}

#[test]
fn an_expired_token_is_renewed_in_the_middle_of_a_task() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "required = true");
    log_in(&world, &["guarded"]);
    let tools = ["guarded__echo", "guarded__echo"];
    // Refused although it has not expired: renewed, and the call repeated.
    server.revoke_access_tokens();
    let (output, request) = run_task(&world, &tools, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!request.contains("needs a login"), "{request}");
    assert_eq!(refreshes(&server), 1);
    // Expires at once: renewed before each request, with the refresh token of the time before.
    server.expire_tokens_after(0);
    server.revoke_access_tokens();
    let (output, _) = run_task(&world, &tools, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(refreshes(&server) >= 4, "{}", refreshes(&server));
    assert_no_secrets(&world, &(stdout(&output) + &stderr(&output)));
}

/// Returns how often tokens were renewed.
fn refreshes(server: &OAuthServer) -> usize {
    let exchanges = server.requests("POST /token");
    let is_refresh = |fields: &std::collections::BTreeMap<String, String>| {
        fields.get("grant_type").map(String::as_str) == Some("refresh_token")
    };
    let renewed = exchanges.iter().filter(|one| is_refresh(&one.fields));
    renewed.count()
}

#[test]
fn a_browser_with_another_state_is_ignored() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    server.forge(LoginForgery::State);
    let login = Login::start(&world, &["guarded"]);
    let page = OAuthServer::browse(&login.page).unwrap();
    assert!(page.starts_with("HTTP/1.1 400"), "{page}");
    assert!(
        page.contains("text/plain") && page.contains("no-store"),
        "{page}"
    );
    assert!(server.requests("POST /token").is_empty());
    assert!(login_files(&world).iter().all(|file| {
        !std::fs::read_to_string(file)
            .unwrap()
            .contains("access-secret")
    }));
    // The login itself goes on.
    server.forge(LoginForgery::None);
    OAuthServer::browse(&login.page).unwrap();
    let (code, said) = login.finish();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("its state differs"), "{said}");
}

#[test]
fn another_authorization_server_and_a_refusal_end_the_login() {
    for (forgery, expected) in [
        (LoginForgery::Issuer, "issuer mismatch"),
        (LoginForgery::Refusal, "access_denied"),
    ] {
        let world = World::new();
        let server = OAuthServer::start().unwrap();
        configure(&world, &server, "");
        server.forge(forgery);
        let login = Login::start(&world, &["guarded"]);
        OAuthServer::browse(&login.page).unwrap();
        let (code, said) = login.finish();
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(server.requests("POST /token").is_empty());
        assert_eq!(login_files(&world), Vec::<PathBuf>::new());
    }
}

#[test]
fn the_address_that_the_browser_ends_at_may_be_pasted() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    let mut login = Login::start(&world, &["guarded"]);
    let target = OAuthServer::redirect_of(&login.page).unwrap();
    login.paste("http://127.0.0.1/callback?code=x&state=y");
    login.paste(&target);
    let (code, said) = login.finish();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("its state differs"), "{said}");
    assert_eq!(self::code(&call(&world, "echo")), 0);
}

#[test]
fn a_login_that_nobody_finishes_ends() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    let login = Login::start(&world, &["guarded", "--timeout", "1"]);
    let (code, said) = login.finish();
    assert_eq!(code, 2);
    assert!(said.contains("within 1 s"), "{said}");
}

#[test]
fn a_task_goes_on_without_a_login_and_gets_the_tools_after_it() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    let (output, _) = run_task(&world, &[], &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // Without a hurry the notice comes before the end of the task; `required` makes it certain.
    configure(&world, &server, "required = true");
    let (output, said) = {
        let provider = world.plays(NATIVE, &[finish()]);
        let output = world.run(&provider, NATIVE, &["do it"]);
        let said = stderr(&output);
        (output, said)
    };
    assert_eq!(code(&output), 2, "{said}");
    assert!(said.contains("sabir mcp login guarded"), "{said}");
    // A login that is withdrawn during a task: the call says what to do, and the task continues.
    log_in(&world, &["guarded"]);
    let tools = ["guarded__revoke", "guarded__echo"];
    let (output, request) = run_task(&world, &tools, &[]);
    assert!(
        request.contains("failed: it needs a login: run `sabir mcp login guarded`"),
        "{request}\n{}",
        stderr(&output)
    );
    let list = stdout(&run(&world, &["mcp", "list"]));
    assert!(list.contains("needs a login"), "{list}");
}

#[test]
fn a_user_logs_in_within_the_session() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    let call = turn("", vec![("guarded__echo", json!({"text": "hi"}))]);
    let provider = world.plays(NATIVE, &[turn("Hello.", vec![]), call, finish()]);
    let mut command = world.sabir_with(&provider);
    let model = ["--model", NATIVE.model(), "--protocol", NATIVE.protocol];
    command.args(model);
    command.args(["--approve", "mcp=guarded/*", "begin with it"]);
    let mut talk = Talk::of(command);
    // It comes while Sabir waits for the next message.
    talk.wait_for("it needs a login");
    talk.say("/mcp login nobody");
    talk.wait_for("there is no server `nobody`");
    talk.say("/mcp login guarded");
    talk.wait_for("log in with your browser at ");
    let page = talk.wait_for(" ; if it cannot be redirected");
    // The browser is on another machine: its user copies the address.
    let target = OAuthServer::redirect_of(page.trim()).unwrap();
    talk.say(&format!("/mcp login guarded {target}"));
    talk.wait_for("you are logged in at http://127");
    wait_until("the server is connected with the token", || {
        let requests = server.requests("POST /mcp");
        let authorized = requests.iter().filter(|one| one.authorization.is_some());
        // Two of a handshake, and the first list.
        authorized.count() >= 3
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    talk.say("go on");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    let request = last_request(&provider);
    assert!(request.contains("echo"), "{request}");
    assert_no_secrets(&world, &request);
}

#[test]
fn a_lack_of_rights_is_said_and_the_next_login_asks_for_them() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "required = true");
    log_in(&world, &["guarded"]);
    let (output, request) = run_task(&world, &["guarded__admin"], &[]);
    assert!(
        request.contains("more rights (admin): run `sabir mcp login guarded`"),
        "{request}\n{}",
        stderr(&output)
    );
    let list = stdout(&run(&world, &["mcp", "list"]));
    assert!(list.contains("more rights"), "{list}");
    let said = log_in(&world, &["guarded"]);
    assert!(said.contains("with the rights: read admin"), "{said}");
    assert_eq!(code(&call(&world, "admin")), 0);
    assert!(!stdout(&run(&world, &["mcp", "list"])).contains("more rights"));
}

#[test]
fn a_logout_removes_the_tokens() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    log_in(&world, &["guarded"]);
    assert_eq!(code(&call(&world, "echo")), 0);
    let output = run(&world, &["mcp", "logout", "guarded"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = "removed from this machine, and its tokens are withdrawn";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    assert!(server.has_no_tokens());
    assert_eq!(login_files(&world), Vec::<PathBuf>::new());
    assert_eq!(code(&call(&world, "echo")), 2);
    // Without the server the login is removed all the same.
    log_in(&world, &["guarded"]);
    drop(server);
    let output = run(&world, &["mcp", "logout", "guarded"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the server has not done it"),
        "{}",
        stderr(&output)
    );
    assert_eq!(login_files(&world), Vec::<PathBuf>::new());
    let again = stderr(&run(&world, &["mcp", "logout", "nobody"]));
    assert!(again.contains("no MCP server `nobody`"), "{again}");
}

#[test]
fn a_repository_cannot_send_a_login_elsewhere() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    log_in(&world, &["guarded"]);
    world.configure("");
    // The repository has the same name, at another address.
    let other = OAuthServer::start().unwrap();
    let entry = json!({"mcpServers": {"guarded": {"type": "http", "url": other.mcp_url()}}});
    world.write(".mcp.json", &entry.to_string());
    let trusted = run(&world, &["mcp", "trust", "--yes"]);
    assert_eq!(code(&trusted), 0, "{}", stderr(&trusted));
    let output = call(&world, "echo");
    assert!(
        stderr(&output).contains("sabir mcp login"),
        "{}",
        stderr(&output)
    );
    let requests = other.requests("POST /mcp");
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|one| one.authorization.is_none()));
}

#[test]
fn a_client_with_a_secret_needs_no_user() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    let call_admin = |more: &str| {
        let client = format!(
            "oauth = {{ client_id = \"mine\", client_secret = \"${{MY_SECRET}}\", grant = \"client_credentials\", scopes = [\"admin\"]{more} }}"
        );
        configure(&world, &server, &client);
        let mut command = world.sabir();
        command.env("MY_SECRET", "client-secret");
        command
            .args(["mcp", "call", "guarded", "admin"])
            .output()
            .unwrap()
    };
    // The server chooses the authorization server, and would get the secret there.
    let issuer = server.mcp_url().replace("/mcp", "");
    for more in ["", ", issuer = \"https://login.example.com\""] {
        let refused = call_admin(more);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
        let said = format!("secret is not sent to {issuer}");
        assert!(stderr(&refused).contains(&said), "{}", stderr(&refused));
    }
    assert!(server.requests("POST /token").is_empty());
    let output = call_admin(&format!(", issuer = {issuer:?}"));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(login_files(&world), Vec::<PathBuf>::new());
    let mut command = world.sabir();
    command.env("MY_SECRET", "client-secret");
    let output = command.args(["mcp", "login", "guarded"]).output().unwrap();
    assert!(
        stderr(&output).contains("needs no login"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_users_browser_is_opened() {
    let world = World::new();
    let server = OAuthServer::start().unwrap();
    configure(&world, &server, "");
    let opened = world.home.path().join("opened");
    let mut child = world
        .sabir()
        .args(["mcp", "login", "guarded"])
        .env(
            "BROWSER",
            format!(
                "sh -c 'printf %s \"$1\" > {0}.new; mv {0}.new {0}' sh",
                opened.display()
            ),
        )
        .spawn()
        .unwrap();
    while !opened.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    OAuthServer::browse(&std::fs::read_to_string(&opened).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}
