//! Waits on this machine for the browser that comes back from a login.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The path that the browser comes back to.
pub(super) const REDIRECT_PATH: &str = "/callback";
/// The most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The time that a connection has to send its request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The most connections at a time.
const MAX_CONNECTIONS: usize = 32;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener for one login. Dropping it closes the port.
pub(super) struct RedirectListener {
    /// The address that the browser comes back to.
    pub(super) redirect_uri: String,
    redirects: mpsc::Receiver<BrowserRedirect>,
    worker: JoinHandle<()>,
}

/// A browser that has come back, and waits for a page.
pub(super) struct BrowserRedirect {
    /// The address with which it came.
    pub(super) url: String,
    stream: TcpStream,
}

impl RedirectListener {
    /// Listens on a port of the loopback interface; any free one for `None`.
    ///
    /// # Errors
    /// When the port is not free.
    pub(super) async fn bind(port: Option<u16>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
        let origin = format!("http://127.0.0.1:{}", listener.local_addr()?.port());
        let (sender, redirects) = mpsc::channel(4);
        let base = origin.clone();
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let worker = tokio::spawn(async move {
            loop {
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                    return;
                };
                let Ok((stream, _)) = listener.accept().await else {
                    // Too many open files, for instance. The port stays open, since another program
                    // could otherwise listen there for the code.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // Browsers open connections in advance and leave them idle, so each has its own
                // task.
                let serving = serve_connection(stream, base.clone(), sender.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(slot);
                });
            }
        });
        Ok(Self {
            redirect_uri: format!("{origin}{REDIRECT_PATH}"),
            redirects,
            worker,
        })
    }

    /// Waits for the next browser that comes back.
    pub(super) async fn next_redirect(&mut self) -> Option<BrowserRedirect> {
        self.redirects.recv().await
    }
}

impl Drop for RedirectListener {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

impl BrowserRedirect {
    /// Shows a plain page in the browser.
    pub(super) async fn show_page(mut self, status: &str, text: &str) {
        write_page(&mut self.stream, status, text).await;
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    origin: String,
    sender: mpsc::Sender<BrowserRedirect>,
) {
    let Ok(Some(head)) = timeout(HEAD_TIME, read_head(&mut stream)).await else {
        return;
    };
    match redirect_target(&head) {
        Some(target) => {
            let url = format!("{origin}{target}");
            // Without a receiver the login is over.
            _ = sender.send(BrowserRedirect { url, stream }).await;
        }
        None => write_page(&mut stream, "404 Not Found", "There is no such page.").await,
    }
}

/// Reads the head of a request; `None` if it is too large or breaks off.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream
            .read(&mut buffer)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        head.extend_from_slice(buffer.get(..count)?);
        if head.len() > MAX_HEAD_BYTES {
            return None;
        }
    }
    String::from_utf8(head).ok()
}

/// Returns the path and query of a request for the redirect's path.
fn redirect_target(head: &str) -> Option<&str> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let path = target.split('?').next()?;
    (path == REDIRECT_PATH).then_some(target)
}

async fn write_page(stream: &mut TcpStream, status: &str, text: &str) {
    let body = format!("Sabir: {text}\n");
    // The address of this page holds a code, which must not be kept or passed on.
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The browser may be gone; the login does not depend on its page.
    if stream.write_all(head.as_bytes()).await.is_ok() {
        _ = stream.write_all(body.as_bytes()).await;
        _ = stream.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_redirect_itself_is_one() {
        let target = |head| redirect_target(head);
        assert_eq!(
            target("GET /callback?code=1&state=2 HTTP/1.1\r\n\r\n"),
            Some("/callback?code=1&state=2")
        );
        assert_eq!(target("GET /favicon.ico HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("GET /callback/more?code=1 HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("POST /callback?code=1 HTTP/1.1\r\n\r\n"), None);
    }
}
