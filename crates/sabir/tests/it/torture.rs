//! Tests `torture` through the binary: small agents, and `--endpoint` with `gateway` as the gateway.

use std::process::Stdio;

use serde_json::Value;

use crate::case_count::sampled_positions;
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
    let clients = ["openai", "anthropic", "ollama"];
    let sampled: Vec<&str> = sampled_positions(0, clients.len(), 1)
        .map(|at| clients[at])
        .collect();
    let output = world
        .sabir()
        .args(["torture", "--endpoint", &format!("http://{address}")])
        .args(["--listen", &provider, "--json"])
        .args(sampled.iter().flat_map(|client| ["--client", *client]))
        .output()
        .unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 24 * sampled.len());
    for cell in cells {
        assert_eq!(cell["verdict"], "passed", "{cell:#}");
    }
}

#[test]
fn a_run_that_tests_nothing_fails() {
    let world = World::new();
    let output = world
        .sabir()
        .args([
            "torture", "--case", "native", "--name", "mine", "--", "true",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(
        stdout(&output).contains("| case | mine |"),
        "{}",
        stdout(&output)
    );
    assert!(
        stdout(&output).contains("| native | never asked |"),
        "{}",
        stdout(&output)
    );
    for text in [
        "`mine` never asked the provider in 1 of 1 cases",
        "`{task}`",
        "`{base_url}`",
    ] {
        assert!(
            stderr(&output).contains(text),
            "{text}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn the_programs_path_starts_in_the_current_folder() {
    let world = World::new();
    let cell = |program: &str| {
        let mut command = world.sabir();
        command.args(["torture", "--case", "native", "--json", "--", program]);
        command.output().unwrap()
    };
    std::fs::create_dir(world.work.path().join("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/true", world.work.path().join("bin/agent")).unwrap();
    let output = cell("./bin/agent");
    assert!(
        stdout(&output).contains("\"exit code 0\""),
        "{}",
        stderr(&output)
    );

    let output = cell("bin/missing");
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert_eq!(
        stderr(&output).matches("did not run").count(),
        1,
        "{}",
        stderr(&output)
    );
    let path = world.work.path().join("bin/missing").display().to_string();
    assert!(stderr(&output).contains(&path), "{}", stderr(&output));
}

#[test]
fn files_of_results_are_checked_before_the_runs() {
    let world = World::new();
    let output = world
        .sabir()
        .args(["torture", "--case", "native", "--junit", "results.xml"])
        .args(["--html", "no/such/folder.html", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no/such/folder.html"),
        "{}",
        stderr(&output)
    );
    assert!(!world.work.path().join("torture").exists());
    assert!(!world.work.path().join("results.xml").exists());
}
