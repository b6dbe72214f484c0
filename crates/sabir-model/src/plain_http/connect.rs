//! Connects to a host by its name.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

/// The head start of the first family of addresses (RFC 8305, section 5, recommends 250 ms).
const FAMILY_DELAY: Duration = Duration::from_millis(300);

/// The idle time before the first keepalive probe of TCP, and the interval between probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The number of unanswered checks after which a connection is lost.
const KEEPALIVE_CHECKS: u32 = 3;

/// Resolves a host, and connects to one of its addresses within `limit`.
///
/// IPv4 and IPv6 are tried in parallel (Happy Eyeballs, RFC 8305), so that an unreachable family costs little.
///
/// # Errors
/// The name has no address, the time has passed, or the error of the last address.
pub(super) async fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream> {
    let connecting = async {
        let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        connect_any(&addresses).await
    };
    let stream = timeout(limit, connecting)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "operation timed out")))?;
    // Disables Nagle's algorithm: a piece must not wait for the acknowledgement of the previous one.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(KEEPALIVE_CHECKS);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// Connects to one of the addresses.
async fn connect_any(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let is_first = addresses.first().map(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .iter()
        .copied()
        .partition(|address| Some(address.is_ipv6()) == is_first);
    let mut first = std::pin::pin!(connect_to_first(&first));
    if second.is_empty() {
        return first.await;
    }
    let failed = tokio::select! {
        stream = &mut first => match stream {
            Ok(stream) => return Ok(stream),
            Err(error) => Some(error),
        },
        () = sleep(FAMILY_DELAY) => None,
    };
    let mut second = std::pin::pin!(connect_to_first(&second));
    if failed.is_some() {
        return second.await;
    }
    tokio::select! {
        stream = &mut first => match stream {
            Ok(stream) => Ok(stream),
            Err(_) => second.await,
        },
        stream = &mut second => match stream {
            Ok(stream) => Ok(stream),
            Err(_) => first.await,
        },
    }
}

/// Connects to the first address that can be reached.
async fn connect_to_first(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let mut failure = Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let good = listener.local_addr().unwrap();
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let refused = closed.local_addr().unwrap();
        drop(closed);
        let refused_v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, refused.port()));
        for addresses in [
            &[refused, good][..],
            &[refused_v6, good],
            &[good, refused_v6],
        ] {
            let stream = connect_any(addresses).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), good);
        }
        let error = connect_any(&[refused]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(
            connect_any(&[]).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
