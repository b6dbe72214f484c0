//! Tests streams that are cut at some bytes (by `.ci/slow-tests` at every byte): no cut call runs, nothing panics, the outcome is honest, and the task can be resumed.

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::json;

use crate::world::{Turn, WAYS, Way, World, code, stderr, turn};

fn writing() -> Turn {
    turn(
        "Now.",
        vec![(
            "write_to_file",
            json!({"path": "w.txt", "content": "a\nb\n"}),
        )],
    )
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// Returns the bytes of the answer to cut.
fn length(way: Way) -> usize {
    let head = sabir_wire::ResponseMetadata {
        id: "msg_scripted".to_owned(),
        model: "scripted".to_owned(),
        ..sabir_wire::ResponseMetadata::default()
    };
    way.reply(&writing(), 1).encode_stream(way.wire, head).len()
}

/// Cuts the first answer at each byte that `offsets` names; then lets the task continue.
fn cut_at(way: Way, offsets: impl Iterator<Item = usize>) {
    let mut whole = 0;
    for offset in offsets {
        let world = World::new();
        world.write_config();
        // Every attempt is cut at the same byte. If the call arrived whole, its result ends the
        // test soon.
        let provider = world.provider(ReplyScript::from_fn(move |_, request| {
            if request.body.to_string().contains("w.txt") {
                return ProviderReply::error_status(400);
            }
            way.reply(&writing(), 1)
                .with_fault(ScriptedFault::CutAfter(offset))
        }));
        let output = world.run(
            &provider,
            way,
            &[
                "--sandbox",
                "off",
                "--approve",
                "all",
                "--config",
                &world.config(),
                "write it",
            ],
        );
        let (errors, written) = (stderr(&output), world.read("w.txt"));
        assert!(
            !errors.contains("panicked"),
            "{way:?} at {offset}: {errors}"
        );
        if written == "a\nb\n" {
            // After the end of the answer only the transfer is cut.
            whole += 1;
        } else {
            assert_eq!(written, "", "{way:?} at {offset}");
        }
        assert_eq!(code(&output), 7, "{way:?} at {offset}: {errors}");
        let provider = world.provider(ReplyScript::new([
            way.reply(&writing(), 1),
            way.reply(&done(), 2),
        ]));
        let id = world.only_task();
        let resumed = world
            .sabir_with(&provider)
            .args([
                "resume",
                "--sandbox",
                "off",
                "--output",
                "text",
                "--approve",
                "all",
                &id,
            ])
            .output()
            .unwrap();
        assert_eq!(
            code(&resumed),
            0,
            "{way:?} at {offset}: {}",
            stderr(&resumed)
        );
        assert_eq!(world.read("w.txt"), "a\nb\n");
    }
    assert!(whole <= 40, "{way:?}: {whole} cuts left the answer whole");
}

impl World {
    fn config(&self) -> String {
        self.home.path().join("config.toml").display().to_string()
    }

    /// Cuts before the first event are retried with pauses; here that only costs time.
    fn write_config(&self) {
        std::fs::write(
            self.config(),
            "[providers.openai]\nretries = 0\n[providers.anthropic]\nretries = 0\n",
        )
        .unwrap();
    }
}

/// A prime, so that the four protocols are cut at different places within their events.
const STEP: usize = 389;

#[test]
fn a_cut_at_some_bytes_runs_nothing_unfinished() {
    for (start, way) in WAYS.into_iter().enumerate() {
        cut_at(way, (start * 11..length(way)).step_by(STEP));
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_cut_at_every_byte_of_anthropic_runs_nothing_unfinished() {
    cut_at(WAYS[0], 0..length(WAYS[0]));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_cut_at_every_byte_of_openai_runs_nothing_unfinished() {
    cut_at(WAYS[1], 0..length(WAYS[1]));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_cut_at_every_byte_of_cline_runs_nothing_unfinished() {
    cut_at(WAYS[2], 0..length(WAYS[2]));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_cut_at_every_byte_of_invoke_runs_nothing_unfinished() {
    cut_at(WAYS[3], 0..length(WAYS[3]));
}

#[test]
fn a_cut_stream_is_retried_and_its_calls_run_once() {
    for way in WAYS {
        let world = World::new();
        let replies = move |count: usize| -> ProviderReply {
            match count {
                0 => way
                    .reply(&writing(), 1)
                    .with_fault(ScriptedFault::CutAfter(length(way) * 3 / 4)),
                1 => way.reply(&writing(), 1),
                _ => way.reply(&done(), 2),
            }
        };
        let provider = world.provider(ReplyScript::from_fn(move |count, _| replies(count)));
        let output = world.run(
            &provider,
            way,
            &[
                "--sandbox",
                "off",
                "--approve",
                "all",
                "--output",
                "events",
                "write it",
            ],
        );
        assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
        let kinds = |kind: &str| {
            crate::world::events(&output)
                .iter()
                .filter(|event| event["kind"] == kind)
                .count()
        };
        assert_eq!(
            (
                kinds("failed"),
                kinds("running"),
                provider.received_requests().len()
            ),
            (1, 1, 3),
            "{way:?}"
        );
    }
}
