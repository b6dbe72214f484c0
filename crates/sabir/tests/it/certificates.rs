//! Tests whose TLS certificates the binary accepts.

use std::process::Output;

use sabir_testkit::{ProviderReply, UntrustedServer};
use sabir_wire::Wire;

use crate::world::{World, code, stderr, stdout};

/// A server with a certificate of an authority of its own, as companies have.
fn private_server() -> UntrustedServer {
    let reply = ProviderReply::text("The answer is here.");
    let body = reply.encode_stream(Wire::OpenAiChat, sabir_wire::ResponseMetadata::default());
    let mut response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend(body);
    UntrustedServer::start_with(response).unwrap()
}

/// Asks a model of that server, with these variables set.
fn ask(world: &World, server: &UntrustedServer, variables: &[(&str, &str)]) -> Output {
    let model = format!("{}#scripted", server.base_url());
    let mut command = world.sabir();
    command.envs(variables.iter().copied());
    command.args([
        "run",
        "--model",
        &model,
        "--protocol",
        "native",
        "what is it?",
    ]);
    command.output().unwrap()
}

#[test]
fn an_authority_of_ssl_cert_file_is_trusted_and_no_other() {
    let world = World::new();
    let server = private_server();
    let refused = ask(&world, &server, &[]);
    assert_eq!(code(&refused), 7, "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("certificate"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(server.connection_counts().1, 0, "no request is sent to it");

    let file = world.home.path().join("authority.pem");
    std::fs::write(&file, UntrustedServer::authority_pem()).unwrap();
    let trusted = ask(
        &world,
        &server,
        &[("SSL_CERT_FILE", file.to_str().unwrap())],
    );
    assert_eq!(code(&trusted), 0, "{}", stderr(&trusted));
    assert_eq!(stdout(&trusted), "The answer is here.\n");

    // A file without that authority is no help, and one that cannot be read is not an open door.
    let other = world.home.path().join("other.pem");
    std::fs::write(&other, "").unwrap();
    let missing = world.home.path().join("missing.pem");
    for file in [other, missing] {
        let refused = ask(
            &world,
            &server,
            &[("SSL_CERT_FILE", file.to_str().unwrap())],
        );
        assert_eq!(code(&refused), 7, "{}", stderr(&refused));
    }
    assert_eq!(server.connection_counts().1, 1);
}
