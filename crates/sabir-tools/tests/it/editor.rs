//! Unsaved text of an editor: tools read it, change it through the editor, and never lose it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sabir_tools::{
    EditTool, Editor, EditorFailure, EditorFuture, NetworkScope, TerminalCommand, TerminalEnd,
    TerminalOutcome,
};
use sabir_workspace::{Bounds, Sandbox, SandboxLevel};
use serde_json::{Value, json};

use crate::Place;

/// An editor whose buffers are in memory.
#[derive(Debug, Default)]
struct FakeEditor {
    /// The texts of the open files, by name.
    open: Mutex<HashMap<String, String>>,
    /// The texts that were written, in order.
    writes: Mutex<Vec<(String, String)>>,
    takes_no_text: bool,
    refuses_text: bool,
    /// True once it answers no more.
    is_silent: AtomicBool,
    saves: bool,
    /// The output of a command in a terminal, if there are any.
    prints: Option<String>,
    /// A text that the user types after the first look at a file.
    typed_later: Mutex<Option<String>>,
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Editor for FakeEditor {
    fn can_write(&self) -> bool {
        !self.takes_no_text
    }

    fn read_text(&self, path: &Path) -> EditorFuture<String> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(EditorFailure::NoResponse)));
        }
        let mut open = self.open.lock().unwrap();
        let known = open.get(&name_of(path)).cloned();
        if let Some(typed) = self.typed_later.lock().unwrap().take() {
            open.insert(name_of(path), typed);
        }
        let answer = known.ok_or_else(|| EditorFailure::Refused("not open".to_owned()));
        Box::pin(std::future::ready(answer))
    }

    fn write_text(&self, path: &Path, text: &str) -> EditorFuture<()> {
        if self.refuses_text {
            let error = EditorFailure::Refused("read only".to_owned());
            return Box::pin(std::future::ready(Err(error)));
        }
        let written = (name_of(path), text.to_owned());
        self.writes.lock().unwrap().push(written.clone());
        self.open.lock().unwrap().insert(written.0, written.1);
        if self.saves {
            std::fs::write(path, text).unwrap();
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn has_terminals(&self) -> bool {
        self.prints.is_some()
    }

    fn run_command(&self, command: TerminalCommand) -> EditorFuture<TerminalOutcome> {
        assert_eq!(command.arguments, ["-c", command.text.as_str()]);
        let outcome = TerminalOutcome {
            end: TerminalEnd::Signaled("SIGTERM".to_owned()),
            output: self.prints.clone().unwrap(),
            is_truncated: false,
        };
        Box::pin(std::future::ready(Ok(outcome)))
    }
}

/// Creates a place with the files, each with its text on disk, and an editor that has some of them open.
fn edited(
    editor: FakeEditor,
    files: &[(&str, &str)],
    open: &[(&str, &str)],
) -> (Place, Arc<FakeEditor>) {
    let texts = open
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    editor.open.lock().unwrap().extend(texts);
    let editor = Arc::new(editor);
    let place = Place::with_editor(
        EditTool::ApplyPatch,
        NetworkScope::Only(Vec::new()),
        Bounds::new(),
        Sandbox::new(SandboxLevel::Off),
        Some(Arc::clone(&editor) as Arc<dyn Editor>),
    );
    files.iter().for_each(|(name, text)| place.put(name, text));
    (place, editor)
}

fn replacement(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "old_string": old, "new_string": new})
}

fn saving_editor() -> FakeEditor {
    FakeEditor {
        saves: true,
        ..FakeEditor::default()
    }
}

#[test]
fn unsaved_text_is_read_and_changed_through_the_editor() {
    let (place, editor) = edited(
        saving_editor(),
        &[("a.txt", "old\n")],
        &[("a.txt", "typed\n")],
    );
    place.done(
        "read_file",
        json!({"path": "a.txt"}),
        "1 | typed\n[This is the text in the user's editor, which is not saved: commands see the old file.]",
    );
    place.done(
        "edit_file",
        replacement("a.txt", "typed", "changed"),
        "Changed `a.txt`, 1 place:\n@@ -1 +1 @@\n-typed\n+changed",
    );
    assert_eq!(place.get("a.txt"), "changed\n");
    let writes = editor.writes.lock().unwrap().clone();
    assert_eq!(writes, [("a.txt".to_owned(), "changed\n".to_owned())]);
    // The file has the text now, so there is nothing more to say about it.
    place.done("read_file", json!({"path": "a.txt"}), "1 | changed");
}

