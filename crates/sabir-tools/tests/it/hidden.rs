//! Tests what the model learns of files that the user hides from it.

use sabir_policy::Access;
use sabir_workspace::Bounds;
use serde_json::json;

use crate::Place;

fn place(bounds: Bounds) -> Place {
    let place = Place::bounded(bounds);
    for (name, content) in [
        (".env", "TOKEN=1\n"),
        ("src/a.rs", "fn a() {}\n"),
        ("src/key.rs", "fn key() {}\n"),
    ] {
        place.put(name, content);
    }
    place.put(".sabirignore", ".env\nkey.*\n");
    std::os::unix::fs::symlink(".env", place.inner("alias")).unwrap();
    place
}

#[test]
fn hidden_files() {
    let place = place(Bounds::new().ignore_files([".sabirignore"]));
    let words = "`.env` is hidden by .sabirignore; work without it, or ask the user.";
    place.fails(
        "read_file",
        json!({"path": "alias", "start_line": 1}),
        words,
    );
    place.fails("search_files", json!({"path": ".env", "regex": "."}), words);
    place.fails(
        "write_to_file",
        json!({"path": ".env", "content": ""}),
        words,
    );
    place.fails(
        "list_code_definition_names",
        json!({"path": "src/key.rs"}),
        &words.replace(".env", "src/key.rs"),
    );
    for (tool, arguments) in [
        ("read_file", json!({"path": ".env"})),
        ("read_file", json!({"path": "alias"})),
        ("write_to_file", json!({"path": ".env", "content": ""})),
        (
            "apply_patch",
            json!({"patch": "*** Begin Patch\n*** Delete File: .env\n*** End Patch"}),
        ),
    ] {
        // Calls that cannot succeed are not asked about.
        assert_eq!(
            place.access(tool, arguments),
            Access::Invalid {
                reason: words.to_owned()
            }
        );
    }
    let patch = |text: &str| json!({"patch": format!("*** Begin Patch\n{text}\n*** End Patch")});
    for text in [
        "*** Delete File: .env",
        "*** Add File: .env\n+x",
        "*** Update File: .env\n@@\n-TOKEN=1\n+TOKEN=2",
        "*** Update File: src/a.rs\n*** Move to: .env\n@@\n-fn a() {}\n+fn b() {}",
        "*** Update File: .env\n*** Move to: shown\n@@\n-TOKEN=1\n+TOKEN=2",
    ] {
        place.fails(
            "apply_patch",
            patch(text),
            &format!("The patch was not applied, and no file was changed:\n{words}"),
        );
    }
    assert_eq!(place.get(".env"), "TOKEN=1\n");
    let listed = ".sabirignore\nalias (link)\nsrc/\nsrc/a.rs\n[The user hides 2 more names: work without, or ask.]";
    place.done(
        "list_files",
        json!({"path": ".", "recursive": true}),
        listed,
    );
    place.done(
        "list_code_definition_names",
        json!({"path": "src"}),
        "src/a.rs\n1: fn a()",
    );
    let found = place
        .run("search_files", json!({"regex": "TOKEN|fn"}))
        .0
        .content;
    assert!(
        found.contains("src/a.rs") && !found.contains("TOKEN") && !found.contains("key"),
        "{found}"
    );
    // Suggestions for missing files contain no hidden names.
    let missing = place
        .run("read_file", json!({"path": "src/kez.rs"}))
        .0
        .content;
    assert!(!missing.contains("key.rs"), "{missing}");
    let ignore_file = place.access(
        "write_to_file",
        json!({"path": "src/.sabirignore", "content": ""}),
    );
    assert!(
        matches!(
            ignore_file,
            Access::Write {
                protected: Some(_),
                ..
            }
        ),
        "{ignore_file:?}"
    );
}

#[test]
fn limits() {
    let limit = Bounds::new()
        .read_only()
        .with_limit_reason("the mode `plan` changes nothing; finish the plan, or ask for another");
    let place = place(limit);
    let words = "`src/a.rs` cannot be written, and nothing was: the mode `plan` changes nothing; finish the plan, or ask for \
                 another.";
    let call = json!({"path": "src/a.rs", "content": ""});
    assert_eq!(
        place.access("write_to_file", call.clone()),
        Access::Invalid {
            reason: words.to_owned()
        }
    );
    place.fails("write_to_file", call, words);
    place.done("read_file", json!({"path": "src/a.rs"}), "1 | fn a() {}");
}
