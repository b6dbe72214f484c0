//! Presses random keys, pastes, resizes and streams against the interface, and checks what must always hold: the cursor is inside,
//! nothing is drawn outside, the screen shows the view, and the draft is never lost.

use sabir_session::agent::{Record, TaskId, TaskOutcome};
use sabir_session::call::ToolResultStatus;
use sabir_session::symbol_names::SymbolName;
use sabir_session::{CloseReason, Command, Decision, SessionEventKind, SessionState, StreamEvent};
use sabir_tui::app::{Activity, Effect};
use sabir_tui::keys::{BackgroundColor, Key, KeyCode, TerminalInput};
use sabir_tui::lines::line_width;
use sabir_tui::picker::{CheckpointedCall, PickedItem, PickerItem};
use serde_json::json;

use crate::support::{
    Bench, answered, approval, call, idle, output, record, request_id, result, running, said, text,
};

/// A small generator of numbers (SplitMix64), so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

const CHARS: [char; 24] = [
    'a',
    'b',
    'y',
    'n',
    '1',
    '2',
    ' ',
    '/',
    '@',
    '\u{301}',
    '世',
    '🙂',
    'é',
    '*',
    '`',
    '-',
    '\u{202e}',
    '\u{200d}',
    '\u{f0000}',
    'v',
    '|',
    '#',
    'ع',
    '\u{1f468}',
];
const CODES: [KeyCode; 16] = [
    KeyCode::Enter,
    KeyCode::Tab,
    KeyCode::Backspace,
    KeyCode::Delete,
    KeyCode::Escape,
    KeyCode::Up,
    KeyCode::Down,
    KeyCode::Left,
    KeyCode::Right,
    KeyCode::Home,
    KeyCode::End,
    KeyCode::PageUp,
    KeyCode::PageDown,
    KeyCode::Char('x'),
    KeyCode::Function(2),
    KeyCode::Function(12),
];

