//! Runs the proxy through which a command in a network namespace of its own reaches package registries, and nothing else.
//!
//! The launcher makes the listening socket *inside* of the namespace and hands it to the supervisor, which is outside. So
//! the command reaches the proxy at its own loopback address, needs no forwarder and no file, and has no other way out. The
//! proxy runs on threads of the supervisor and ends with it.
//!
//! It speaks `CONNECT HOST:PORT`, and plain HTTP by absolute URLs for hosts of the user that have no TLS. A host must be listed.
//! Its addresses are looked up once, outside; all of them must be public (`public_address.rs`), unless the user listed the host
//! as a private one; and the connection goes to exactly these addresses. What is sent to a public host must be TLS for that very
//! name: otherwise a command could reach every other host of the same content delivery network. Each request is reported to
//! the agent.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::CONNECTION;
use crate::public_address::{never_reachable_kind, non_public_kind};
use crate::sandbox::{ConnectionOutcome, RegistryHost, split_host};

/// The largest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// The largest first message of a TLS connection. Messages with many certificates of trust stay below it.
const MAX_HELLO: usize = 16 << 10;
/// The most connections at the same time.
const MAX_CONNECTIONS: usize = 128;
/// The time that a command has to write a request, and a host to answer a connection.
const HEAD_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(20);
/// The time without any byte after which a connection is closed.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// The longest text that is repeated in a report.
const MAX_SHOWN: usize = 260;
/// The port of plain HTTP.
const HTTP: u16 = 80;

/// A request that the proxy refuses.
struct RefusedRequest {
    outcome: ConnectionOutcome,
    /// The host as the report names it.
    host: String,
}

/// The target of a request.
struct RequestTarget {
    name: String,
    port: u16,
    /// The head to send on; `None` for a tunnel.
    head: Option<Vec<u8>>,
}

impl RequestTarget {
    fn shown(&self) -> String {
        if self.name.contains(':') {
            format!("[{}]:{}", self.name, self.port)
        } else {
            format!("{}:{}", self.name, self.port)
        }
    }
}

