//! Finds the ports of the loopback that a command line names.

/// The names and addresses of the loopback. Programs that listen on all addresses are often named by `0.0.0.0`.
const HOSTS: [&str; 5] = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", "::1"];

/// Returns the ports of the loopback that a command line names: `127.0.0.1:8080`, `localhost 8080`, `http://localhost/`.
///
/// The user reads the line before they approve it, so what is not on it is not reached.
pub(crate) fn named_loopback_ports(command: &str) -> Vec<u16> {
    let mut ports = Vec::new();
    for host in HOSTS {
        for (at, _) in command.match_indices(host) {
            let before = command.get(..at).unwrap_or_default();
            let after = command.get(at + host.len()..).unwrap_or_default();
            // `notlocalhost` and `10.127.0.0.1` are other hosts.
            if before.ends_with(|c: char| c.is_alphanumeric() || ".-_:[".contains(c)) {
                continue;
            }
            ports.extend(port_after(before, after));
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns the port between these parts of a line: the one that is written, or that of the scheme.
fn port_after(before: &str, after: &str) -> Option<u16> {
    let written = |text: &str| {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        text.get(..end)?
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
    };
    // Bash connects to `/dev/tcp/HOST/PORT`.
    let separator = if before.ends_with("/dev/tcp/") {
        '/'
    } else {
        ':'
    };
    if let Some(rest) = after.strip_prefix(separator) {
        return written(rest);
    }
    if after.starts_with(|c: char| c.is_alphanumeric() || ".-_".contains(c)) {
        return None;
    }
    let scheme = [("http://", 80), ("https://", 443)];
    if let Some((_, port)) = scheme.iter().find(|(name, _)| before.ends_with(name)) {
        return Some(*port);
    }
    // `nc localhost 8080`
    let rest = after.trim_start_matches(' ');
    (rest.len() < after.len()).then(|| written(rest)).flatten()
}

#[cfg(test)]
mod tests {
    use super::named_loopback_ports;

    #[test]
    fn ports_are_those_on_the_line() {
        let check =
            |line: &str, ports: &[u16]| assert_eq!(named_loopback_ports(line), ports, "{line}");
        check("curl -s http://127.0.0.1:8080/x?y=1:2", &[8080]);
        check(
            "curl localhost:3000 && curl 'http://[::1]:3001'",
            &[3000, 3001],
        );
        check("curl http://localhost/a https://localhost", &[80, 443]);
        check("nc localhost 5432", &[5432]);
        check("cat < /dev/tcp/127.0.0.1/8080 && ls localhost/90", &[8080]);
        check("psql -h 127.0.0.1 -c 'select 1'", &[]);
        check("curl http://localhost.example.org:80", &[]);
        check("curl http://mylocalhost:80 http://10.127.0.0.1:81", &[]);
        check("curl localhost:99999 localhost:0", &[]);
        check("make test", &[]);
    }
}
