//! Tests that an approval is bound to what was shown: the preconditions of calls, their previews, and
//! changes that happen while the user reads the question. Covers APR-007, TOC-001, TOC-002 and
//! TOC-004.

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;

use sabir_agent::{
    CancelToken, FrontEnd, Interactivity, Record, RecordStore, StoreError, Task, TaskDriver,
    TaskEvent, TaskId, TaskLimits, TaskOutcome, TaskSettings, TaskStart, UserQuestion, UserReply,
};
use sabir_call::{
    Event, EventSink, MessagePart, Model, Request, ResponseFuture, TokenPrices, ToolProtocol,
};
use sabir_policy::PolicyRules;
use serde_json::{Value, json};

use crate::{Place, object};

/// Makes one call, then completes.
struct Once(&'static str, Value);

impl Model for Once {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let done = json!({"result": "done"});
        let (name, arguments) = match request.messages.len() {
            1 => (self.0, &self.1),
            _ => ("attempt_completion", &done),
        };
        sink.push_event(Event::CallStart {
            index: 0,
            id: Some("1"),
            name,
            dialect: None,
            at: 0,
            name_at: 0,
        });
        for (name, value) in object(arguments.clone()) {
            let (text, form) = match &value {
                Value::String(text) => (text.clone(), sabir_call::ArgumentEncoding::String),
                other => (other.to_string(), sabir_call::ArgumentEncoding::Json),
            };
            sink.push_event(Event::ArgStart {
                index: 0,
                name: &name,
                form,
                at: 0,
            });
            sink.push_event(Event::ArgDelta {
                index: 0,
                text: &text,
            });
            sink.push_event(Event::ArgEnd {
                index: 0,
                lead: "",
                at: 0,
            });
        }
        sink.push_event(Event::CallEnd { index: 0, at: 0 });
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A front end that approves everything, after running a closure.
struct Reader<'a> {
    meanwhile: Box<dyn FnMut() + Send + 'a>,
    asked: Vec<UserQuestion>,
}

impl FrontEnd for Reader<'_> {
    fn on_event(&mut self, _: TaskEvent<'_>) {}

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        if let UserQuestion::Approval { .. } = question {
            (self.meanwhile)();
            self.asked.push(question.clone());
        }
        Box::pin(std::future::ready(UserReply::Yes))
    }
}

struct Lost;