/// Starts the proxy on this listening socket. After an error, the command's connections are refused.
pub(super) fn start_proxy(listener: OwnedFd, hosts: Vec<RegistryHost>) {
    let hosts = Arc::new(hosts);
    let open = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::from(listener);
    let accept = move || {
        while let Ok((client, _)) = listener.accept() {
            if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let hosts = Arc::clone(&hosts);
            let count = Arc::clone(&open);
            let serve = move || {
                // A broken connection is the command's own affair.
                let _ = serve_client(client, &hosts);
                count.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().spawn(serve).is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    let _ = thread::Builder::new().spawn(accept);
}

/// Serves one connection of the command: one request, and then its bytes.
fn serve_client(mut client: TcpStream, hosts: &[RegistryHost]) -> io::Result<()> {
    client.set_read_timeout(Some(HEAD_TIME))?;
    let Some((head, rest)) = read_head(&mut client)? else {
        return answer(&mut client, "400 Bad Request", "no HTTP request");
    };
    let Some(target) = parse_request(&head) else {
        return answer(
            &mut client,
            "400 Bad Request",
            "this proxy takes CONNECT HOST:PORT, and http:// URLs",
        );
    };
    match open_target(&mut client, &target, rest, hosts) {
        Ok(server) => {
            report(ConnectionOutcome::Reached, &target.shown());
            join_streams(client, server)
        }
        Err(RefusedRequest { outcome, host }) => {
            report(outcome, &host);
            let reason = match outcome {
                ConnectionOutcome::Unlisted => {
                    "is not among the hosts of package registries. The user can list it: `registries` in config.toml"
                }
                ConnectionOutcome::PrivateAddress => {
                    "has a private address. The user can allow that: `private_registries` in config.toml"
                }
                ConnectionOutcome::Unreachable | ConnectionOutcome::Reached => "does not answer",
                ConnectionOutcome::OtherName => {
                    "was asked for, but the connection is not TLS for it"
                }
            };
            let status = match outcome {
                ConnectionOutcome::Unreachable => "502 Bad Gateway",
                _ => "403 Forbidden by the sandbox",
            };
            answer(&mut client, status, &format!("{host} {reason}"))
        }
    }
}

/// Connects to the target of a request if it may be reached, and sends what came with the request.
fn open_target(
    client: &mut TcpStream,
    target: &RequestTarget,
    rest: Vec<u8>,
    hosts: &[RegistryHost],
) -> Result<TcpStream, RefusedRequest> {
    let refuse = |outcome| RefusedRequest {
        outcome,
        host: target.shown(),
    };
    // A host that the user listed as a private one is that, even if it is a public registry, too.
    let listed = hosts
        .iter()
        .filter(|host| host.matches(&target.name, target.port))
        .max_by_key(|host| host.is_private())
        .ok_or_else(|| refuse(ConnectionOutcome::Unlisted))?;
    // Plain HTTP could be read and changed on its way, so only hosts of the user are reached by it.
    if target.head.is_some() && !listed.is_private() {
        return Err(refuse(ConnectionOutcome::OtherName));
    }
    let addresses = look_up(&target.name, target.port, listed.is_private());
    if addresses.is_empty() {
        return Err(refuse(ConnectionOutcome::Unreachable));
    }
    let is_refused = |address: &SocketAddr| {
        let address = address.ip();
        never_reachable_kind(address).is_some()
            || !listed.is_private() && non_public_kind(address).is_some()
    };
    // A private address among public ones is an attack, so all of them are refused.
    if addresses.iter().any(is_refused) {
        return Err(refuse(ConnectionOutcome::PrivateAddress));
    }
    let server = addresses
        .iter()
        .find_map(|address| TcpStream::connect_timeout(address, CONNECT_TIME).ok());
    let mut server = server.ok_or_else(|| refuse(ConnectionOutcome::Unreachable))?;
    let lost = |_| refuse(ConnectionOutcome::Unreachable);
    let first = match &target.head {
        Some(head) => [head.as_slice(), &rest].concat(),
        None => {
            client
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .map_err(lost)?;
            if listed.is_private() {
                rest
            } else {
                read_client_hello(client, rest, &target.name)
                    .ok_or_else(|| refuse(ConnectionOutcome::OtherName))?
            }
        }
    };
    server.write_all(&first).map_err(lost)?;
    Ok(server)
}

/// Reads the head of a request. Returns it with the bytes behind it; `None` if it is too large or incomplete.
fn read_head(client: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while bytes.len() <= MAX_HEAD {
        let count = client.read(&mut piece)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some(end) = bytes.windows(END.len()).position(|window| window == END) {
            let rest = bytes.split_off(end + END.len());
            return Ok(Some((bytes, rest)));
        }
    }
    Ok(None)
}

/// Parses the head of a request.
fn parse_request(head: &[u8]) -> Option<RequestTarget> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let method = words.next()?;
    let address = words.next()?;
    let version = words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))?;
    if words.next().is_some() {
        return None;
    }
    if method == "CONNECT" {
        let (name, port) = split_host(address)?;
        return Some(RequestTarget {
            name: name.to_ascii_lowercase(),
            port: port?,
            head: None,
        });
    }
    let (scheme, rest) = address.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let (name, port) = split_host(authority)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    // The connection is closed after the answer: a second request on it could name another host.
    let mut sent =
        format!("{method} {slash}{path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    for line in lines.take_while(|line| !line.is_empty()) {
        let (key, value) = line.split_once(':')?;
        const OWN: [&str; 5] = [
            "host",
            "connection",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
        ];
        if !OWN.contains(&key.to_ascii_lowercase().as_str()) {
            let _ = write!(sent, "{key}:{value}\r\n");
        }
    }
    sent.push_str("\r\n");
    Some(RequestTarget {
        name: name.to_ascii_lowercase(),
        port: port.unwrap_or(HTTP),
        head: Some(sent.into_bytes()),
    })
}

/// Returns the addresses of a host; none if it is not known.
fn look_up(name: &str, port: u16, is_private: bool) -> Vec<SocketAddr> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return vec![SocketAddr::new(address, port)];
    }
    let name = name.trim_end_matches('.');
    // The final dot keeps the resolver from appending its search domains and from reading
    // `/etc/hosts`. Private hosts may be found only by these.
    let name = match is_private {
        true => name.to_owned(),
        false => format!("{name}."),
    };
    (name.as_str(), port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .unwrap_or_default()
}

