//! Shows the first screen of a user without a model, and asks how to continue.

use std::io;
use std::path::Path;

use rustix::termios::isatty;
use sabir_session::first_screen::{self, FirstRunReport, ProviderKey};
use sabir_session::providers::{KeySource, ProviderRow};
use sabir_session::{Environment, SessionError};

use crate::margin::wrap_rows;
use crate::print;
use crate::screen::ExitBySignal;
use crate::stdin_reader::{read_first_line, read_hidden_line};

/// The most models of a server that are listed.
const MAX_LISTED_MODELS: usize = 20;

/// The user's choice on the first screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WelcomeChoice {
    /// Use this model.
    Model(String),
    /// Take the tour.
    Tour,
    /// Leave without a model.
    Leave,
    /// No user can be asked.
    Unasked,
}

/// Renders what was found, and the model that is used.
pub fn first_screen_text(screen: &FirstRunReport) -> String {
    let none = |list: Vec<String>, nothing: &str| {
        if list.is_empty() {
            nothing.to_owned()
        } else {
            list.join(", ")
        }
    };
    let keys = screen.keys.iter().map(key_text).collect();
    let servers = screen.servers.iter().map(|server| {
        format!(
            "{} ({})",
            server.base_url,
            print::count_noun(server.models.len(), "model")
        )
    });
    let config = match &screen.config {
        Some(path) if screen.has_config => path.display().to_string(),
        Some(_) => "none (`sabir init` writes one)".to_owned(),
        None => "none, and no home folder for one".to_owned(),
    };
    let mut text = format!(
        "Sabir, a coding agent in your terminal. No model is configured yet; found:\n\n\
         \x20 keys           {}\n  local servers  {}\n  instructions   {}\n  configuration  {config}\n\n",
        none(keys, "none in the environment"),
        none(servers.collect(), "none answered on this machine"),
        none(
            screen.instructions.clone(),
            "no AGENTS.md or similar file here"
        ),
    );
    match &screen.model {
        Some(model) => text.push_str(&format!(
            "Using {} ({}).\nAnother one: `--model NAME`; to keep it: `sabir init`.\n\n",
            model.name, model.reason
        )),
        // No line is longer than a usual terminal is wide.
        None => text.push_str(
            "To begin, one of these is needed:\n\
             \x20 t  the tour: a scripted model and the real tools, in a minute (`sabir tour`)\n\
             \x20 k  a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another, or enter it here\n\
             \x20 u  the URL of a server that speaks OpenAI's API\n\
             \x20    (`--model http://HOST:PORT/v1#NAME`)\n\n",
        ),
    }
    text
}

fn key_text(row: &ProviderRow) -> String {
    let source = match &row.key {
        KeySource::Environment {
            present: Some(name),
            ..
        } => name.as_str(),
        KeySource::Command => "a command",
        _ => "configuration",
    };
    format!("{} ({source})", row.name)
}

/// Shows the first screen, and asks for what is missing if there is a terminal. A key or an address that the user enters is written into
/// the configuration. `models_at` lists the models of a server, as `URL#NAME`. `exit` ends the process by a signal.
///
/// # Errors
/// When standard input cannot be read.
pub fn choose_model(
    screen: &FirstRunReport,
    environment: &Environment,
    named: Option<&Path>,
    exit: ExitBySignal,
    models_at: impl Fn(&str) -> Result<Vec<String>, SessionError>,
) -> io::Result<WelcomeChoice> {
    let text = print::sanitize_text(&first_screen_text(screen));
    print::write_stderr(&wrap_rows(&text));
    if let Some(model) = &screen.model {
        return Ok(WelcomeChoice::Model(model.name.clone()));
    }
    if !isatty(io::stdin()) || !isatty(io::stderr()) {
        return Ok(WelcomeChoice::Unasked);
    }
    loop {
        let Some(line) = ask("[t]our, [k]ey, [u]rl or [q]uit? ")? else {
            return Ok(WelcomeChoice::Leave);
        };
        let chosen = match line.as_str() {
            "t" | "tour" => return Ok(WelcomeChoice::Tour),
            "q" | "quit" | "exit" => return Ok(WelcomeChoice::Leave),
            "k" | "key" => ask_key(exit)?,
            "u" | "url" => match ask("URL, such as http://127.0.0.1:8000/v1: ")? {
                Some(url) => ask_served_model(&url, &models_at)?,
                None => return Ok(WelcomeChoice::Leave),
            },
            // An address that was pasted at once.
            url if url.contains("://") => ask_served_model(url, &models_at)?,
            _ => Err(SessionError::invalid("please write t, k, u or q")),
        };
        let stored = chosen.and_then(|chosen| {
            let key = chosen
                .key
                .as_ref()
                .map(|(provider, key)| ProviderKey { provider, key });
            let path = first_screen::store_model_choice(environment, named, &chosen.model, key)?;
            Ok((chosen.model, path))
        });
        match stored {
            Ok((model, path)) => {
                print::write_stderr(&print::sanitize_text(&format!(
                    "{model} is now the model in {}\n\n",
                    path.display()
                )));
                return Ok(WelcomeChoice::Model(model));
            }
            Err(error) => print::write_stderr(&print::sanitize_text(&format!("{error}\n"))),
        }
    }
}

