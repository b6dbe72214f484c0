//! Tests commands that a folder defines: they are completed, listed and expanded, and none replaces a command of Sabir.

use sabir_session::config::Config;
use sabir_session::custom_commands::CustomCommands;
use sabir_session::{SessionEventKind, SessionState};
use sabir_tui::app::Effect;

use crate::support::Bench;

#[test]
fn commands_of_a_folder_are_completed_and_expanded() {
    let folder = tempfile::TempDir::new().unwrap();
    let commands = folder.path().join(".claude/commands");
    std::fs::create_dir_all(&commands).unwrap();
    let text = "---\ndescription: Looks\u{1b}[2J.\nargument-hint: FILE\n---\nLook at $1 well.";
    std::fs::write(commands.join("look.md"), text).unwrap();
    std::fs::write(commands.join("help.md"), "NOT THE HELP").unwrap();
    let custom = CustomCommands::find(folder.path(), &Config::default());
    let mut bench = Bench::with_commands(100, 70, custom);
    bench.event(SessionEventKind::State(SessionState::Working));

    bench.keys("/loo");
    let shown = bench.parser.screen().contents();
    assert!(
        shown.contains("/look") && shown.contains("Looks"),
        "{shown}"
    );
    bench.keys("\t");
    let effects = bench.keys("src\r");
    let line = "/look src".to_owned();
    assert!(
        effects.contains(&Effect::ExpandCommand(line.clone())),
        "{effects:?}"
    );
    assert_eq!(bench.app.expand_command(&line), [], "it is queued");
    bench.draw();
    let shown = bench.parser.screen().contents();
    assert!(shown.contains("/look src"), "{shown}");

    let effects = bench.keys("/help\r");
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::ExpandCommand(_)))
    );
    let shown = bench.parser.screen().contents();
    assert!(
        shown.contains("this folder's") && !shown.contains("NOT THE HELP"),
        "{shown}"
    );
}