#[test]
fn an_editor_that_does_not_save_is_reported() {
    let (place, _) = edited(
        FakeEditor::default(),
        &[("a.txt", "old\n")],
        &[("a.txt", "old\n")],
    );
    let change = replacement("a.txt", "old", "new");
    let note = "[The user's editor has this and has not saved it yet: commands see the old file.]";
    place.done(
        "edit_file",
        change,
        &format!("Changed `a.txt`, 1 place:\n@@ -1 +1 @@\n-old\n+new\n{note}"),
    );
    assert_eq!(place.get("a.txt"), "old\n");
    // The next change builds on the text in the editor.
    place.done(
        "write_to_file",
        json!({"path": "a.txt", "content": "newer\n"}),
        &format!("Wrote 1 line to `a.txt`, in place of its 1 line.\n{note}"),
    );
}

#[test]
fn an_editor_that_takes_no_text_loses_none() {
    let editor = FakeEditor {
        takes_no_text: true,
        ..FakeEditor::default()
    };
    let open = [("a.txt", "typed\n"), ("b.txt", "same\n")];
    let (place, _) = edited(editor, &[("a.txt", "old\n"), ("b.txt", "same\n")], &open);
    let refused = "`a.txt` has changes in the user's editor that are not saved, and the editor takes no text from here, so nothing was \
                   written. Ask the user to save or discard them.";
    place.fails("edit_file", replacement("a.txt", "typed", "x"), refused);
    place.fails(
        "write_to_file",
        json!({"path": "a.txt", "content": "x"}),
        refused,
    );
    assert_eq!(place.get("a.txt"), "old\n");
    // What is saved is changed on disk, where such an editor sees it.
    place.done(
        "edit_file",
        replacement("b.txt", "same", "other"),
        "Changed `b.txt`, 1 place:\n@@ -1 +1 @@\n-same\n+other",
    );
    assert_eq!(place.get("b.txt"), "other\n");
}

#[test]
fn an_editor_that_fails_to_write_loses_no_unsaved_text() {
    let editor = FakeEditor {
        refuses_text: true,
        ..FakeEditor::default()
    };
    let open = [("a.txt", "typed\n"), ("b.txt", "same\n")];
    let (place, _) = edited(editor, &[("a.txt", "old\n"), ("b.txt", "same\n")], &open);
    place.fails(
        "edit_file",
        replacement("a.txt", "typed", "x"),
        "`a.txt` has changes in the user's editor that are not saved, and the editor did not take the new text: read only. Ask the \
         user to save or discard their changes.",
    );
    assert_eq!(place.get("a.txt"), "old\n");
    place.done(
        "edit_file",
        replacement("b.txt", "same", "other"),
        "Changed `b.txt`, 1 place:\n@@ -1 +1 @@\n-same\n+other",
    );
    assert_eq!(place.get("b.txt"), "other\n");
}

#[test]
fn an_editor_that_falls_silent_keeps_its_unsaved_text() {
    let files = [("a.txt", "old\n"), ("b.txt", "same\n")];
    let open = [("a.txt", "typed\n"), ("b.txt", "same\n")];
    let (place, editor) = edited(saving_editor(), &files, &open);
    for name in ["a.txt", "b.txt"] {
        place.run("read_file", json!({"path": name}));
    }
    editor.is_silent.store(true, Ordering::Relaxed);
    let (output, _) = place.run("edit_file", replacement("a.txt", "typed", "x"));
    assert!(
        output.failed && output.content.contains("it does not answer"),
        "{}",
        output.content
    );
    assert_eq!(place.get("a.txt"), "old\n");
    // Nothing was unsaved there.
    let (output, _) = place.run("edit_file", replacement("b.txt", "same", "other"));
    assert!(!output.failed, "{}", output.content);
    assert_eq!(place.get("b.txt"), "other\n");
}

#[test]
fn text_that_is_typed_meanwhile_is_not_overwritten() {
    let editor = saving_editor();
    *editor.typed_later.lock().unwrap() = Some("typed meanwhile\n".to_owned());
    let (place, editor) = edited(editor, &[("a.txt", "old\n")], &[("a.txt", "typed\n")]);
    let (output, _) = place.run("edit_file", replacement("a.txt", "typed", "x"));
    assert!(output.failed, "{}", output.content);
    assert!(
        output.content.contains("changed on disk since"),
        "{}",
        output.content
    );
    assert_eq!(editor.writes.lock().unwrap().len(), 0);
    let text = editor.open.lock().unwrap()["a.txt"].clone();
    assert_eq!(text, "typed meanwhile\n");
}