const TEXTS: [&str; 16] = [
    "word ",
    "\n",
    "\n\n",
    "# head\n",
    "- item\n",
    "```rust\nfn a() {\n",
    "```\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "**bold** `code` [l](http://x)",
    "\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m",
    "世界 🙂 e\u{301} \u{202e}x",
    "&#27;[2J&#x202e;",
    "> quoted\n",
    "[label](https://a.example/x) and [other](file:///etc/motd) https://b.example ",
    "plain words that fill a row or two and go on without a mark for quite a while, and ",
    "a_very_long_word_without_any_place_to_break_it_anywhere_so_that_it_must_be_broken",
];

/// Keys that remove text of the draft, or exchange it, because that is what they are for.
fn is_editing(key: Key) -> bool {
    match key.code {
        KeyCode::Char(c) => {
            key.control && "hdkuwytnp_/rsgj".contains(c)
                || key.alt && "dDo_/".contains(c)
                || !key.control && !key.alt
        }
        KeyCode::Enter
        | KeyCode::Tab
        | KeyCode::Backspace
        | KeyCode::Delete
        | KeyCode::Up
        | KeyCode::Down
        | KeyCode::Escape => true,
        _ => false,
    }
}

fn random_key(random: &mut Random) -> Key {
    let key = match random.below(10) {
        0..5 => Key::plain(KeyCode::Char(random.pick(&CHARS))),
        5..7 => Key::control(char::from(b'a' + random.below(26) as u8)),
        7 => Key::alt(KeyCode::Char(
            random.pick(&['b', 'd', 'f', 'o', '_', '<', '>']),
        )),
        _ => Key::plain(random.pick(&CODES)),
    };
    Key {
        shift: random.below(12) == 0,
        alt: key.alt || random.below(20) == 0,
        ..key
    }
}

fn random_event(random: &mut Random) -> SessionEventKind {
    let id = random.pick(&["1", "2", "3"]);
    match random.below(19) {
        15 => said(random.pick(&TEXTS)),
        17 => SessionEventKind::Asking {
            turn: 1,
            full: Some(7),
        },
        18 => SessionEventKind::Delta(StreamEvent::Source {
            text: random.pick(&TEXTS).to_owned(),
            is_thought: false,
        }),
        0..6 => text(random.pick(&TEXTS)),
        6 => SessionEventKind::Delta(StreamEvent::Thought {
            text: random.pick(&TEXTS).to_owned(),
        }),
        7 => SessionEventKind::Delta(StreamEvent::CallStart {
            index: 0,
            id: None,
            name: "write_to_file".to_owned(),
            dialect: None,
            at: 0,
            name_at: 0,
        }),
        8 => SessionEventKind::Delta(StreamEvent::ArgDelta {
            index: 0,
            text: random.pick(&TEXTS).to_owned(),
        }),
        9 => SessionEventKind::Delta(StreamEvent::CallEnd { index: 0, at: 0 }),
        10 => answered(
            vec![call(
                id,
                "execute_command",
                json!({"command": "cargo test"}),
            )],
            Vec::new(),
        ),
        11 => running(id),
        12 => output(id, random.pick(&TEXTS)),
        13 => result(id, "execute_command", ToolResultStatus::Done, "done"),
        14 => approval(id, "src/a.rs", &"+line 世界\n".repeat(random.below(60))),
        _ => SessionEventKind::RequestClosed {
            request: request_id(id),
            reason: CloseReason::Withdrawn,
        },
    }
}

/// Opens a list as the driver does.
fn open_random_list(bench: &mut Bench, random: &mut Random) {
    let call = CheckpointedCall {
        number: 1,
        call: "1".to_owned(),
    };
    let item = match random.below(5) {
        0 => PickedItem::Theme(random.pick(&["dark", "light", "auto"]).to_owned()),
        1 => PickedItem::Checkpoint(call.clone()),
        2 => PickedItem::Subtask(TaskId::new(random.pick(&["c1", "c2"]))),
        3 => PickedItem::Answer(random.below(4)),
        _ => PickedItem::Mode("code".to_owned()),
    };
    let items = (0..random.below(40)).map(|number| PickerItem {
        label: format!("{} {number}", random.pick(&TEXTS)),
        note: random.pick(&TEXTS).to_owned(),
        preview: random.pick(&TEXTS).repeat(random.below(9)),
        item: item.clone(),
    });
    let items = items.collect();
    bench.app.open_picker("tasks", "forks it", items);
    let preview = random.pick(&TEXTS).repeat(random.below(9));
    bench.app.set_checkpoint_preview(&call, &preview);
    if random.below(4) == 0 {
        bench.app.open_restore_choice(&call, &preview, &preview);
    }
    bench.draw();
}

/// Tells the interface what the driver finds out in the background.
fn tell_random_fact(bench: &mut Bench, random: &mut Random) {
    match random.below(4) {
        0 => {
            let part = random.below(11) as f64 / 10.0;
            bench.input(TerminalInput::Background(BackgroundColor {
                red: part,
                green: part,
                blue: part,
            }));
        }
        1 => {
            let symbols = (0..random.below(30)).map(|number| SymbolName {
                name: format!("{}{number}", random.pick(&TEXTS)),
                kind: "fn",
                path: random.pick(&TEXTS).to_owned(),
                line: number,
            });
            bench.app.set_symbols(symbols.collect());
        }
        2 => {
            let files = (0..random.below(30)).map(|_| random.pick(&TEXTS).to_owned());
            bench.app.set_files(files.collect());
        }
        _ => bench.app.show_notice(random.pick(&TEXTS)),
    }
    bench.draw();
}

/// Lets a subtask do something, or end.
fn send_subtask_event(bench: &mut Bench, random: &mut Random) {
    let child = random.pick(&["c1", "c2", "c3"]);
    let event = match random.below(12) {
        0 => record(Record::Ended {
            outcome: TaskOutcome::Completed,
            message: random.pick(&TEXTS).to_owned(),
            used: None,
        }),
        _ => random_event(random),
    };
    bench.subtask_event(child, event);
}

/// Returns the texts that these effects keep or send.
fn kept_texts(effects: &[Effect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::AddToHistory(text) | Effect::EditDraft(text) => Some(text.as_str()),
            Effect::Begin(message) => Some(message.text.as_str()),
            Effect::Submit(Command::Send { message, .. }) => Some(message.text.as_str()),
            Effect::Submit(Command::Answer {
                decision: Decision::Text { text, .. },
                ..
            }) => Some(text.as_str()),
            Effect::SubmitTo(_, Command::Send { message, .. }) => Some(message.text.as_str()),
            _ => None,
        })
        .collect()
}

