//! Describes how known agents are started.

use serde::Deserialize;

/// The start of an agent. In all texts, `{base_url}`, `{model}`, `{task}`, `{home}` and `{work}` are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPreset {
    /// The name on the command line.
    pub name: String,
    /// The package that installs it, for people.
    pub package: String,
    /// The words of the command. The first is the program.
    pub command: Vec<String>,
    /// Variables of the environment, besides `PATH` and `HOME`.
    #[serde(default)]
    pub environment: Vec<(String, String)>,
    /// Files that must exist, with paths below the home folder.
    #[serde(default)]
    pub files: Vec<PresetFile>,
}

/// A file of settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetFile {
    /// The path below the home folder.
    pub path: String,
    /// The content.
    pub content: String,
}

impl AgentPreset {
    /// Makes the path of the program absolute if it is relative to the current folder: agents start in another one. A program without
    /// a folder in its name is looked up in `PATH`.
    ///
    /// # Errors
    /// There is no current folder.
    pub fn make_program_absolute(&mut self) -> std::io::Result<()> {
        let Some(program) = self.command.first_mut() else {
            return Ok(());
        };
        // A placeholder such as `{home}` becomes an absolute path later.
        if program.contains('/') && !program.starts_with('{') {
            // Not resolved through links: the Python of a virtual environment is one, and knows
            // its environment by the link's path.
            *program = std::path::absolute(&*program)?.display().to_string();
        }
        Ok(())
    }
}

/// Returns the presets of known agents.
///
/// # Errors
/// The built-in list is no valid JSON, which a test excludes.
pub fn built_in_presets() -> Result<Vec<AgentPreset>, serde_json::Error> {
    serde_json::from_str(include_str!("presets.json"))
}

/// Creates the preset of any other agent from the words of its command. The variables that most agents read have the address.
pub fn custom_preset(command: &[String]) -> AgentPreset {
    let variables = [
        ("OPENAI_BASE_URL", "{base_url}/v1"),
        ("OPENAI_API_BASE", "{base_url}/v1"),
        ("OPENAI_API_KEY", "torture"),
        ("OPENAI_MODEL", "{model}"),
        ("ANTHROPIC_BASE_URL", "{base_url}"),
        ("ANTHROPIC_API_KEY", "torture"),
        ("ANTHROPIC_MODEL", "{model}"),
        ("GOOGLE_GEMINI_BASE_URL", "{base_url}"),
        ("GEMINI_API_KEY", "torture"),
        ("OLLAMA_HOST", "{base_url}"),
    ];
    AgentPreset {
        name: command.first().cloned().unwrap_or_default(),
        package: "the command".to_owned(),
        command: command.to_vec(),
        environment: variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        files: Vec::new(),
    }
}