#[test]
fn a_patch_of_several_files_spares_unsaved_text() {
    let files = [("a.txt", "old\n"), ("b.txt", "same\n")];
    let (place, editor) = edited(saving_editor(), &files, &[("a.txt", "typed\n")]);
    let patch = |text: &str| json!({"patch": format!("*** Begin Patch\n{text}*** End Patch")});
    let a = "*** Update File: a.txt\n@@\n-typed\n+x\n";
    let b = "*** Update File: b.txt\n@@\n-same\n+other\n";
    place.fails(
        "apply_patch",
        patch(&format!("{a}{b}")),
        "`a.txt` has changes in the user's editor that are not saved, so it cannot be changed together with other files, and nothing \
         was written. Change it in a call of its own.",
    );
    place.fails(
        "apply_patch",
        patch("*** Delete File: a.txt\n"),
        "`a.txt` has changes in the user's editor that are not saved, so it was not deleted. Ask the user to save or discard them.",
    );
    assert_eq!(
        (place.get("a.txt"), place.get("b.txt")),
        ("old\n".to_owned(), "same\n".to_owned())
    );
    let (output, _) = place.run("apply_patch", patch(a));
    assert!(!output.failed, "{}", output.content);
    assert_eq!(place.get("a.txt"), "x\n");
    assert_eq!(editor.writes.lock().unwrap().len(), 1);
}

#[test]
fn a_new_file_that_exists_only_in_the_editor_can_be_read() {
    let (place, _) = edited(
        saving_editor(),
        &[],
        &[("new.txt", "draft\n"), ("empty.txt", "")],
    );
    let (output, _) = place.run("read_file", json!({"path": "new.txt"}));
    assert!(
        output.content.starts_with("1 | draft"),
        "{}",
        output.content
    );
    let (output, _) = place.run("read_file", json!({"path": "empty.txt"}));
    assert!(output.failed, "{}", output.content);
}

#[test]
fn line_ends_and_encodings_are_no_unsaved_text() {
    let (place, editor) = edited(
        saving_editor(),
        &[("a.txt", "one\r\ntwo\r\n")],
        &[("a.txt", "one\ntwo\n")],
    );
    place.put("b.txt", [0xff, 0xfe, b'h', 0, b'i', 0, b'\n', 0]);
    editor
        .open
        .lock()
        .unwrap()
        .insert("b.txt".to_owned(), "hi\n".to_owned());
    place.done(
        "read_file",
        json!({"path": "a.txt"}),
        "1 | one\n2 | two\n[Lines end in CRLF.]",
    );
    let (output, _) = place.run("edit_file", replacement("b.txt", "hi", "ho"));
    assert!(!output.failed, "{}", output.content);
    // An editor might have written it as UTF-8.
    assert_eq!(
        std::fs::read(place.inner("b.txt")).unwrap(),
        [0xff, 0xfe, b'h', 0, b'o', 0, b'\n', 0]
    );
    assert_eq!(editor.writes.lock().unwrap().len(), 0);
}

#[test]
fn the_whole_output_of_a_terminal_can_be_read() {
    let lines: Vec<_> = (1..=20_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    let editor = FakeEditor {
        prints: Some(lines.concat()),
        ..FakeEditor::default()
    };
    let (place, _) = edited(editor, &[], &[]);
    let (output, _) = place.run("execute_command", json!({"command": "seq"}));
    assert!(output.failed);
    let text = output.content;
    assert!(
        text.starts_with("Ended by SIGTERM (15).") && text.contains("line 20000"),
        "{text}"
    );
    assert!(text.contains("read_command_output with output 1"), "{text}");
    let page = json!({"output": 1, "start_line": 9000});
    let (page, _) = place.run("read_command_output", page);
    assert!(page.content.contains("line 9000"), "{}", page.content);
    // A job in the background has no terminal.
    let job = json!({"command": "echo own", "background": true});
    let (started, _) = place.run("execute_command", job);
    assert!(started.content.contains("own"), "{}", started.content);
}

#[test]
fn an_approval_holds_only_for_the_text_that_was_shown() {
    let (place, editor) = edited(
        saving_editor(),
        &[("a.txt", "old\n")],
        &[("a.txt", "typed\n")],
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let call = place.prepare("edit_file", replacement("a.txt", "typed", "x"));
    runtime.block_on(call.refresh().unwrap());
    let shown = call.preconditions();
    assert!(call.preview().unwrap().contains("-typed"));
    editor
        .open
        .lock()
        .unwrap()
        .insert("a.txt".to_owned(), "typed on\n".to_owned());
    runtime.block_on(call.refresh().unwrap());
    assert_ne!(shown, call.preconditions());
}