/// A model that the user has chosen, with the provider and its key if they entered one.
struct EnteredModel {
    model: String,
    key: Option<(String, String)>,
}

/// The entered model, or the reason why there is none.
type EntryResult = Result<EnteredModel, SessionError>;

/// Asks for a provider and a key.
fn ask_key(exit: ExitBySignal) -> io::Result<EntryResult> {
    let names: Vec<_> = first_screen::key_only_providers().collect();
    let first = names.first().copied().unwrap_or_default();
    // Hidden as well: the key is what users have in the clipboard, and paste first.
    let prompt = format!(
        "Provider ({}), or its key; typing is not shown [{first}]: ",
        names.join(", ")
    );
    let line = read_hidden_line(&prompt, &io::stdin(), exit)?.unwrap_or_default();
    let answer = match line.trim() {
        "" => first,
        answer => answer,
    };
    if let Some(provider) = first_screen::provider_of_key(answer) {
        print::write_stderr(&format!("a key of {provider}\n"));
        return Ok(Ok(EnteredModel {
            model: first_screen::default_model(provider).unwrap_or_default(),
            key: Some((provider.to_owned(), answer.to_owned())),
        }));
    }
    let Some(model) = first_screen::default_model(answer) else {
        print::write_stderr("\n");
        // The answer may be a key of an unknown kind, so it is not repeated.
        return Ok(Err(SessionError::invalid(
            "that is none of these providers, and no key that tells its provider; others are set up in config.toml: \
             `sabir init` writes it",
        )));
    };
    let provider = answer.to_owned();
    print::write_stderr(&format!("{provider}\n"));
    let key = read_hidden_line("Key (it is not shown): ", &io::stdin(), exit);
    print::write_stderr("\n");
    let key = key?.unwrap_or_default().trim().to_owned();
    if key.is_empty() {
        return Ok(Err(SessionError::invalid("no key was entered")));
    }
    Ok(Ok(EnteredModel {
        model,
        key: Some((provider, key)),
    }))
}

/// Finds the models of a server, and asks for one if there are several.
fn ask_served_model(
    url: &str,
    models_at: impl Fn(&str) -> Result<Vec<String>, SessionError>,
) -> io::Result<EntryResult> {
    let models = match models_at(url) {
        Ok(models) => models,
        Err(error) => return Ok(Err(error)),
    };
    let chosen = match models.as_slice() {
        [model] => Some(model.clone()),
        several => {
            let line = ask(&model_question(several))?;
            line.and_then(|line| find_model(several, &line))
        }
    };
    Ok(chosen
        .map(|model| EnteredModel { model, key: None })
        .ok_or_else(|| SessionError::invalid("that is none of its models")))
}

/// Renders the question for one of several models, which are `URL#NAME`.
fn model_question(models: &[String]) -> String {
    let mut text = String::new();
    for (at, model) in models.iter().take(MAX_LISTED_MODELS).enumerate() {
        text.push_str(&format!("  {:>2}  {}\n", at + 1, model_name(model)));
    }
    if let Some(more @ 1..) = models.len().checked_sub(MAX_LISTED_MODELS) {
        text.push_str(&format!("      and {more} more\n"));
    }
    print::sanitize_text(&(text + "Model, by its number or name [1]: "))
}

/// Finds the model that the user means by a number or a name.
fn find_model(models: &[String], line: &str) -> Option<String> {
    let by_name = models
        .iter()
        .find(|model| model_name(model) == line || *model == line);
    let number = match line {
        "" => Some(1),
        line => line.parse::<usize>().ok(),
    };
    let by_number = || models.get(number?.checked_sub(1)?);
    by_name.or_else(by_number).cloned()
}

fn model_name(model: &str) -> &str {
    model.split_once('#').map_or(model, |(_, name)| name)
}

/// Asks for a line; `None` at the end of the input.
fn ask(prompt: &str) -> io::Result<Option<String>> {
    print::write_stderr(prompt);
    let line = read_first_line(&io::stdin())?;
    Ok((!line.is_empty()).then(|| line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{find_model, model_question};

    #[test]
    fn a_served_model_is_chosen_by_number_or_name() {
        let models = ["http://h/v1#a", "http://h/v1#2", "http://h/v1#c\u{1b}"].map(str::to_owned);
        for (line, found) in [
            ("", Some(0)),
            ("1", Some(0)),
            ("2", Some(1)),
            ("3", Some(2)),
            ("a", Some(0)),
            ("http://h/v1#a", Some(0)),
            ("0", None),
            ("4", None),
            ("d", None),
        ] {
            let expected = found.map(|at: usize| models[at].clone());
            assert_eq!(find_model(&models, line), expected, "{line}");
        }
        let question = model_question(&models);
        assert!(question.starts_with("   1  a\n   2  2\n"), "{question}");
        assert!(!question.contains('\u{1b}'), "{question}");
    }
}