fn check_view(bench: &Bench, seed: u64, step: usize) {
    let size = bench.size();
    let view = &bench.view;
    let place = format!("seed {seed}, step {step}, {size:?}");
    assert!(view.cursor_row < view.rows.len(), "{place}: {view:?}");
    assert!(view.cursor_column < size.columns, "{place}: {view:?}");
    assert!(
        view.rows.len() <= size.rows,
        "{place}: {} rows",
        view.rows.len()
    );
    for row in &view.rows {
        assert!(line_width(row) <= size.columns, "{place}: {row}");
    }
    // The screen model agrees on the column of the cursor.
    let (row, column) = bench.parser.screen().cursor_position();
    assert_eq!(usize::from(column), view.cursor_column, "{place}");
    // And all rows of the view are there, as far as the model keeps all of their characters.
    let top = usize::from(row).checked_sub(view.cursor_row);
    let top = top.unwrap_or_else(|| panic!("{place}: the view begins above the screen"));
    let columns = bench.parser.screen().size().1.get();
    let shown: Vec<String> = bench.parser.screen().rows(0, columns).collect();
    let is_plain = |c: char| c.is_ascii() || "›…·│└•●✓✗─┼".contains(c);
    for (at, expected) in view.rows.iter().enumerate() {
        let expected = expected.to_string();
        if expected.chars().all(is_plain) {
            let shown = shown.get(top + at).map_or("", String::as_str);
            assert_eq!(
                shown.trim_end(),
                expected.trim_end(),
                "{place}, row {at}, after {:?}",
                bench.frame
            );
        }
    }
    // Nothing is below it.
    for below in shown.iter().skip(top + view.rows.len()) {
        assert_eq!(below.trim_end(), "", "{place}");
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut bench = Bench::working(80, 24);
    for step in 0..steps {
        bench.wait(random.pick(&[0, 1, 20, 400]));
        let before = bench.app.draft();
        let place = format!("seed {seed}, step {step}");
        match random.below(40) {
            0 => {
                let columns = 20 + random.below(140);
                let rows = 5 + random.below(50);
                bench.resize(columns, rows);
                assert_eq!(bench.app.draft(), before, "{place}");
            }
            1 => {
                let pasted = random.pick(&TEXTS).repeat(1 + random.below(30));
                bench.input(TerminalInput::Paste(pasted.clone()));
                let draft = bench.app.draft();
                // It went into the draft, or into the reason of a refusal.
                assert!(draft.contains(&pasted) || draft == before, "{place}");
            }
            2 => {
                let state = match bench.app.activity() {
                    Activity::Working => idle(),
                    _ => SessionEventKind::State(SessionState::Working),
                };
                bench.event(state);
                assert_eq!(bench.app.draft(), before, "{place}");
            }
            3..16 => {
                match random.below(30) {
                    0 => open_random_list(&mut bench, &mut random),
                    1 => tell_random_fact(&mut bench, &mut random),
                    2..7 => send_subtask_event(&mut bench, &mut random),
                    _ => _ = bench.event(random_event(&mut random)),
                }
                assert_eq!(bench.app.draft(), before, "{place}");
            }
            _ => {
                let key = random_key(&mut random);
                let effects = bench.input(TerminalInput::Key(key));
                let after = bench.app.draft();
                let is_kept = after.contains(&before)
                    || kept_texts(&effects)
                        .iter()
                        .any(|kept| before.contains(kept) || kept.contains(&before))
                    || bench.app.queued_messages().any(|queued| queued == before);
                if key == Key::control('c') {
                    // Cleared, and undo brings it back.
                    if after != before {
                        bench.input(TerminalInput::Key(Key::control('_')));
                        assert_eq!(bench.app.draft(), before, "{place}");
                    }
                } else if !is_editing(key) {
                    assert!(is_kept, "{place}: {key:?} lost {before:?}, left {after:?}");
                }
            }
        }
        check_view(&bench, seed, step);
    }
}

#[test]
fn random_inputs_break_nothing() {
    for seed in 0..6 {
        run(seed, 600);
    }
}

/// A million inputs, in some minutes. `SABIR_INPUTS` sets another number:
/// `SABIR_INPUTS=10000000 cargo test -p sabir-tui --test it many_random_inputs -- --ignored`.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn many_random_inputs_break_nothing() {
    let inputs: usize = std::env::var("SABIR_INPUTS")
        .ok()
        .and_then(|inputs| inputs.parse().ok())
        .unwrap_or(1_000_000);
    for seed in 0..inputs.div_ceil(2_000) {
        run(100 + seed as u64, 2_000);
    }
}
