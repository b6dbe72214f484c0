//! The todo list: how it is set, how the model is reminded of it, and that a replay has the same one.

use sabir_agent::{Interactivity, Task};
use sabir_call::MessagePart;

use crate::machine::{Machine, settings};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";

fn list(todos: &str) -> String {
    format!("<update_todo_list>\n<todos>\n{todos}\n</todos>\n</update_todo_list>")
}

/// Returns the reminders of the todo list that follow results.
fn reminders(machine: &Machine) -> Vec<String> {
    let parts = machine
        .task
        .history()
        .iter()
        .flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match part {
        MessagePart::Text { text } if text.contains("<todos>") => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn the_last_valid_list_is_kept() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    assert!(machine.task.todos().is_empty());
    let text = "- [x] Read,  with\ttabs \n  - [-] Größe <b>&amp;\n- [ ] Test";
    machine.answer(&list(text));
    assert_eq!(machine.task.todos().text(), text, "byte for byte");
    machine.answer(&list("no list at all"));
    assert_eq!(
        machine.results(),
        ["update_todo_list done", "update_todo_list failed"]
    );
    assert_eq!(
        machine.task.todos().text(),
        text,
        "what cannot be read changes nothing"
    );
    let again = Task::replay(machine.records.clone(), settings(Interactivity::Headless)).unwrap();
    assert_eq!(again.todos(), machine.task.todos());
    machine.answer(&list(""));
    assert!(machine.task.todos().is_empty());
    machine.check_history();
}

#[test]
fn several_lists_in_one_message_count_in_their_order() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("{}\n{LOOK}{}", list("[ ] one"), list("[ ] two")));
    machine.work(false);
    assert_eq!(
        machine.results(),
        [
            "update_todo_list done",
            "look done",
            "update_todo_list done"
        ]
    );
    assert_eq!(machine.task.todos().text(), "[ ] two");
}

#[test]
fn the_list_is_repeated_after_some_turns() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&list("[ ] one\n[x] two"));
    let mut looks = (0..).map(|at| format!("<look>\n<path>{at}</path>\n</look>"));
    let mut look = |machine: &mut Machine, times| {
        for call in looks.by_ref().take(times) {
            machine.answer(&call);
            machine.work(false);
        }
    };
    look(&mut machine, 9);
    assert!(reminders(&machine).is_empty());
    look(&mut machine, 1);
    let words = "Your todo list, as you left it:\n<todos>\n[ ] one\n[x] two\n</todos>";
    assert_eq!(reminders(&machine), [words]);
    look(&mut machine, 19);
    assert_eq!(reminders(&machine).len(), 2);
    let again = Task::replay(machine.records.clone(), settings(Interactivity::Headless)).unwrap();
    assert_eq!(again.history(), machine.task.history());
    machine.answer(&list("[x] one\n[x] two"));
    look(&mut machine, 20);
    assert_eq!(reminders(&machine).len(), 2, "nothing is left to be told");
    machine.check_history();
}
