//! Shows the first screen of a user without a model, and asks how to continue.

use std::io;
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, isatty, tcgetattr, tcsetattr};
use sabir_session::first_screen::{self, FirstScreen, ProviderKey};
use sabir_session::providers::{KeySource, ProviderRow};
use sabir_session::{Environment, SessionError};

use crate::print;
use crate::stdin_reader::read_first_line;

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
pub fn first_screen_text(screen: &FirstScreen) -> String {
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
    let config = match (&screen.config, screen.has_config) {
        (Some(path), true) => path.display().to_string(),
        (Some(path), false) => format!("none ({}; `sabir init` writes one)", path.display()),
        (None, _) => "none".to_owned(),
    };
    let mut text = format!(
        "Sabir, a coding agent in your terminal. No model is configured yet; this was found:\n\n\
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
            "Using {} ({}). Another one: `--model NAME`; to keep it: `sabir init`.\n\n",
            model.name, model.reason
        )),
        None => text.push_str(
            "To begin, one of these is needed:\n\
             \x20 t  the tour: a scripted model and the real tools, without a key, in a minute (`sabir tour`)\n\
             \x20 k  a key: set ANTHROPIC_API_KEY, OPENAI_API_KEY or another (`sabir models` lists them), or enter it here\n\
             \x20 u  the URL of a server that speaks OpenAI's API (`--model http://HOST:PORT/v1#NAME`)\n\n",
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
/// the configuration. `model_at` finds the model of a server.
///
/// # Errors
/// When standard input cannot be read.
pub fn choose_model(
    screen: &FirstScreen,
    environment: &Environment,
    named: Option<&std::path::Path>,
    model_at: impl Fn(&str) -> Result<String, SessionError>,
) -> io::Result<WelcomeChoice> {
    print::write_stderr(&print::sanitize_text(&first_screen_text(screen)));
    if let Some(model) = &screen.model {
        return Ok(WelcomeChoice::Model(model.name.clone()));
    }
    let input = io::stdin();
    if !isatty(&input) || !isatty(io::stderr()) {
        return Ok(WelcomeChoice::Unasked);
    }
    loop {
        let line = ask(&input, "[t]our, [k]ey, [u]rl or [q]uit? ")?;
        let stored = match line.as_str() {
            "t" | "tour" => return Ok(WelcomeChoice::Tour),
            "" | "q" | "quit" | "exit" => return Ok(WelcomeChoice::Leave),
            "k" | "key" => ask_key(&input, environment, named)?,
            "u" | "url" => {
                let url = ask(&input, "URL, such as http://127.0.0.1:8000/v1: ")?;
                let found = model_at(&url);
                found.and_then(|model| {
                    first_screen::store_choice(environment, named, &model, None)
                        .map(|path| (model, path))
                })
            }
            _ => continue,
        };
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

/// The model in the configuration and the path of the file, or the reason why it was not written.
type Stored = Result<(String, std::path::PathBuf), SessionError>;

/// Asks for a provider and a key, and stores the key.
fn ask_key(
    input: &impl AsFd,
    environment: &Environment,
    named: Option<&std::path::Path>,
) -> io::Result<Stored> {
    let names: Vec<_> = first_screen::usual_providers().collect();
    let first = names.first().copied().unwrap_or_default();
    let provider = ask(
        input,
        &format!("Provider ({}) [{first}]: ", names.join(", ")),
    )?;
    let provider = if provider.is_empty() {
        first
    } else {
        &provider
    };
    let Some(model) = first_screen::usual_model(provider) else {
        return Ok(Err(SessionError::invalid(format!(
            "`{provider}` is none of these; others are set up in config.toml: `sabir init` writes it"
        ))));
    };
    let key = ask_secret(input, "Key (it is not shown): ")?;
    if key.is_empty() {
        return Ok(Err(SessionError::invalid("no key was entered")));
    }
    let key = ProviderKey {
        provider,
        key: &key,
    };
    let stored = first_screen::store_choice(environment, named, &model, Some(key));
    Ok(stored.map(|path| (model, path)))
}

fn ask(input: &impl AsFd, prompt: &str) -> io::Result<String> {
    print::write_stderr(prompt);
    Ok(read_first_line(input)?.trim().to_owned())
}

/// Reads a line that the terminal does not show.
fn ask_secret(input: &impl AsFd, prompt: &str) -> io::Result<String> {
    let shown = tcgetattr(input)?;
    let mut hidden = shown.clone();
    hidden.local_modes -= LocalModes::ECHO;
    tcsetattr(input, OptionalActions::Drain, &hidden)?;
    let line = ask(input, prompt);
    // Also after an error, or the shell would show nothing that is typed.
    _ = tcsetattr(input, OptionalActions::Drain, &shown);
    print::write_stderr("\n");
    line
}
