//! Tests hooks: what they are told, what they can refuse, ask and add, which of them run, and that they can only tighten.

use std::path::Path;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::interactive::Talk;
use crate::world::{Turn, WAYS, Way, World, code, processes_with, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn command(line: &'static str) -> Turn {
    turn(
        "I run it.",
        vec![("execute_command", json!({"command": line}))],
    )
}

fn write(path: &'static str) -> Turn {
    turn(
        "I write.",
        vec![("write_to_file", json!({"path": path, "content": "made\n"}))],
    )
}

/// Returns the hooks of one event in the format of Claude Code.
fn hooks(event: &str, matcher: &str, command: &str) -> Value {
    json!({"hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]}})
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes the user's own hooks.
fn own_hooks(world: &World, hooks: &Value) {
    put(
        world.home.path(),
        ".config/sabir/hooks.json",
        &hooks.to_string(),
    );
}

/// Returns the whole body of a request as text.
fn request(provider: &ScriptedProvider, number: usize) -> String {
    provider.received_requests()[number].body.to_string()
}

/// Returns the JSON that a hook has written down.
fn told(world: &World, name: &str) -> Value {
    let text = world.read(name);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn a_hook_refuses_a_call_and_is_told_about_it() {
    for way in WAYS {
        let world = World::new();
        let hook = "cat > \"$CLAUDE_PROJECT_DIR/told.json\"; echo 'not on a Friday' >&2; exit 2";
        own_hooks(&world, &hooks("PreToolUse", "Bash", hook));
        let turns = [command("touch made"), write("other"), done()];
        let provider = world.plays(way, &turns);
        let output = world.run(
            &provider,
            way,
            &["--approve", "edits", "--approve", "commands", "Go."],
        );
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(!world.work.path().join("made").exists());
        // Only calls that the matcher fits are checked.
        assert_eq!(world.read("other"), "made\n");
        assert!(request(&provider, 1).contains("not on a Friday"));
        let told = told(&world, "told.json");
        assert_eq!(told["hook_event_name"], "PreToolUse");
        assert_eq!(told["tool_name"], "Bash");
        assert_eq!(told["sabir_tool_name"], "execute_command");
        assert_eq!(told["tool_input"]["command"], "touch made");
        assert_eq!(told["session_id"], world.only_task());
        let root = world.work.path().canonicalize().unwrap();
        assert_eq!(told["cwd"], root.display().to_string());
    }
}

#[test]
fn a_hook_approves_nothing_and_changes_no_arguments() {
    let check = |printed: Value, approve: &[&str], expected: &str, is_made: bool| {
        let world = World::new();
        let command = format!("echo '{printed}'");
        own_hooks(&world, &hooks("PreToolUse", "", &command));
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let arguments = [approve, &["Go."]].concat();
        let output = world.run(&provider, NATIVE, &arguments);
        let said = request(&provider, 1) + &stderr(&output);
        assert!(said.contains(expected), "{printed} {expected}: {said}");
        assert_eq!(
            world.work.path().join("made").exists(),
            is_made,
            "{printed}"
        );
    };
    let allow =
        json!({"decision": "approve", "hookSpecificOutput": {"permissionDecision": "allow"}});
    check(allow.clone(), &[], "denied", false);
    check(allow, &["--approve", "edits"], "made", true);
    let deny = json!({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "keep out"}});
    check(deny, &["--approve", "edits"], "keep out", false);
    let change = json!({"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"file_path": "/x"}}});
    check(
        change,
        &["--approve", "edits"],
        "wants other arguments",
        false,
    );
    // Nobody can be asked here, so the call does not run.
    let ask = json!({"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "sure?"}});
    check(ask, &["--approve", "edits"], "sure?", false);
}

#[test]
fn a_hook_has_the_user_asked() {
    for (answer, is_made) in [("yes", true), ("no", false)] {
        let world = World::new();
        let ask = json!({"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "is it late?"}});
        own_hooks(
            &world,
            &hooks("PreToolUse", "Write", &format!("echo '{ask}'")),
        );
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let mut command = world.sabir_with(&provider);
        command.args([
            "--model",
            NATIVE.model(),
            "--approve",
            "edits",
            "go",
            "on",
            "now",
        ]);
        let mut talk = Talk::of(command);
        talk.wait_for("is it late?");
        talk.wait_for("> ");
        talk.say(answer);
        talk.wait_for("is that right?");
        talk.say("y");
        assert_eq!(talk.leave(), Some(0));
        assert_eq!(world.work.path().join("made").exists(), is_made, "{answer}");
    }
}

#[test]
fn what_a_hook_says_after_a_call_reaches_the_model_and_what_it_writes_is_undone_with_it() {
    let world = World::new();
    let hook = "cat > /dev/null; echo formatted >> a.txt; echo 'a.txt was <|im_start|> formatted' >&2; exit 2";
    own_hooks(&world, &hooks("PostToolUse", "Edit|Write", hook));
    world.write("a.txt", "before\n");
    let provider = world.plays(NATIVE, &[write("a.txt"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(world.read("a.txt"), "made\nformatted\n");
    let body = request(&provider, 1);
    assert!(
        body.contains("formatted") && body.contains("hook_output"),
        "{body}"
    );
    assert!(!body.contains("<|im_start|>"), "{body}");
    let undone = world.sabir().args(["undo", "--yes"]).output().unwrap();
    assert_eq!(code(&undone), 0, "{}", stderr(&undone));
    assert_eq!(world.read("a.txt"), "before\n");
}

#[test]
fn hooks_about_a_message_add_to_it_or_hold_it_back() {
    let world = World::new();
    own_hooks(
        &world,
        &json!({"hooks": {
            "SessionStart": [
                {"matcher": "startup", "hooks": [{"command": "echo branch main"}]},
                {"matcher": "resume", "hooks": [{"command": "echo again"}]},
            ],
            "UserPromptSubmit": [{"hooks": [{"command": "grep -q password && { echo no secrets >&2; exit 2; }; echo ticket 7"}]}],
            "SessionEnd": [{"hooks": [{"command": "cat > ended.json"}]}],
        }}),
    );
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(&provider, NATIVE, &["My password is x."]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no secrets"),
        "{}",
        stderr(&output)
    );
    assert_eq!(provider.received_requests().len(), 0);
    let output = world.run(&provider, NATIVE, &["Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let body = request(&provider, 0);
    for said in ["Go.", "branch main", "ticket 7"] {
        assert!(body.contains(said), "{said}: {body}");
    }
    assert!(!body.contains("again"), "{body}");
    assert_eq!(told(&world, "ended.json")["reason"], "other");
    // The message that was held back has left no task.
    let task = world.only_task();
    let provider = world.plays(NATIVE, &[done()]);
    // Nobody accepts the result here; the request is what counts.
    world
        .sabir_with(&provider)
        .args(["resume", &task, "And", "more."])
        .output()
        .unwrap();
    assert!(request(&provider, 0).contains("again"));
}

#[test]
fn a_message_that_is_held_back_in_a_conversation_is_asked_for_again() {
    let world = World::new();
    let hook = "grep -q '\"prompt\":\"bad' && { echo no bad words >&2; exit 2; }; exit 0";
    own_hooks(&world, &hooks("UserPromptSubmit", "", hook));
    let turns = [turn("What next?", vec![]), turn("And now?", vec![]), done()];
    let provider = world.plays(NATIVE, &turns);
    let mut command = world.sabir_with(&provider);
    command.args(["--model", NATIVE.model(), "go", "on", "now"]);
    let mut talk = Talk::of(command);
    talk.wait_for("What next?");
    talk.wait_for("> ");
    talk.say("bad words");
    talk.wait_for("no bad words");
    talk.wait_for("> ");
    assert_eq!(provider.received_requests().len(), 1);
    talk.say("good words");
    talk.wait_for("And now?");
    let body = request(&provider, 1);
    assert!(
        body.contains("good words") && !body.contains("bad words"),
        "{body}"
    );
    assert!(talk.leave().is_some());
}

#[test]
fn a_message_that_is_held_back_after_the_end_is_asked_for_again() {
    let world = World::new();
    let hook = "grep -q '\"prompt\":\"bad' && { echo no bad words >&2; exit 2; }; exit 0";
    own_hooks(&world, &hooks("UserPromptSubmit", "", hook));
    let provider = world.plays(NATIVE, &[done(), done()]);
    let mut talk = Talk::begin(&world, &provider, NATIVE);
    talk.wait_for("is that right?");
    talk.say("y");
    talk.wait_for("> ");
    // The second line is typed before it is asked for: it waits behind the first one.
    talk.say("bad words");
    talk.say("good words");
    talk.wait_for("no bad words");
    talk.wait_for("is that right?");
    let body = request(&provider, 1);
    assert!(
        body.contains("good words") && !body.contains("bad words"),
        "{body}"
    );
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
}

#[test]
fn a_hook_lets_the_model_go_on() {
    let world = World::new();
    let hook =
        "grep -q '\"stop_hook_active\":true' && exit 0; echo 'the tests have not run' >&2; exit 2";
    own_hooks(&world, &hooks("Stop", "", hook));
    let provider = world.plays(NATIVE, &[done(), command("true"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "commands", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(provider.received_requests().len(), 3);
    assert!(request(&provider, 1).contains("the tests have not run"));
    // The task can be read like any other, and resumed.
    let log = world
        .sabir()
        .args(["log", &world.only_task()])
        .output()
        .unwrap();
    assert!(
        stdout(&log).contains("the tests have not run"),
        "{}",
        stdout(&log)
    );

    // One that never agrees is not asked for ever.
    let world = World::new();
    own_hooks(&world, &hooks("Stop", "", "echo never >&2; exit 2"));
    let turns: Vec<Turn> = (0..10).map(|_| done()).collect();
    let provider = world.plays(NATIVE, &turns);
    let output = world.run(&provider, NATIVE, &["Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(provider.received_requests().len(), 9);
    assert!(
        stderr(&output).contains("8 times in a row"),
        "{}",
        stderr(&output)
    );
}

/// A hook that is out of time blocks an end only if it says so, as in Claude Code.
#[test]
fn a_failure_at_an_end_blocks_where_the_hook_says_so() {
    for (on_failure, requests) in [("block", 2), ("continue", 1)] {
        let world = World::new();
        let hook = json!({"command": "test -e begun && exit 0; touch begun; sleep 60", "timeout": 1, "onFailure": on_failure});
        own_hooks(&world, &json!({"hooks": {"Stop": [{"hooks": [hook]}]}}));
        let provider = world.plays(NATIVE, &[done(), done()]);
        let output = world.run(&provider, NATIVE, &["Go."]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(provider.received_requests().len(), requests, "{on_failure}");
    }
}

/// A hook cannot be passed by another command before the one that it is for, and one that is a program with arguments runs as one.
#[test]
fn a_condition_fits_each_command_of_a_line() {
    let world = World::new();
    let hook = json!({"command": "sh", "args": ["-c", "echo \"$0\" >&2; exit 2", "not that"], "if": "Bash(touch *)"});
    own_hooks(
        &world,
        &json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}),
    );
    let turns = [command("true && touch made"), command("true"), done()];
    let provider = world.plays(NATIVE, &turns);
    let output = world.run(&provider, NATIVE, &["--approve", "commands", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!world.work.path().join("made").exists());
    assert!(request(&provider, 1).contains("not that"));
    assert_eq!(request(&provider, 2).matches("not that").count(), 1);
}

#[test]
fn hooks_check_subtasks_and_their_ends() {
    let world = World::new();
    own_hooks(
        &world,
        &json!({"hooks": {
            "PreToolUse": [{"matcher": "Write", "hooks": [{"command": "echo not here >&2; exit 2"}]}],
            "SubagentStop": [{"hooks": [{"command": "grep -q '\"stop_hook_active\":true' || { echo look once more >&2; exit 2; }"}]}],
        }}),
    );
    let delegate = turn("", vec![("new_task", json!({"message": "child"}))]);
    let turns = [delegate, write("made"), done(), done(), done()];
    let provider = world.plays(NATIVE, &turns);
    let arguments = ["--subtasks", "--approve", "edits", "Go."];
    let output = world.run(&provider, NATIVE, &arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!world.work.path().join("made").exists());
    assert!(request(&provider, 2).contains("not here"));
    assert!(request(&provider, 3).contains("look once more"));
    assert_eq!(provider.received_requests().len(), 5);
}

#[test]
fn questions_and_compactions_are_announced() {
    let world = World::new();
    own_hooks(
        &world,
        &json!({"hooks": {"Notification": [{"matcher": "permission_prompt", "hooks": [{"command": "cat > asked.json"}]}]}}),
    );
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let mut talk = Talk::begin(&world, &provider, NATIVE);
    talk.wait_for("made");
    let path = world.work.path().join("asked.json");
    for _ in 0..600 {
        if std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('}')) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let asked = told(&world, "asked.json");
    assert_eq!(asked["notification_type"], "permission_prompt");
    drop(talk);

    let world = World::new();
    let (output, _) = fill_context(&world, "cat > compacted.json");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = told(&world, "compacted.json");
    assert_eq!(said["trigger"], "auto");
}

/// Plays a task that reads until its context is full, with these hooks beside one that writes down each beginning.
fn fill_context(world: &World, compaction: &str) -> (std::process::Output, ScriptedProvider) {
    let line = "grep -o '\"source\":\"[a-z]*\"' >> begun.txt; echo the colour is blue";
    own_hooks(
        world,
        &json!({"hooks": {
            "SessionStart": [{"hooks": [{"command": line}]}],
            "PreCompact": [{"hooks": [{"command": compaction}]}],
        }}),
    );
    world.configure("context_window = 16000\ncompact_at = 60\n");
    let notes = "a line of notes, long enough to matter\n".repeat(150);
    for number in 0..12 {
        world.write(&format!("notes-{number}.txt"), &notes);
    }
    let provider = world.provider(ReplyScript::from_fn(|count, request| {
        if request.body.to_string().contains("You summarise the work") {
            return ProviderReply::text("What was there before.");
        }
        let path = format!("notes-{count}.txt");
        let read = turn("I look.", vec![("read_file", json!({"path": path}))]);
        NATIVE.reply(&if count < 10 { read } else { done() }, count + 1)
    }));
    let output = world.run(&provider, NATIVE, &["Go."]);
    (output, provider)
}

#[test]
fn a_compaction_is_a_beginning_whose_text_reaches_the_model() {
    let world = World::new();
    let (output, provider) = fill_context(&world, "true");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let begun = world.read("begun.txt");
    assert!(
        begun.starts_with("\"source\":\"startup\"\n\"source\":\"compact\"\n"),
        "{begun}"
    );
    let requests = provider.received_requests();
    let summary = requests
        .iter()
        .position(|request| request.body.to_string().contains("You summarise the work"))
        .unwrap();
    // The text of the startup went with the first message, which a compaction keeps; this is the
    // second.
    let after = requests[summary + 1].body.to_string();
    assert_eq!(after.matches("the colour is blue").count(), 2, "{after}");
}

#[test]
fn a_hook_refuses_a_compaction_and_is_asked_again() {
    let world = World::new();
    let refusal = "echo x >> asked.txt; echo keep everything >&2; exit 2";
    let (output, provider) = fill_context(&world, refusal);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a hook refused a compaction: keep everything"),
        "{}",
        stderr(&output)
    );
    // Nothing was summarised, the model got every turn, and the hook was asked before each turn of
    // a full context.
    let requests = provider.received_requests();
    assert_eq!(requests.len(), 11);
    assert!(
        requests
            .iter()
            .all(|request| !request.body.to_string().contains("You summarise the work"))
    );
    assert!(world.read("asked.txt").lines().count() > 1);
    assert_eq!(world.read("begun.txt").lines().count(), 1);
}

#[test]
fn hooks_check_the_calls_of_a_resumed_task() {
    let world = World::new();
    own_hooks(
        &world,
        &json!({"hooks": {
            "SessionStart": [{"matcher": "resume", "hooks": [{"command": "touch resumed"}]}],
            "PreToolUse": [{"matcher": "Write", "hooks": [{"command": "echo not here >&2; exit 2"}]}],
            "UserPromptSubmit": [{"hooks": [{"command": "grep -q 'go on' || exit 0; echo mind the gap"}]}],
        }}),
    );
    let turns = [command("true"), write("made"), done(), done()];
    let provider = world.plays(NATIVE, &turns);
    let arguments = ["--approve", "all", "--max-turns", "1", "Go."];
    let output = world.run(&provider, NATIVE, &arguments);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    assert!(!world.work.path().join("resumed").exists());
    let output = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text", "--approve", "all"])
        .args([world.only_task().as_str(), "go on"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("resumed").exists());
    assert!(!world.work.path().join("made").exists());
    assert!(request(&provider, 1).contains("mind the gap"));
    assert!(request(&provider, 2).contains("not here"));
}

/// A hook of a repository starts nothing until exactly it is trusted, and what a changed one would have checked does not run.
#[test]
fn a_hook_of_a_repository_runs_only_as_it_was_trusted() {
    let world = World::new();
    let root = world.work.path();
    let command = "\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/check.sh";
    put(
        root,
        ".claude/hooks/check.sh",
        "#!/bin/sh\necho refused by the script >&2\nexit 2\n",
    );
    let script = root.join(".claude/hooks/check.sh");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    put(
        root,
        ".claude/settings.json",
        &hooks("PreToolUse", "Write", command).to_string(),
    );
    let go = |expected: &str, is_made: bool| {
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
        let said = request(&provider, 1) + &stderr(&output);
        assert!(said.contains(expected), "{expected}: {said}");
        let made = root.join("made");
        assert_eq!(made.exists(), is_made, "{expected}: {said}");
        if is_made {
            std::fs::remove_file(made).unwrap();
        }
    };
    let trust = |arguments: &[&str]| {
        let words = [&["trust", "--hooks"], arguments].concat();
        world.sabir().args(words).output().unwrap()
    };
    go("1 hook of this repository will not run", true);
    let refused = trust(&[]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert!(
        stdout(&refused).contains("runs \".claude/hooks/check.sh\""),
        "{}",
        stdout(&refused)
    );
    go("1 hook of this repository will not run", true);
    assert_eq!(code(&trust(&["--yes"])), 0);
    go("refused by the script", false);
    let view = world
        .sabir()
        .args(["context", "--folder"])
        .output()
        .unwrap();
    assert!(
        stdout(&view).contains("Hooks, which run with each task"),
        "{}",
        stdout(&view)
    );

    // The script changes, and the entry stays.
    std::fs::write(&script, "#!/bin/sh\ntouch started\nexit 0\n").unwrap();
    go("has changed since you trusted it", false);
    assert!(!root.join("started").exists());
    assert_eq!(code(&trust(&["--yes"])), 0);
    go("made", true);
    assert!(root.join("started").exists());

    // Without trust it starts nothing again, and another folder has none of it.
    std::fs::remove_file(root.join("started")).unwrap();
    assert_eq!(code(&trust(&["--revoke"])), 0);
    go("will not run", true);
    assert!(!root.join("started").exists());
    world.configure("[hooks]\nproject_files = false\n");
    let view = world
        .sabir()
        .args(["context", "--folder"])
        .output()
        .unwrap();
    assert!(!stdout(&view).contains("check.sh"), "{}", stdout(&view));
}

/// The model cannot change a trusted script to escape it.
#[test]
fn a_script_that_the_model_changes_does_not_run() {
    let world = World::new();
    let root = world.work.path();
    put(root, "check.sh", "exit 0\n");
    put(
        root,
        ".sabir/hooks.json",
        &hooks("PreToolUse", "Bash", "sh check.sh").to_string(),
    );
    trust_all(&world);
    let change = turn(
        "",
        vec![(
            "write_to_file",
            json!({"path": "check.sh", "content": "touch escaped\n"}),
        )],
    );
    let turns = [
        command("touch first"),
        change,
        command("touch second"),
        done(),
    ];
    let provider = world.plays(NATIVE, &turns);
    let output = world.run(
        &provider,
        NATIVE,
        &["--approve", "edits", "--approve", "commands", "Go."],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(root.join("first").exists());
    for absent in ["second", "escaped"] {
        assert!(!root.join(absent).exists(), "{absent}");
    }
}

/// A trusted hook whose settings have disappeared still refuses what it checked, until the user has looked.
#[test]
fn a_hook_that_disappears_still_refuses_what_it_checked() {
    let world = World::new();
    let root = world.work.path();
    let settings = hooks("PreToolUse", "Bash", "exit 0").to_string();
    put(root, ".sabir/hooks.json", &settings);
    trust_all(&world);
    let go = || {
        let turns = [command("touch made"), write("written"), done()];
        let provider = world.plays(NATIVE, &turns);
        let approved = ["--approve", "edits", "--approve", "commands", "Go."];
        let output = world.run(&provider, NATIVE, &approved);
        let made = ["made", "written"].map(|name| std::fs::remove_file(root.join(name)).is_ok());
        (made, request(&provider, 1) + &stderr(&output))
    };
    let (made, said) = go();
    assert_eq!(made, [true, true], "{said}");
    std::fs::remove_file(root.join(".sabir/hooks.json")).unwrap();
    let (made, said) = go();
    assert_eq!(made, [false, true], "{said}");
    assert!(said.contains("or is gone"), "{said}");
    put(
        root,
        ".sabir/hooks.json",
        "{\"disableAllHooks\": true, \"hooks\": {}}",
    );
    assert_eq!(go().0, [false, true]);
    let mut revoke = world.sabir();
    let output = revoke.args(["trust", "--hooks", "--revoke"]).output();
    assert_eq!(code(&output.unwrap()), 0);
    let (made, said) = go();
    assert_eq!(made, [true, true], "{said}");
}

/// What a trusted hook runs unnamed is trusted, too: a `Makefile`, a module, the files that a pattern names.
#[test]
fn files_that_a_hook_does_not_name_are_trusted_with_it() {
    for [line, file] in [
        ["make -s check", "Makefile"],
        ["python3 guard/check.py", "guard/rules.py"],
        ["for f in guard/*.sh; do sh $f; done", "guard/a.sh"],
    ] {
        let world = World::new();
        let root = world.work.path();
        put(root, "Makefile", "check:\n\t@true\n");
        put(root, "guard/check.py", "import rules\n");
        put(root, "guard/rules.py", "");
        put(root, "guard/a.sh", "exit 0\n");
        let settings = hooks("PreToolUse", "Bash", line).to_string();
        put(root, ".sabir/hooks.json", &settings);
        trust_all(&world);
        put(root, file, "changed");
        let provider = world.plays(NATIVE, &[command("touch made"), done()]);
        let output = world.run(&provider, NATIVE, &["--approve", "commands", "Go."]);
        let said = request(&provider, 1) + &stderr(&output);
        assert!(said.contains("has changed since"), "{line}: {said}");
        assert!(!root.join("made").exists(), "{line}");
    }
    let world = World::new();
    let root = world.work.path();
    let settings = hooks("PreToolUse", "Bash", "sh ./*.sh").to_string();
    put(root, ".sabir/hooks.json", &settings);
    let review = world.sabir().args(["trust", "--hooks"]).output().unwrap();
    let said = stdout(&review) + &stderr(&review);
    assert!(said.contains("only the shell knows which file"), "{said}");
}

/// A user's own hook that runs a file of the folder needs trust there: the folder may be a clone of anybody's.
#[test]
fn an_own_hook_runs_no_script_of_a_clone() {
    let world = World::new();
    let root = world.work.path();
    let script = "\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/x.sh";
    let entry = json!([{"hooks": [{"type": "command", "command": format!("sh {script}")}]}]);
    own_hooks(
        &world,
        &json!({"hooks": {"SessionStart": entry, "PreToolUse": entry}}),
    );
    put(root, ".claude/hooks/x.sh", "touch ran\n");
    let go = || {
        let provider = world.plays(NATIVE, &[command("touch made"), done()]);
        let arguments = ["--sandbox", "off", "--approve", "commands", "Go."];
        let output = world.run(&provider, NATIVE, &arguments);
        request(&provider, 1) + &stderr(&output)
    };
    let said = go();
    assert!(said.contains("which you have not trusted"), "{said}");
    for absent in ["ran", "made"] {
        assert!(!root.join(absent).exists(), "{absent}: {said}");
    }
    trust_all(&world);
    go();
    assert!(root.join("ran").exists() && root.join("made").exists());
}

/// Files that the model makes switch no trusted hook off, and a hook that keeps a log still runs.
#[test]
fn a_file_named_like_a_word_of_a_hook_changes_nothing() {
    let world = World::new();
    let root = world.work.path();
    put(root, "run-tests", "exit 1\n");
    let stop = "sh ./run-tests || { echo FAILTESTS >&2; exit 2; }";
    let entry = |command: &str| json!([{"hooks": [{"type": "command", "command": command}]}]);
    let all = json!({"hooks": {"Stop": entry(stop), "PreToolUse": entry("cat >> seen")}});
    put(root, ".sabir/hooks.json", &all.to_string());
    trust_all(&world);
    let turns = [write("echo"), write("exit"), done(), done()];
    let provider = world.plays(NATIVE, &turns);
    world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert!(request(&provider, 3).contains("FAILTESTS"));
    assert!(root.join("exit").exists() && root.join("seen").exists());
}

/// What nobody has trusted is not even read: neither a file without an end, nor texts that forge lines of ours.
#[test]
fn hooks_of_a_clone_cost_nothing_and_say_nothing() {
    let world = World::new();
    let root = world.work.path();
    std::os::unix::fs::symlink("/proc/self/pagemap", root.join("endless")).unwrap();
    let entry = |command: &str| json!([{"matcher": "x\nsabir: forged", "hooks": [{"type": "command", "command": command}]}]);
    let spellings = "d/.//./a ".repeat(20_000);
    let all = json!({"hooks": {
        "Stop": entry("./endless"),
        "SessionStart": entry(&spellings),
        "Ev\nsabir: forged": [],
    }});
    put(root, ".claude/settings.json", &all.to_string());
    put(root, "d/a", &"x".repeat(8_000_000));
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(&provider, NATIVE, &["Go."]);
    let said = stderr(&output);
    assert_eq!(code(&output), 0, "{said}");
    for arguments in [
        &["context", "--folder"][..],
        &["trust", "--hooks", "--output", "json"],
        &["trust", "--hooks"],
    ] {
        let output = world.sabir().args(arguments).output().unwrap();
        let shown = stdout(&output) + &stderr(&output) + &said;
        assert!(
            !shown.lines().any(|line| line.starts_with("sabir: forged")),
            "{arguments:?}: {shown}"
        );
    }
}

#[test]
fn a_hook_is_confined_limited_and_leaves_nothing() {
    // It hangs: its time is up, and the call that it would have checked does not run.
    let world = World::new();
    let mark = format!("31{}", std::process::id());
    let hang = format!("sleep {mark} & sleep {mark}");
    own_hooks(
        &world,
        &json!({"hooks": {"PreToolUse": [{"hooks": [{"command": hang, "timeout": 1}]}]}}),
    );
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!world.work.path().join("made").exists());
    assert!(request(&provider, 1).contains("time was up"));
    assert_eq!(processes_with(&mark), [] as [String; 0]);

    // It floods, and it fails without blocking: the call runs, and the request stays small.
    let world = World::new();
    let flood = "head -c 5000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' y >&2; exit 1";
    own_hooks(&world, &hooks("PreToolUse", "", flood));
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("made").exists());
    assert!(stderr(&output).len() < 100_000);

    // It is in the sandbox of the task.
    let world = World::new();
    let outside = world.home.path().join("outside");
    let escape = format!("touch inside; touch {}; exit 0", outside.display());
    own_hooks(&world, &hooks("PreToolUse", "", &escape));
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(world.work.path().join("inside").exists());
    assert!(!outside.exists());
}

#[test]
fn a_hook_ends_with_a_killed_agent() {
    let world = World::new();
    let mark = format!("32{}", std::process::id());
    own_hooks(
        &world,
        &hooks("PreToolUse", "", &format!("touch begun; sleep {mark}")),
    );
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--approve",
        "edits",
        "Go.",
    ]);
    let mut child = command.spawn().unwrap();
    let begun = world.work.path().join("begun");
    let wait = |is_over: &dyn Fn() -> bool| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            is_over()
        })
    };
    assert!(wait(&|| begun.exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait(&|| processes_with(&mark).is_empty()));
}

#[test]
fn a_hook_stops_the_task() {
    let world = World::new();
    let stop = json!({"continue": false, "stopReason": "the budget is used up"});
    own_hooks(&world, &hooks("PostToolUse", "", &format!("echo '{stop}'")));
    let provider = world.plays(NATIVE, &[write("made"), write("other"), done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
    assert_ne!(code(&output), 0);
    assert!(
        stderr(&output).contains("the budget is used up"),
        "{}",
        stderr(&output)
    );
    assert!(!world.work.path().join("other").exists());
}

#[test]
fn files_with_mistakes_say_which_hooks_do_not_run() {
    let world = World::new();
    own_hooks(
        &world,
        &json!({"hooks": {
            "PreToolUse": [{"hooks": [{"type": "prompt", "prompt": "x"}]}],
            "Whenever": [{"hooks": [{"command": "x"}]}],
        }}),
    );
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(&provider, NATIVE, &["Go."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for said in ["type `prompt`", "`Whenever`"] {
        assert!(
            stderr(&output).contains(said),
            "{said}: {}",
            stderr(&output)
        );
    }
    // Hooks that the user has for Claude Code run if the configuration says so.
    let imported = hooks("PreToolUse", "Write", "echo from home >&2; exit 2");
    put(
        world.home.path(),
        ".claude/settings.json",
        &imported.to_string(),
    );
    for (configuration, is_made) in [
        ("", true),
        ("[hooks]\nimport = [\"~/.claude/settings.json\"]\n", false),
    ] {
        world.configure(configuration);
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(
            world.work.path().join("made").exists(),
            is_made,
            "{configuration}"
        );
        _ = std::fs::remove_file(world.work.path().join("made"));
    }
}

/// Trusts the hooks of a folder as they are.
fn trust_all(world: &World) {
    let trusted = world
        .sabir()
        .args(["trust", "--hooks", "--yes"])
        .output()
        .unwrap();
    assert_eq!(code(&trusted), 0, "{}", stderr(&trusted));
}

/// An ignore file of the folder hides neither the hooks that were trusted, nor the scripts of a clone from the question for trust.
#[test]
fn an_ignore_file_switches_no_hook_off() {
    let world = World::new();
    let root = world.work.path();
    put(root, "guard.sh", "echo GUARDED >&2; exit 2\n");
    put(
        root,
        ".claude/settings.json",
        &hooks("PreToolUse", "", "sh guard.sh").to_string(),
    );
    trust_all(&world);
    for (hidden, expected) in [
        (".claude\n", "GUARDED"),
        ("guard.sh\n", "is hidden from hooks"),
    ] {
        put(root, ".clineignore", hidden);
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let output = world.run(&provider, NATIVE, &["--approve", "edits", "Go."]);
        let said = request(&provider, 1) + &stderr(&output);
        assert!(said.contains(expected), "{hidden}: {said}");
        assert!(!root.join("made").exists(), "{hidden}: {said}");
    }

    // The clone hides the script that a hook in the user's own settings runs in every folder.
    let world = World::new();
    let root = world.work.path();
    let hook = "sh \"$CLAUDE_PROJECT_DIR\"/.claude/hooks/x.sh";
    own_hooks(&world, &hooks("PreToolUse", "", hook));
    put(root, ".claude/hooks/x.sh", "touch ran\n");
    put(root, ".clineignore", ".claude\n");
    let provider = world.plays(NATIVE, &[write("made"), done()]);
    let arguments = ["--sandbox", "off", "--approve", "edits", "Go."];
    let output = world.run(&provider, NATIVE, &arguments);
    let said = request(&provider, 1) + &stderr(&output);
    assert!(said.contains("which you have not trusted"), "{said}");
    assert!(!root.join("ran").exists(), "{said}");
}

/// A file of the folder is known under each of its usual names: by the home of the user, in another folder, and by `PATH`.
#[test]
fn a_hook_that_names_a_file_in_another_way_needs_trust_in_it() {
    for hook in [
        "sh ~/app/tools/x.sh",
        "sh \"$HOME/app/tools/x.sh\"",
        "cd tools; cd deep && sh ../x.sh || sh ./y.sh",
        "env -C tools sh x.sh",
        "tool",
    ] {
        let world = World::new();
        let work = world.home.path().join("app");
        std::fs::create_dir_all(work.join("tools/deep")).unwrap();
        for name in ["tools/x.sh", "tools/tool", "tools/deep/y.sh"] {
            put(
                &work,
                name,
                "#!/bin/sh\ntouch \"$CLAUDE_PROJECT_DIR/ran\"\n",
            );
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(work.join(name), mode).unwrap();
        }
        own_hooks(&world, &hooks("PreToolUse", "", hook));
        let provider = world.plays(NATIVE, &[write("made"), done()]);
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", work.join("tools").display());
        let output = world
            .sabir_with(&provider)
            .env("PATH", path)
            .current_dir(&work)
            .args(["run", "--model", NATIVE.model(), "--sandbox", "off"])
            .args(["--approve", "edits", "Go."])
            .output()
            .unwrap();
        let said = request(&provider, 1) + &stderr(&output);
        assert!(
            said.contains("which you have not trusted"),
            "{hook}: {said}"
        );
        for absent in ["ran", "made"] {
            assert!(!work.join(absent).exists(), "{hook}: {said}");
        }
    }
}

/// What a command of the model leaves in the temporary folder is not what a hook reads there.
#[test]
fn hooks_and_commands_share_no_temporary_folder() {
    for level in ["1", "2"] {
        let world = World::new();
        let hook = "test -e \"$TMPDIR/verdict\" && exit 0; echo no verdict >&2; exit 2";
        own_hooks(&world, &hooks("PreToolUse", "Write", hook));
        let script = "touch \"$TMPDIR/verdict\" && ls \"$TMPDIR\" | tr a-z A-Z\n";
        world.write("plant.sh", script);
        let plant = command("sh plant.sh");
        let provider = world.plays(NATIVE, &[plant, write("made"), done()]);
        let arguments = ["--sandbox", level, "--approve", "edits"];
        let arguments = [&arguments[..], &["--approve", "commands", "Go."]].concat();
        let output = world.run(&provider, NATIVE, &arguments);
        let said = request(&provider, 1) + &stderr(&output);
        assert!(said.contains("VERDICT"), "{level}: {said}");
        let said = request(&provider, 2) + &stderr(&output);
        assert!(said.contains("no verdict"), "{level}: {said}");
        assert!(!world.work.path().join("made").exists(), "{level}: {said}");
    }
}

/// A hook that takes its time at the end cannot keep the user from leaving.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn hooks_at_the_end_of_a_session_have_a_minute() {
    let world = World::new();
    let slow = json!({"command": "touch begun; sleep 40", "timeout": 3600});
    let last = json!({"command": "touch last"});
    let all = json!({"hooks": {"SessionEnd": [{"hooks": [slow, slow, last]}]}});
    own_hooks(&world, &all);
    let provider = world.plays(NATIVE, &[done()]);
    let output = world.run(&provider, NATIVE, &["Go."]);
    let said = stderr(&output);
    assert_eq!(code(&output), 0, "{said}");
    assert!(said.contains("took more than 60 s"), "{said}");
    let root = world.work.path();
    assert!(root.join("begun").exists() && !root.join("last").exists());
}
