//! Serves fixed pages on this machine, for tests of anything that fetches with GET.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A page: its path, its status, its body. With a body of `None`, no response is sent.
pub type StaticPage = (&'static str, u16, Option<String>);

/// Serves pages until it is dropped. A path without a page gets 404.
#[derive(Debug)]
pub struct PageServer {
    /// The address that it listens on.
    address: SocketAddr,
    /// True once it was dropped. The listening thread looks at it after each connection.
    stopped: Arc<AtomicBool>,
}

impl PageServer {
    /// Starts the server on a free port of the loopback interface.
    ///
    /// # Errors
    /// No port is available.
    pub fn start(pages: Vec<StaticPage>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let pages = Arc::new(pages);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let pages = Arc::clone(&pages);
                // A thread for each connection, because a page without a response blocks its own.
                std::thread::spawn(move || _ = serve_page(&stream, &pages));
            }
        });
        Ok(Self {
            address,
            stopped: over,
        })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // An own connection wakes the listener, which then sees the flag.
        _ = TcpStream::connect(self.address);
    }
}

/// Answers one request.
fn serve_page(mut stream: &TcpStream, pages: &[StaticPage]) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // The headers do not matter for a fixed page.
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = first.split(' ').nth(1).unwrap_or_default();
    let missing = Some("no such page".to_owned());
    let found = pages.iter().find(|(known, ..)| *known == path);
    let (status, body) = found.map_or((404, &missing), |(_, status, body)| (*status, body));
    let Some(body) = body else {
        // Longer than any timeout of the tests, but not so long that threads pile up.
        std::thread::sleep(Duration::from_secs(5));
        return Ok(());
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} page\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