/// Reads the first message of a TLS connection, and returns all that was read if it is meant for this host.
fn read_client_hello(client: &mut TcpStream, mut bytes: Vec<u8>, host: &str) -> Option<Vec<u8>> {
    let mut piece = [0; 4096];
    loop {
        match find_server_name(&bytes) {
            ClientHelloName::Incomplete if bytes.len() <= MAX_HELLO => {}
            ClientHelloName::Found(name)
                if name.eq_ignore_ascii_case(host.trim_end_matches('.')) =>
            {
                return Some(bytes);
            }
            _ => return None,
        }
        let count = client.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(piece.get(..count)?);
    }
}

/// The name of the host in the first message of a TLS connection.
#[derive(Debug, PartialEq, Eq)]
enum ClientHelloName {
    /// More bytes are needed.
    Incomplete,
    Found(String),
    /// Not a TLS client hello, or one without a host.
    None,
}

/// Finds the host that a TLS client asks for (RFC 8446, section 4.1.2, and RFC 6066, section 3).
fn find_server_name(bytes: &[u8]) -> ClientHelloName {
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;
    // The message may be split over several records.
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let length = match message.as_slice() {
            [CLIENT_HELLO, a, b, c, ..] => {
                Some(usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c))
            }
            [CLIENT_HELLO, ..] | [] => None,
            _ => return ClientHelloName::None,
        };
        if length.is_some_and(|length| message.len() >= length.saturating_add(4)) {
            break;
        }
        match rest {
            [HANDSHAKE, 3, _, high, low, body @ ..] => {
                let length = usize::from(*high) << 8 | usize::from(*low);
                let Some(record) = body.get(..length) else {
                    return ClientHelloName::Incomplete;
                };
                if record.is_empty() {
                    return ClientHelloName::None;
                }
                message.extend_from_slice(record);
                rest = body.get(length..).unwrap_or_default();
            }
            [] | [HANDSHAKE] | [HANDSHAKE, 3] | [HANDSHAKE, 3, _] | [HANDSHAKE, 3, _, _] => {
                return ClientHelloName::Incomplete;
            }
            _ => return ClientHelloName::None,
        }
    }
    server_name(message.get(4..).unwrap_or_default())
        .map_or(ClientHelloName::None, ClientHelloName::Found)
}

/// Returns the server name in the body of a client's first message.
fn server_name(body: &[u8]) -> Option<String> {
    const SERVER_NAME: usize = 0;
    // The version and the random bytes.
    let rest = body.get(34..)?;
    let (_session, rest) = take_block(rest, 1)?;
    let (_ciphers, rest) = take_block(rest, 2)?;
    let (_compression, rest) = take_block(rest, 1)?;
    let (mut extensions, _) = take_block(rest, 2)?;
    let mut found = None;
    while !extensions.is_empty() {
        let kind = number(extensions.get(..2)?);
        let (value, others) = take_block(extensions.get(2..)?, 2)?;
        extensions = others;
        if kind != SERVER_NAME {
            continue;
        }
        // Two of them, or two names in one: it is not certain which one a server takes.
        if found.is_some() {
            return None;
        }
        let (list, _) = take_block(value, 2)?;
        let (&first, list) = list.split_first()?;
        let (name, others) = take_block(list, 2)?;
        if first != 0 || !others.is_empty() {
            return None;
        }
        found = Some(std::str::from_utf8(name).ok()?.to_owned());
    }
    found
}

/// Splits off a block that begins with its length, a number of this many bytes.
fn take_block(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = number(bytes.get(..width)?);
    let rest = bytes.get(width..)?;
    Some((rest.get(..length)?, rest.get(length..)?))
}

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Copies bytes in both directions until both ends are done.
fn join_streams(client: TcpStream, server: TcpStream) -> io::Result<()> {
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(IDLE_TIME))?;
        stream.set_write_timeout(Some(IDLE_TIME))?;
    }
    let up = (client.try_clone()?, server.try_clone()?);
    let upward = thread::Builder::new().spawn(move || copy_stream(up.0, up.1))?;
    copy_stream(server, client);
    let _ = upward.join();
    Ok(())
}

