//! Package managers reach their registries through the recorded proxy, and nothing else does.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, skipped, stderr, stdout};

use super::commands::endings;

/// Serves the files of a folder at an address that is none of the sandbox's own.
fn serve(folder: PathBuf) -> u16 {
    serve_at(IpAddr::from([127, 0, 0, 2]), folder)
}

/// Serves the files of a folder at an address of this machine.
fn serve_at(address: IpAddr, folder: PathBuf) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let folder = folder.clone();
            std::thread::spawn(move || answer(client, &folder));
        }
    });
    port
}

fn answer(mut client: TcpStream, folder: &Path) {
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    while lines
        .next()
        .and_then(Result::ok)
        .is_some_and(|line| !line.is_empty())
    {}
    let path = first
        .split(' ')
        .nth(1)
        .unwrap_or("/")
        .trim_matches('/')
        .to_owned();
    let file = folder.join(&path);
    let file = if file.is_dir() {
        file.join("index.html")
    } else {
        file
    };
    let (status, body) = match fs::read(file) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let kind = if path.ends_with(".tgz") || path.ends_with(".whl") || path.ends_with(".crate") {
        "application/octet-stream"
    } else if path.starts_with("npm") {
        "application/json"
    } else {
        "text/html"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = client.write_all(head.as_bytes());
    let _ = client.write_all(&body);
}

/// Runs a script with the program's usual tools. `None` if one of them is missing.
fn script(folder: &Path, text: &str) -> Option<Output> {
    let output = Command::new("bash")
        .args(["-euc", text])
        .current_dir(folder)
        .output()
        .ok()?;
    output.status.success().then_some(output)
}

/// Creates a world whose configuration lists a local registry. `None` without level 2.
fn world_with_registry() -> Option<(World, PathBuf, u16)> {
    let (world, files) = world_at_level_2()?;
    let port = serve(files.clone());
    world.configure(format!("private_registries = [\"127.0.0.2:{port}\"]\n"));
    Some((world, files, port))
}

/// Creates a world with a folder for the files of a registry. `None` without level 2.
fn world_at_level_2() -> Option<(World, PathBuf)> {
    let world = World::new();
    let probe = ["sandbox", "--level", "2", "--", "true"];
    let output = world.sabir().args(probe).output().unwrap();
    if code(&output) != 0 {
        skipped(&format!("no level 2: {}", stderr(&output)));
        return None;
    }
    let files = world.home.path().join("registry");
    fs::create_dir(&files).unwrap();
    Some((world, files))
}

/// Creates a world with a registry that has the name of this machine: go and Java use no proxy for loopback addresses. Returns
/// its name and port, too. `None` without level 2 or without such a name.
fn world_with_named_registry() -> Option<(World, PathBuf, String)> {
    let (world, files) = world_at_level_2()?;
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_lowercase();
    let address = (name.as_str(), 0).to_socket_addrs().ok()?.next();
    let Some(address) = address.filter(|_| name != "localhost") else {
        skipped("the name of this machine has no address");
        return None;
    };
    let port = serve_at(address.ip(), files.clone());
    let registry = format!("{name}:{port}");
    world.configure(format!("private_registries = [\"{registry}\"]\n"));
    Some((world, files, registry))
}

#[test]
fn go_downloads_from_a_listed_registry() {
    let Some((world, files, registry)) = world_with_named_registry() else {
        return;
    };
    let module = "go version; mkdir -p go/example.org/demo/@v m/example.org/demo@v1.0.0; cd go/example.org/demo/@v\n\
        echo v1.0.0 > list; echo '{\"Version\":\"v1.0.0\",\"Time\":\"2020-01-01T00:00:00Z\"}' > v1.0.0.info\n\
        echo 'module example.org/demo' > v1.0.0.mod; cp v1.0.0.mod ../../../../m/example.org/demo@v1.0.0/go.mod\n\
        echo 'package demo // it is here' > ../../../../m/example.org/demo@v1.0.0/demo.go\n\
        cd ../../../../m; python3 -c \"import zipfile; z = zipfile.ZipFile('../go/example.org/demo/@v/v1.0.0.zip', 'w'); \
        [z.write('example.org/demo@v1.0.0/' + name) for name in ('go.mod', 'demo.go')]; z.close()\"";
    if script(&files, module).is_none() {
        return skipped("no go, or no python3");
    }
    world.write("go.mod", "module x\n\nrequire example.org/demo v1.0.0\n");
    let line = format!(
        "export GOPROXY=http://{registry}/go GOSUMDB=off GOFLAGS=-mod=mod; go mod download example.org/demo && \
         cat \"$(go list -m -f '{{{{.Dir}}}}' example.org/demo)/demo.go\""
    );
    let output = confined(&world, &line);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert!(
        stdout(&output).contains("it is here"),
        "{}",
        stdout(&output)
    );
    let recorded = format!("it reached {registry}");
    assert!(stderr(&output).contains(&recorded), "{}", stderr(&output));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn maven_fetches_from_a_listed_registry() {
    let Some((world, files, registry)) = world_with_named_registry() else {
        return;
    };
    let parent = "mvn --version; mkdir -p maven/demo/parent/1.0\n\
        echo '<project><modelVersion>4.0.0</modelVersion><groupId>demo</groupId><artifactId>parent</artifactId>\
        <version>1.0</version><packaging>pom</packaging></project>' > maven/demo/parent/1.0/parent-1.0.pom";
    if script(&files, parent).is_none() {
        return skipped("no mvn");
    }
    world.write(
        "pom.xml",
        "<project><modelVersion>4.0.0</modelVersion><parent><groupId>demo</groupId><artifactId>parent</artifactId>\
         <version>1.0</version><relativePath/></parent><artifactId>x</artifactId><packaging>pom</packaging></project>",
    );
    // Without a mirror of that id, maven refuses registries without TLS.
    let settings = format!(
        "<settings><mirrors><mirror><id>maven-default-http-blocker</id><mirrorOf>none</mirrorOf><url>http://x/</url></mirror>\
         <mirror><id>own</id><mirrorOf>central</mirrorOf><url>http://{registry}/maven/</url></mirror></mirrors></settings>"
    );
    world.write("settings.xml", &settings);
    let output = confined(&world, "mvn -B -s settings.xml validate");
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert!(
        stdout(&output).contains("BUILD SUCCESS"),
        "{}",
        stdout(&output)
    );
    let recorded = format!("it reached {registry}");
    assert!(stderr(&output).contains(&recorded), "{}", stderr(&output));
}

fn confined(world: &World, command: &str) -> Output {
    let mut sabir = world.sabir();
    if let Some(folder) = std::env::var_os("CARGO").map(PathBuf::from) {
        // The tool chain that built this test; a chooser of tool chains would look into the empty
        // home.
        let mut path = folder.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        sabir.env("PATH", path);
    }
    sabir
        .args(["sandbox", "--network", "registries", "--", command])
        .output()
        .unwrap()
}

#[track_caller]
fn check_reached(output: &Output, port: u16) {
    assert_eq!(code(output), 0, "{}{}", stdout(output), stderr(output));
    let recorded = format!("it reached 127.0.0.2:{port}");
    assert!(stderr(output).contains(&recorded), "{}", stderr(output));
}

/// Runs these calls, and returns all that was printed and the ending of each call.
fn run(world: &World, folder: &Path, calls: Vec<Value>, flags: &[&str]) -> (String, Vec<String>) {
    let (output, found) = endings(world, WAYS[1], folder, calls, flags);
    (format!("{}{}", stdout(&output), stderr(&output)), found)
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn pip_installs_from_a_listed_registry() {
    let Some((world, files, port)) = world_with_registry() else {
        return;
    };
    let wheel = "mkdir -p pip/simple/demo; python3 - <<'X'\nimport zipfile\n\
        z = zipfile.ZipFile('pip/demo-1.0-py3-none-any.whl', 'w')\n\
        z.writestr('demo.py', 'print(\"demo runs\")')\nd = 'demo-1.0.dist-info/'\n\
        z.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')\n\
        z.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        z.writestr(d + 'RECORD', '')\nz.close()\nX\n\
        echo '<a href=\"/pip/demo-1.0-py3-none-any.whl\">demo-1.0-py3-none-any.whl</a>' > pip/simple/demo/index.html\n\
        python3 -m pip --version >&2; python3 -c 'import sys; print(sys.executable)'";
    let Some(found) = script(&files, wheel) else {
        return skipped("no pip");
    };
    // A chooser of interpreters in front of it may want to write in its own folder.
    let python = stdout(&found).trim().to_owned();
    let line = format!(
        "{python} -m pip install -q --no-input --disable-pip-version-check --target lib demo \
         --index-url http://127.0.0.2:{port}/pip/simple --trusted-host 127.0.0.2 && {python} lib/demo.py"
    );
    let output = confined(&world, &line);
    check_reached(&output, port);
    assert!(stdout(&output).contains("demo runs"), "{}", stdout(&output));
}

#[test]
fn npm_installs_from_a_listed_registry() {
    let Some((world, files, port)) = world_with_registry() else {
        return;
    };
    let package = "mkdir -p npm/demo package; npm --version\n\
        echo '{\"name\":\"demo\",\"version\":\"1.0.0\",\"main\":\"index.js\"}' > package/package.json\n\
        echo 'console.log(\"demo runs\")' > package/index.js\ntar czf npm/demo-1.0.0.tgz package";
    if script(&files, package).is_none() {
        return skipped("no npm");
    }
    let tarball = format!("http://127.0.0.2:{port}/npm/demo-1.0.0.tgz");
    let version = json!({"name": "demo", "version": "1.0.0", "main": "index.js", "dist": {"tarball": tarball}});
    let listing =
        json!({"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}});
    fs::write(files.join("npm/demo/index.html"), listing.to_string()).unwrap();
    world.write("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\"}");
    let line = format!(
        "npm install --no-audit --no-fund --registry http://127.0.0.2:{port}/npm/ demo && node -e 'require(\"demo\")'"
    );
    let output = confined(&world, &line);
    check_reached(&output, port);
    assert!(stdout(&output).contains("demo runs"), "{}", stdout(&output));
}

#[test]
fn cargo_fetches_from_a_listed_registry() {
    let Some((world, files, port)) = world_with_registry() else {
        return;
    };
    let package = "mkdir -p cargo/de/mo demo-1.0.0/src\n\
        printf '[package]\\nname = \"demo\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' > demo-1.0.0/Cargo.toml\n\
        echo 'pub const DEMO: u8 = 1;' > demo-1.0.0/src/lib.rs\ntar czf cargo/demo.crate demo-1.0.0\n\
        sum=$(sha256sum cargo/demo.crate | cut -d' ' -f1)\n\
        echo '{\"name\":\"demo\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"'$sum'\",\"features\":{},\"yanked\":false}' > cargo/de/mo/demo";
    if script(&files, package).is_none() {
        return skipped("no tar or sha256sum");
    }
    let config = json!({"dl": format!("http://127.0.0.2:{port}/cargo/{{crate}}.crate")});
    fs::write(files.join("cargo/config.json"), config.to_string()).unwrap();
    fs::create_dir_all(world.work.path().join(".cargo")).unwrap();
    fs::create_dir_all(world.work.path().join("src")).unwrap();
    let source = format!(
        "[source.crates-io]\nreplace-with = \"local\"\n[source.local]\nregistry = \"sparse+http://127.0.0.2:{port}/cargo/\"\n"
    );
    world.write(".cargo/config.toml", &source);
    world.write("src/lib.rs", "");
    world.write(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\ndemo = \"1\"\n",
    );
    let output = confined(&world, "cargo fetch && ls \"$CARGO_HOME\"/registry/cache/*");
    check_reached(&output, port);
    assert!(
        stdout(&output).contains("demo-1.0.0.crate"),
        "{}",
        stdout(&output)
    );
}

/// What no package manager needs is refused, and the message names the wall and the switch.
#[test]
fn other_hosts_are_refused() {
    let Some((world, files, port)) = world_with_registry() else {
        return;
    };
    fs::write(files.join("x"), "reached").unwrap();
    let other = serve(files);
    if script(world.work.path(), "curl --version").is_none() {
        return skipped("no curl");
    }
    let proxy = format!("http://127.0.0.2:{port}/x");
    for (line, expected) in [
        (format!("curl -sSf http://127.0.0.2:{other}/x"), "the host is not listed (`registries` in config.toml)"),
        (format!("curl -sSfp http://127.0.0.2:{other}/x"), "the host is not listed"),
        ("curl -sSf http://example.org/".to_owned(), "kept it from example.org:80"),
        ("curl -sSf https://127.0.0.1:1/ --proxy $HTTPS_PROXY --noproxy ''".to_owned(), "kept it from 127.0.0.1:1"),
        ("curl -sSf http://169.254.169.254/latest --proxy $HTTP_PROXY".to_owned(), "kept it from 169.254.169.254:80"),
        // A listed name on another port, and plain HTTP to a public registry.
        ("curl -sSf http://pypi.org/simple/".to_owned(), "kept it from pypi.org:80"),
        ("curl -sSf http://pypi.org:443/simple/".to_owned(), "kept it from pypi.org:443"),
        // Around the proxy there is no way: the address is one of the namespace's own.
        (format!("curl -sSf --noproxy '*' {proxy}"), ""),
        ("bash -c 'echo > /dev/udp/127.0.0.2/53' && curl -sSf --noproxy '*' telnet://127.0.0.2:22".to_owned(), ""),
    ] {
        let output = confined(&world, &line);
        assert_ne!(code(&output), 0, "{line}: {}", stdout(&output));
        assert!(!stdout(&output).contains("reached"), "{line}");
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
    }
    let output = confined(&world, &format!("curl -sSf {proxy}"));
    check_reached(&output, port);
    // Level 1 has no namespace to put a proxy in.
    let level = [
        "sandbox",
        "--level",
        "1",
        "--network",
        "registries",
        "--",
        "true",
    ];
    let output = world.sabir().args(level).output().unwrap();
    assert!(
        stderr(&output).contains("use level 2"),
        "{}",
        stderr(&output)
    );
    world.configure("registries = [\"https://x.example/\"]\n");
    let output = confined(&world, "true");
    assert!(
        stderr(&output).contains("names no host"),
        "{}",
        stderr(&output)
    );
}

/// The model asks for registries by an argument; the approval of registries is none of the whole network.
#[test]
fn a_task_reaches_registries_once_they_are_approved() {
    let Some((world, files, port)) = world_with_registry() else {
        return;
    };
    if script(world.work.path(), "curl --version").is_none() {
        return skipped("no curl");
    }
    fs::write(files.join("x"), "reached\n").unwrap();
    let folder = world.work.path().join("proj");
    fs::create_dir(&folder).unwrap();
    let line = format!("curl -sSf http://127.0.0.2:{port}/x > x.txt");
    let calls = |arguments| vec![arguments];
    let wanted = json!({"command": line, "registries": true});
    let (_, denied) = run(
        &world,
        &folder,
        calls(wanted.clone()),
        &["--approve", "commands"],
    );
    assert_eq!(denied, ["denied"]);
    assert!(!folder.join("x.txt").exists());
    let approved = ["--approve", "commands", "--approve", "registries"];
    let (_, network) = run(
        &world,
        &folder,
        calls(json!({"command": line, "network": true})),
        &approved,
    );
    assert_eq!(network, ["denied"]);
    let (output, done) = run(&world, &folder, calls(wanted), &approved);
    assert_eq!(done, ["done"], "{output}");
    assert!(
        output.contains(&format!("It reached 127.0.0.2:{port}")),
        "{output}"
    );
    assert_eq!(
        fs::read_to_string(folder.join("x.txt")).unwrap(),
        "reached\n"
    );
    // Given to the whole task, no question is left; what only reads runs without them all the same.
    let (output, done) = run(
        &world,
        &folder,
        vec![json!({"command": line}), json!({"command": "ls"})],
        &["--approve", "commands", "--network", "registries"],
    );
    assert_eq!(done, ["done", "done"], "{output}");
}
