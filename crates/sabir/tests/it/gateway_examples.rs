//! Tests that the examples of `docs/gateway.md` are valid: the configuration, the systemd unit and the compose file.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{World, skipped};

/// The first block of that language.
fn block(language: &str) -> String {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/gateway.md"
    ))
    .unwrap();
    let inside = text
        .lines()
        .skip_while(|line| *line != format!("```{language}"))
        .skip(1);
    inside
        .take_while(|line| *line != "```")
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Runs a system program and returns its output; prints a message and returns `None` if it is missing.
fn said_by(program: &str, arguments: &[&str]) -> Option<(bool, String, String)> {
    let output = match Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            skipped(&format!("{program} cannot be run: {error}"));
            return None;
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

/// Starts the gateway by that line of an example, with its configuration, at a free address; it must listen.
fn starts(line: &str) {
    let world = World::new();
    let file = world.write("config.toml", &block("toml"));
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "gateway");
    let mut command = world.sabir();
    while let Some(word) = words.next() {
        match word {
            "--config" => _ = (words.next(), command.arg("--config").arg(&file)),
            "--listen" => _ = words.next(),
            word => _ = command.arg(word),
        }
    }
    command
        .args(["--listen", "127.0.0.1:0"])
        .env("SABIR_GATEWAY_TOKEN", "of-tests");
    command
        .env("OPENROUTER_API_KEY", "k")
        .env("BOX_KEY", "k")
        .stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    _ = (child.kill(), child.wait());
    assert!(
        said.starts_with("listening on http://127.0.0.1:"),
        "{line}: {said}"
    );
}

#[test]
fn the_systemd_unit_is_valid() {
    let unit = block("ini");
    starts(
        unit.lines()
            .find_map(|line| line.strip_prefix("ExecStart="))
            .unwrap(),
    );
    let world = World::new();
    // The unit is valid only if the program exists.
    let text = unit.replace("/usr/local/bin/sabir", env!("CARGO_BIN_EXE_sabir"));
    let path = world.write("sabir-gateway-example.service", &text);
    let Some((_, _, errors)) = said_by(
        "systemd-analyze",
        &["verify", "--man=no", path.to_str().unwrap()],
    ) else {
        return;
    };
    // It also reports problems of other units of the machine.
    let wrong: Vec<_> = errors
        .lines()
        .filter(|line| line.contains("sabir-gateway-example"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_compose_file_is_valid() {
    let text = block("yaml");
    starts(
        text.lines()
            .find_map(|line| line.trim().strip_prefix("command: "))
            .unwrap(),
    );
    let read = "import sys, json, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
    let Some((read, json, errors)) = said_by("python3", &["-c", read, &text]) else {
        return;
    };
    if !read && errors.contains("No module named 'yaml'") {
        return skipped("python3 has no yaml");
    }
    assert!(read, "{errors}");
    let file: Value = serde_json::from_str(&json).unwrap();
    let services = file["services"].as_object().unwrap();
    assert_eq!(services.keys().collect::<Vec<_>>(), ["gateway", "balancer"]);
    let gateway = &services["gateway"];
    let mounted = |service: &Value, place: &str| {
        service["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it.as_str().unwrap().contains(place))
    };
    assert!(
        mounted(gateway, ":/etc/sabir/config.toml:")
            && mounted(&services["balancer"], "nginx.conf"),
        "{file:#}"
    );
    assert!(
        gateway["command"]
            .as_str()
            .unwrap()
            .contains("--config /etc/sabir/config.toml")
    );
}