/// Copies bytes until the source ends, and tells the target.
fn copy_stream(mut from: TcpStream, mut to: TcpStream) {
    if io::copy(&mut from, &mut to).is_err() {
        // The other direction must not wait for an end that does not come.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Answers a request that is not forwarded.
fn answer(client: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let text = format!("sabir: {text}\n");
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )?;
    client.shutdown(Shutdown::Write)
}

/// Reports a connection to the agent.
fn report(outcome: ConnectionOutcome, host: &str) {
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_graphic())
        .take(MAX_SHOWN)
        .collect();
    let line = format!("{CONNECTION}{}\n", outcome.to_line(&host));
    // The error is ignored: a dead agent needs no report.
    let _ = rustix::io::write(io::stdin().as_fd(), line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Option<(String, Option<String>)> {
        parse_request(head.as_bytes()).map(|target| {
            let sent = target
                .head
                .as_ref()
                .map(|head| String::from_utf8(head.clone()).unwrap());
            (target.shown(), sent)
        })
    }

    #[test]
    fn requests_are_parsed() {
        let tunnel = parsed("CONNECT PyPI.org:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n");
        assert_eq!(tunnel, Some(("pypi.org:443".to_owned(), None)));
        let plain = parsed(
            "GET http://10.0.0.1:8081/a?b HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\nAccept: x\r\n\r\n",
        );
        let sent =
            "GET /a?b HTTP/1.1\r\nHost: 10.0.0.1:8081\r\nConnection: close\r\nAccept: x\r\n\r\n";
        assert_eq!(
            plain,
            Some(("10.0.0.1:8081".to_owned(), Some(sent.to_owned())))
        );
        let bare = parsed("GET http://x.example HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(bare.0, "x.example:80");
        for wrong in [
            "",
            "CONNECT pypi.org HTTP/1.1\r\n\r\n",
            "CONNECT pypi.org:443@evil.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT  pypi.org:443 HTTP/1.1\r\n\r\n",
            "CONNECT pypi.org:443 HTTP/2\r\n\r\n",
            "GET /local HTTP/1.1\r\n\r\n",
            "GET https://x.example/ HTTP/1.1\r\n\r\n",
            "GET http://a@x.example/ HTTP/1.1\r\n\r\n",
            "GET http://x.example/ HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    /// Builds the first message of a TLS connection with these server names.
    fn hello(names: &[&str]) -> Vec<u8> {
        let long = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        for name in names {
            let mut list = vec![0];
            list.extend(long(name.len()));
            list.extend(name.as_bytes());
            extensions.extend([0, 0]);
            extensions.extend(long(list.len() + 2));
            extensions.extend(long(list.len()));
            extensions.extend(list);
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 19, 1, 1, 0]);
        body.extend(long(extensions.len()));
        body.extend(extensions);
        let mut message = vec![1, 0];
        message.extend(long(body.len()));
        message.extend(body);
        message
    }

    /// Splits a message over records of this size.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in message.chunks(size) {
            bytes.extend([22, 3, 1]);
            bytes.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
            bytes.extend(piece);
        }
        bytes
    }

    #[test]
    fn the_name_of_a_tls_connection_is_found() {
        let message = hello(&["pypi.org"]);
        for size in [1, 7, 4096] {
            let bytes = records(&message, size);
            assert_eq!(
                find_server_name(&bytes),
                ClientHelloName::Found("pypi.org".to_owned()),
                "{size}"
            );
            for end in 0..bytes.len() {
                assert_eq!(
                    find_server_name(&bytes[..end]),
                    ClientHelloName::Incomplete,
                    "{end}"
                );
            }
        }
        for none in [
            records(&hello(&[]), 4096),
            records(&hello(&["pypi.org", "evil.example"]), 4096),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"SSH-2.0-x\r\n".to_vec(),
            vec![22, 3, 1, 0, 0],
            vec![22, 3, 1, 0, 1, 2],
        ] {
            assert_eq!(find_server_name(&none), ClientHelloName::None);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut bytes = records(&hello(&["pypi.org"]), 4096);
        for at in 0..bytes.len() {
            let kept = bytes[at];
            for value in [0, 1, 127, 255] {
                bytes[at] = value;
                let _ = find_server_name(&bytes);
                let _ = parse_request(&bytes);
            }
            bytes[at] = kept;
        }
    }
}