impl RecordStore for Lost {
    fn append(&mut self, _: &Record) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Runs one call, and returns the questions to the user and the result.
fn asked(
    place: &Place,
    call: (&'static str, Value),
    meanwhile: impl FnMut() + Send,
) -> (Vec<UserQuestion>, String) {
    let settings = TaskSettings {
        system: String::new(),
        model: "m".to_owned(),
        tools: place.registry.tool_set().clone(),
        read_only_tools: place.registry.read_only_tool_names(),
        rules: PolicyRules::default(),
        interactivity: Interactivity::Interactive,
        limits: TaskLimits::default(),
        completion: sabir_agent::CompletionConditions::default(),
        polling_tools: place.registry.polling_tool_names(),
        dialects: sabir_call::dialect::DialectSet::default(),
        repairs: sabir_check::RepairSet::all(),
        recovery: sabir_call::TextRecovery::Ask,
        parallel_calls: sabir_call::ParallelCalls::Many,
        renders_template: false,
        max_output: None,
        prices: TokenPrices::default(),
    };
    let start = TaskStart {
        task: TaskId::new("t"),
        prompt: "Do it.".to_owned(),
        workspace: String::new(),
        model: "m".to_owned(),
        protocol: ToolProtocol::Native,
        version: "0".to_owned(),
        edit_tool: None,
        mode: None,
        from: None,
    };
    let (mut task, first) = Task::new(start, settings);
    let mut user = Reader {
        meanwhile: Box::new(meanwhile),
        asked: Vec::new(),
    };
    let driver = TaskDriver {
        model: &Once(call.0, call.1),
        registry: &place.registry,
        store: &mut Lost,
        front_end: &mut user,
        observers: Vec::new(),
        cancel: CancelToken::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (outcome, message) = runtime
        .block_on(driver.run(&mut task, Some(first), None))
        .unwrap();
    assert_eq!(outcome, TaskOutcome::Completed, "{message}");
    let parts = task.history().iter().flat_map(|message| &message.parts);
    let result = parts.into_iter().find_map(|part| match part {
        MessagePart::Result(result) => Some(result.content.clone()),
        _ => None,
    });
    (user.asked, result.unwrap())
}

fn program(place: &Place, name: &str, content: &str) {
    place.put(name, content);
    std::fs::set_permissions(place.inner(name), PermissionsExt::from_mode(0o755)).unwrap();
}

/// Checks a call that is approved while `change` is made to the place. `broken` is the change that the result reports; empty if the call ran.
#[track_caller]
fn check(
    files: &[(&str, &str)],
    call: (&'static str, Value),
    change: impl Fn(&Place) + Sync,
    broken: &str,
) {
    let place = Place::new();
    files
        .iter()
        .for_each(|(name, content)| program(&place, name, content));
    let (questions, result) = asked(&place, call, || change(&place));
    assert_eq!(questions.len(), 1);
    let expected =
        format!("changed between the approval of the call and its run: {broken}. Look at it");
    assert_eq!(
        (result.starts_with("Not run: "), result.contains(&expected)),
        (!broken.is_empty(), !broken.is_empty()),
        "{result}"
    );
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write_to_file", json!({"path": path, "content": content}))
}

fn command(line: &str) -> (&'static str, Value) {
    ("execute_command", json!({"command": line}))
}

#[test]
fn a_file_that_changes_while_the_user_reads_is_not_written() {
    let place = Place::with(&[("a", "old\n")]);
    let (_, result) = asked(&place, write("a", "new\n"), || place.put("a", "other\n"));
    assert!(
        result.starts_with(
            "Not run: this changed between the approval of the call and its run: `a`."
        ),
        "{result}"
    );
    assert_eq!(place.get("a"), "other\n");

    let edit = || {
        (
            "edit_file",
            json!({"path": "a", "old_string": "1", "new_string": "2"}),
        )
    };
    check(
        &[("a", "1 x\n")],
        edit(),
        |place| place.put("a", "1 y\n"),
        "`a`",
    );
    let blocks = "------- SEARCH\n1\n=======\n2\n+++++++ REPLACE";
    check(
        &[("a", "1\n")],
        ("replace_in_file", json!({"path": "a", "diff": blocks})),
        |place| place.put("a", "1\n3\n"),
        "`a`",
    );
    let patch = "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n@@\n-1\n+2\n*** Add File: c\n+x\n*** End Patch";
    let patch = || ("apply_patch", json!({"patch": patch}));
    let files = [("a", "a\n"), ("b", "1\n")];
    check(&files, patch(), |place| place.put("a", "more\n"), "`a`");
    check(
        &files,
        patch(),
        |place| place.put("c", "it is there\n"),
        "`c`",
    );
    check(
        &files,
        patch(),
        |place| {
            place.put("b", "1\n");
            place.put("other", "");
        },
        "",
    );
}

#[test]
fn a_path_that_leads_elsewhere_is_not_written() {
    let swap = |place: &Place| {
        std::fs::remove_file(place.inner("link")).unwrap();
        std::os::unix::fs::symlink("b", place.inner("link")).unwrap();
    };
    let place = Place::with(&[("a", "same\n"), ("b", "same\n")]);
    std::os::unix::fs::symlink("a", place.inner("link")).unwrap();
    let (_, result) = asked(&place, write("link", "new\n"), || swap(&place));
    assert!(result.starts_with("Not run: "), "{result}");
    assert_eq!(
        (place.get("a"), place.get("b")),
        ("same\n".to_owned(), "same\n".to_owned())
    );
}

#[test]
fn a_script_that_changes_while_the_user_reads_is_not_run() {
    let script = "#!/bin/sh\necho good\n";
    let change = |place: &Place| program(place, "x.sh", "#!/bin/sh\ntouch evil\n");
    for line in [
        "sh x.sh",
        "sh < x.sh",
        "cat x.sh | sh",
        "timeout 5 sh x.sh",
        "bash -c 'sh x.sh'",
        "echo $(sh x.sh)",
        "`sh x.sh`",
    ] {
        check(&[("x.sh", script)], command(line), change, "`x.sh`");
    }
    // A script that is run by its path is a program, too.
    check(
        &[("x.sh", script)],
        command("./x.sh"),
        change,
        "`./x.sh`, the program `./x.sh`",
    );
    check(
        &[("sub/x.sh", script)],
        command("cd sub && sh x.sh"),
        |place| place.put("sub/x.sh", "evil"),
        "`sub/x.sh`",
    );
    check(
        &[("x.sh", script)],
        command("sh x.sh"),
        |place| place.put("y.sh", "evil"),
        "",
    );
    check(
        &[("x.sh", script)],
        command("sh x.sh"),
        |place| place.put("x.sh", script),
        "",
    );
    check(
        &[("x.sh", script)],
        command("sh x.sh"),
        |place| std::fs::remove_file(place.inner("x.sh")).unwrap(),
        "`x.sh`",
    );
}

#[test]
fn files_that_a_program_reads_are_preconditions() {
    check(
        &[("Makefile", "x:\n\techo good\n")],
        command("make x"),
        |place| place.put("Makefile", "x:\n\techo evil\n"),
        "`Makefile`",
    );
    check(
        &[("Makefile", "x:\n\techo good\n")],
        command("make x"),
        |place| place.put("makefile", "x:\n\techo evil\n"),
        "`makefile`",
    );
    check(
        &[("package.json", "{}")],
        command("npm run x"),
        |place| place.put("package.json", "{ }"),
        "`package.json`",
    );
    // TOC-005: configuration that was looked at when the call was checked.
    check(
        &[(".git/config", "[core]\n")],
        command("git commit -m x"),
        |place| place.put(".git/config", "[core]\nfsmonitor = touch evil\n"),
        "`.git/config`",
    );
    check(
        &[(".git/config", "")],
        command("git commit -m x"),
        |place| program(place, ".git/hooks/pre-commit", "#!/bin/sh\ntouch evil\n"),
        "`.git/hooks/pre-commit`",
    );
}

#[test]
fn a_program_that_is_replaced_is_not_run() {
    let place = Place::new();
    let folder = place.outside.path().to_owned();
    let set = |text: &str| {
        std::fs::write(folder.join("deploy"), text).unwrap();
        std::fs::set_permissions(folder.join("deploy"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    set("#!/bin/sh\necho good\n");
    let line = command(&format!("{}/deploy now", folder.display()));
    let (_, result) = asked(&place, line, || set("#!/bin/sh\necho evil!\n"));
    assert!(result.contains("its run: the program `"), "{result}");
}

#[test]
fn lines_that_only_read_depend_on_nothing() {
    let place = Place::with(&[("a", "x\n")]);
    let tool = place.registry.get("execute_command").unwrap();
    let bound = |line: &str| {
        tool.prepare(&object(json!({"command": line})))
            .preconditions()
    };
    assert!(bound("cat a | wc -l").is_empty());
    let before = bound("touch a");
    assert_eq!(before, bound("touch a"), "two looks see the same");
    let other = Place::with(&[("a", "x\n")]);
    let elsewhere = other
        .registry
        .get("execute_command")
        .unwrap()
        .prepare(&object(json!({"command": "touch a"})))
        .preconditions();
    assert_eq!(before.changed_names(&elsewhere), ["the workspace folder"]);
    let read = place.registry.get("read_file").unwrap();
    assert!(
        read.prepare(&object(json!({"path": "a"})))
            .preconditions()
            .is_empty()
    );
}

/// Checks that the question about a call shows this detail.
#[track_caller]
fn shown(old: &str, call: (&'static str, Value), detail: &str) {
    let place = Place::with(&[("a", old)]);
    let (questions, result) = asked(&place, call, || {});
    let [UserQuestion::Approval { detail: found, .. }] = questions.as_slice() else {
        panic!("{questions:?}")
    };
    assert_eq!(found, detail, "{result}");
}

#[test]
fn previews_show_the_resulting_change() {
    let diff = "@@ -1,2 +1,2 @@\n x\n-1\n+2";
    shown("x\n1\n", write("a", "x\n2\n"), diff);
    shown(
        "x\n1\n",
        (
            "edit_file",
            json!({"path": "a", "old_string": "1", "new_string": "2"}),
        ),
        diff,
    );
    let blocks = "------- SEARCH\n1\n=======\n2\n+++++++ REPLACE";
    shown(
        "x\n1\n",
        ("replace_in_file", json!({"path": "a", "diff": blocks})),
        diff,
    );
    let patch =
        "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Add File: c\n+y\n*** End Patch";
    shown(
        "x\n1\n",
        ("apply_patch", json!({"patch": patch})),
        &format!("change a:\n{diff}\nnew file c:\n+y"),
    );
    // UNI-008: changed quotation marks are shown in the preview and reported in the result.
    let call = || {
        (
            "edit_file",
            json!({"path": "a", "old_string": "say \"hi\"", "new_string": "say \"ho\""}),
        )
    };
    shown("say “hi”\n", call(), "@@ -1 +1 @@\n-say “hi”\n+say \"ho\"");
    let (_, result) = asked(&Place::with(&[("a", "say “hi”\n")]), call(), || {});
    assert!(
        result.contains("typographic characters. Check the result."),
        "{result}"
    );
}

/// UNI-007: on a system that tells them apart, a name in another normal form is another file.
#[test]
fn names_in_other_normal_forms_are_other_files() {
    let place = Place::with(&[("\u{e9}", "composed\n")]);
    place.run(
        "write_to_file",
        json!({"path": "e\u{301}", "content": "decomposed\n"}),
    );
    assert_eq!(
        (place.get("\u{e9}"), place.get("e\u{301}")),
        ("composed\n".to_owned(), "decomposed\n".to_owned())
    );
}
