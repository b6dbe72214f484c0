//! Connects the session to the MCP servers in the program's own process.
//!
//! The SDK passes their messages inside control requests. A session reaches servers over HTTP, so this listens on a port of the loopback
//! interface and passes each message on. A token keeps other programs of this machine out.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sabir_session::{McpServerSpec, McpTransport};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::control::ControlChannel;
use crate::json::value_at;

/// The longest message for a server, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// The code of JSON-RPC for an error inside the server.
const INTERNAL_ERROR: i32 = -32603;

struct Bridge {
    channel: Arc<ControlChannel>,
    /// The value of the header that each request must have.
    authorization: String,
}

/// Starts to listen for the servers with these names, and returns how the session reaches them. Must be called within a tokio runtime,
/// whose end ends it.
///
/// # Errors
/// When no port can be opened.
pub(crate) async fn serve_program_servers(
    names: &[String],
    token: &str,
    channel: &Arc<ControlChannel>,
) -> io::Result<Vec<McpServerSpec>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let authorization = format!("Bearer {token}");
    let bridge = Bridge {
        channel: Arc::clone(channel),
        authorization: authorization.clone(),
    };
    let router = Router::new()
        .route("/{server}", post(forward_message))
        // A call can hold a whole file.
        .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
        .with_state((Arc::new(bridge), Arc::from(names)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    // By number: a name may hold characters that an address cannot.
    let spec = |(index, name): (usize, &String)| McpServerSpec {
        name: name.clone(),
        transport: McpTransport::Http {
            url: format!("http://{address}/{index}"),
            headers: BTreeMap::from([("Authorization".to_owned(), authorization.clone())]),
            oauth: None,
        },
        start_seconds: None,
        call_seconds: None,
        // The program expects its own tools to be there.
        required: true,
        disabled: false,
        tools: Default::default(),
    };
    Ok(names.iter().enumerate().map(spec).collect())
}

/// Passes one message on and answers with what the program returned.
async fn forward_message(
    State((bridge, names)): State<(Arc<Bridge>, Arc<[String]>)>,
    Path(index): Path<usize>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let given = headers.get(header::AUTHORIZATION);
    if given.is_none_or(|given| given.as_bytes() != bridge.authorization.as_bytes()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(name) = names.get(index) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(message) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let id = message.get("id").cloned();
    let is_request = id.is_some() && message.get("method").is_some();
    let request = json!({"subtype": "mcp_message", "server_name": name, "message": message});
    // Dropped if the session gives up, which withdraws the request at the program.
    let answer = bridge.channel.ask(request).await;
    // A notification gets no answer, but the program acknowledges it.
    if !is_request {
        return StatusCode::ACCEPTED.into_response();
    }
    let answer = answer
        .map(|answer| value_at(&answer, "/mcp_response").clone())
        .map_err(|error| error.to_string())
        .and_then(|answer| match answer.is_object() {
            true => Ok(answer),
            false => Err("the program returned no answer".to_owned()),
        })
        .unwrap_or_else(|reason| {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": INTERNAL_ERROR, "message": reason}})
        });
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, answer.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Sends a message that is not JSON, and returns the status.
    async fn send_wrong_message(token: &str, bytes: usize) -> String {
        let names = ["notes".to_owned()];
        let channel = Arc::default();
        let served = serve_program_servers(&names, "right", &channel);
        let served = served.await.unwrap();
        let McpTransport::Http { url, .. } = &served[0].transport else {
            panic!("not HTTP");
        };
        let address = url.trim_start_matches("http://").split('/').next().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /0 HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: {bytes}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'{'; bytes]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn long_messages_are_read_and_strangers_refused() {
        assert_eq!(send_wrong_message("right", 3 << 20).await, "400");
        assert_eq!(send_wrong_message("wrong", 1).await, "401");
    }
}
