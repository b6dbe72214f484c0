//! Renders the configuration for people: its reference, its mistakes, its files, its values and their changes.

use sabir_session::config::change::ConfigChange;
use sabir_session::config::check::{ConfigCheck, LocatedProblem};
use sabir_session::config::files::InputFile;
use sabir_session::config::reference::{ConfigKey, KeyDefault, config_sections};
use sabir_session::config::values::{ConfigValue, ValueSource};

use crate::print::count_noun;

/// The default and maximum width of a line, since long lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=100;

/// Renders the mistakes in a configuration file, one per line, or a message that there are none.
pub fn check_text(check: &ConfigCheck) -> String {
    let path = check.path.as_deref().unwrap_or("no home folder");
    if !check.found {
        return format!("{path}: there is no configuration file; the defaults apply\n");
    }
    if check.problems.is_empty() {
        return format!("{path}: no problems\n");
    }
    let line = |problem: &LocatedProblem| {
        let place = problem
            .line
            .map_or(String::new(), |line| format!(", line {line}"));
        format!("{path}{place}: {}\n", problem.message)
    };
    let lines: String = check.problems.iter().map(line).collect();
    let count = count_noun(check.problems.len(), "problem");
    format!("{lines}{count}\n")
}

/// Renders the files that are read, in order.
pub fn files_text(files: &[InputFile]) -> String {
    let width = files
        .iter()
        .map(|file| file.purpose.name().len())
        .max()
        .unwrap_or(0);
    let line = |(at, file): (usize, &InputFile)| {
        let name = file.purpose.name();
        let found = if file.found { "" } else { "  (missing)" };
        format!(
            "{:>2}. {name:<width$}  {}{found}\n",
            at + 1,
            file.path.display()
        )
    };
    files.iter().enumerate().map(line).collect()
}

/// Renders values with their origins, as TOML with comments.
pub fn values_text(values: &[ConfigValue]) -> String {
    let line = |value: &ConfigValue| {
        let source = match &value.source {
            ValueSource::File { path, line } => format!("{path}, line {line}"),
            ValueSource::Environment { variable } => format!("the variable {variable}"),
            ValueSource::Default { meaning: None } => "the default".to_owned(),
            ValueSource::Default {
                meaning: Some(words),
            } => format!("not set; by default: {words}"),
        };
        match &value.value {
            Some(text) => format!("{} = {text}  # {source}\n", value.key),
            None => format!("# {}: {source}\n", value.key),
        }
    };
    if values.is_empty() {
        return "# nothing is set; `sabir help config` lists all keys\n".to_owned();
    }
    values.iter().map(line).collect()
}

/// Renders a change of the file.
pub fn change_text(change: &ConfigChange) -> String {
    let ConfigChange {
        key,
        path,
        old,
        new,
    } = change;
    let path = path.display();
    match (old, new) {
        (Some(old), Some(new)) => format!("{key} = {new}  # was {old}; in {path}\n"),
        (None, Some(new)) => format!("{key} = {new}  # in {path}\n"),
        (_, None) => format!("# {key} is removed from {path}\n"),
    }
}

/// Renders the reference of all keys for a terminal of that width.
pub fn reference_text(width: usize) -> String {
    let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let mut text = wrap_words(INTRODUCTION, width, "");
    for section in config_sections() {
        let page = section.page.trim_end_matches(".md");
        let title = match section.header {
            "" => "The top of the file".to_owned(),
            header => header.to_owned(),
        };
        text.push_str(&format!("\n{title}\n"));
        let about = match page {
            "guide" => section.about.to_owned(),
            page => format!("{} See docs/{page}.md.", section.about),
        };
        text.push_str(&wrap_words(&about, width, "  "));
        for key in &section.keys {
            text.push_str(&key_text(key, width));
        }
    }
    text
}

/// The text in front of the reference.
const INTRODUCTION: &str = "The configuration is ~/.config/sabir/config.toml, or the file of --config. `sabir config set KEY VALUE` changes it, \
`sabir config check` finds its mistakes, `sabir config get` shows what is set and where, and `sabir config path` lists the files that are read. \
NAME is a name that you choose.";

/// Renders one key with its kind, its default, an example and its meaning.
fn key_text(key: &ConfigKey, width: usize) -> String {
    let default = match &key.default {
        KeyDefault::Value(value) => format!("default {value}"),
        KeyDefault::Words(words) if *words == "required" => (*words).to_owned(),
        KeyDefault::Words(words) => format!("default: {words}"),
    };
    let option = key
        .option
        .map(|option| format!("; option {option}"))
        .unwrap_or_default();
    let facts = format!("{}; {default}{option}", key.kind).replace('`', "");
    let name = format!("\n  {} = {}\n", key.key, key.example);
    name + &wrap_words(&facts, width, "      ") + &wrap_words(key.meaning, width, "      ")
}

/// Wraps a text into indented lines of at most this width.
fn wrap_words(text: &str, width: usize, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push_str(&line);
            lines.push('\n');
            line = indent.to_owned();
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::reference_text;

    /// Only examples and single words may be wider than a narrow terminal.
    #[test]
    fn the_reference_fits_the_terminal() {
        for width in [40, 72, 100] {
            let text = reference_text(width);
            let long = text.lines().filter(|line| line.chars().count() > width);
            let long: Vec<_> = long.filter(|line| !line.contains(" = ")).collect();
            assert!(long.is_empty(), "{width}: {long:?}");
        }
        assert!(reference_text(40).lines().count() > reference_text(100).lines().count());
    }
}
