//! Tests `torture --endpoint` through the binary, with `gateway` as the gateway.

use std::process::Stdio;

use serde_json::Value;

use crate::world::{World, code, stderr, stdout};

#[test]
fn the_gateway_passes_every_case() {
    let world = World::new();
    let port = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let provider = port();
    let address = format!("127.0.0.1:{}", port());
    let mut gateway = world
        .sabir()
        .args(["gateway", "--model", "torture-1", "--no-token", "--quiet"])
        .args(["--to", &format!("http://127.0.0.1:{provider}")])
        .args(["--listen", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = world
        .sabir()
        .args(["torture", "--endpoint", &format!("http://{address}")])
        .args(["--listen", &provider, "--json"])
        .args(["--client", "openai", "--client", "anthropic"])
        .args(["--client", "ollama"])
        .output()
        .unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 72);
    for cell in cells {
        assert_eq!(cell["verdict"], "passed", "{cell:#}");
    }
}
