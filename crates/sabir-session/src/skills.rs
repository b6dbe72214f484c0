//! Finds skills (folders with a `SKILL.md`), and defines the tool by which a model reads one.
//!
//! A request holds the names and descriptions only, within a budget. The text of a skill, and the
//! files beside it, are read when the model asks for them. Scripts of a skill run only through
//! `execute_command`, so they are checked and confined like every command.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{
    CallArguments, CallPermit, ContextFragment, FragmentKind, InvalidCall, PreparedCall,
    ProgressSink, Tool, ToolFuture, ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{EntryKind, ListOptions, StopFlag, WorkPath, Workspace};
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::Config;
use crate::conventions::folder_reader::{
    ConventionError, is_absent, read_named_text, read_text_start,
};
use crate::conventions::front_matter::FrontMatter;

/// The name of the tool.
pub(crate) const USE_SKILL: &str = "use_skill";
/// The folders of a repository with skills, in the order of precedence.
const PROJECT_FOLDERS: [&str; 3] = [".sabir/skills", ".agents/skills", ".claude/skills"];
/// The folders of the user's home with skills, after the one beside the configuration.
const HOME_FOLDERS: [&str; 3] = [".agents/skills", ".claude/skills", ".codex/skills"];
/// The file that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";
/// The most skills.
const MAX_SKILLS: usize = 200;
/// The most bytes of a skill's text or of one of its files, and the most names of files.
const MAX_TEXT_BYTES: usize = 64 * 1024;
const MAX_HEADER_BYTES: usize = 20 * 1024;
const MAX_FILES: usize = 100;
/// The most bytes of a name and of a description in the list, and of the whole list.
const MAX_NAME_BYTES: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 300;
const MAX_LIST_BYTES: usize = 8 * 1024;

/// The skills of a folder and its user.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    skills: Vec<Skill>,
}

/// A skill.
#[derive(Debug, Clone, Serialize)]
pub struct Skill {
    /// The name.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The folder, as a user would name it.
    pub path: String,
    /// True for a skill of the repository, false for one from the user's own folders.
    pub from_repository: bool,
    /// The size of its text in bytes.
    pub bytes: u64,
    /// The source of the skill, and its folder there.
    #[serde(skip)]
    source: SkillSource,
    #[serde(skip)]
    folder: PathBuf,
}

/// The source of a skill.
#[derive(Debug, Clone)]
enum SkillSource {
    /// The workspace of the task, with its bounds.
    Workspace(Arc<Workspace>),
    /// A folder of the user.
    User(PathBuf),
}

impl Skills {
    /// Finds the skills for a workspace: the user's, which come first, and those of the repository.
    pub fn find(workspace: &Arc<Workspace>, config: &Config) -> Self {
        let mut found = Self::default();
        let environment = &config.environment;
        let own = environment
            .config_file(None)
            .map(|file| file.with_file_name("skills"));
        let home = environment.home_folder.as_deref();
        let others = home
            .into_iter()
            .flat_map(|home| HOME_FOLDERS.map(|path| home.join(path)));
        for root in own.into_iter().chain(others) {
            if let Ok(folder) = Workspace::open(&root) {
                found.add_folder(&folder, &WorkPath::root(), &SkillSource::User(root));
            }
        }
        for folder in PROJECT_FOLDERS {
            if let Ok(folder) = workspace.parse_path(folder) {
                let source = SkillSource::Workspace(Arc::clone(workspace));
                found.add_folder(workspace, &folder, &source);
            }
        }
        found
    }

    /// Returns the skills.
    pub fn skills(&self) -> &[Skill] {
        &self.skills
    }

    fn add_folder(&mut self, workspace: &Workspace, folder: &WorkPath, source: &SkillSource) {
        // Most folders of skills do not exist, which one system call shows.
        if is_absent(&workspace.root().join(folder.as_path())) {
            return;
        }
        let options = ListOptions {
            recursive: false,
            max_entries: MAX_SKILLS,
            stop: StopFlag::default(),
        };
        let Ok(listing) = workspace.list_folder(folder, &options) else {
            return;
        };
        let folders = listing.entries.into_iter();
        // A link to a folder is not a folder here, so no skill comes from outside.
        for entry in folders.filter(|entry| entry.kind == EntryKind::Folder) {
            let Some(skill) = read_skill(workspace, &entry.path, source) else {
                continue;
            };
            // The user's own skill is not replaced by a skill of a repository.
            let is_known = self.skills.iter().any(|known| known.name == skill.name);
            if !is_known && self.skills.len() < MAX_SKILLS {
                self.skills.push(skill);
            }
        }
    }

    /// Returns the list for requests; `None` without skills.
    pub(crate) fn fragment(&self) -> Option<ContextFragment> {
        if self.skills.is_empty() {
            return None;
        }
        let mut text = format!(
            "Skills are instructions for one kind of work. Call {USE_SKILL} with the name of a skill before you do such work:\n"
        );
        // The user's skills come first, so those of a repository are the ones that lose their
        // descriptions.
        for (at, skill) in self.skills.iter().enumerate() {
            let line = format!("- {}: {}\n", skill.name, skill.description);
            // Names alone still lead to the text.
            let short = format!("- {}\n", skill.name);
            let fits = |line: &str| text.len() + line.len() <= MAX_LIST_BYTES;
            if fits(&line) {
                text.push_str(&line);
            } else if fits(&short) {
                text.push_str(&short);
            } else {
                text.push_str(&format!("and {} more\n", self.skills.len() - at));
                break;
            }
        }
        Some(ContextFragment {
            kind: FragmentKind::Instructions,
            name: "the list of skills".to_owned(),
            text,
            left_out: 0,
        })
    }
}

fn read_skill(workspace: &Workspace, folder: &WorkPath, source: &SkillSource) -> Option<Skill> {
    let file = WorkPath::from_inside(&folder.as_path().join(SKILL_FILE))?;
    let read = read_text_start(workspace, &file, MAX_HEADER_BYTES).ok()?;
    let header = FrontMatter::parse(&read.text);
    let folder_name = folder.as_path().file_name()?.to_str()?.to_owned();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_plain = |name: &String| {
        name.len() <= MAX_NAME_BYTES && !name.is_empty() && name.chars().all(is_name)
    };
    // A name that a model could not repeat exactly is replaced by that of the folder.
    let name = header.text("name").filter(is_plain).unwrap_or(folder_name);
    if !is_plain(&name) {
        return None;
    }
    // On one line: a separate line could be mistaken for another skill, or for a rule.
    let description: String = header
        .text("description")
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let end = description.floor_char_boundary(MAX_DESCRIPTION_BYTES);
    let from_repository = matches!(source, SkillSource::Workspace(_));
    let path = if from_repository {
        folder.to_string()
    } else {
        workspace
            .root()
            .join(folder.as_path())
            .display()
            .to_string()
    };
    Some(Skill {
        name,
        description: description.get(..end).unwrap_or_default().to_owned(),
        path,
        from_repository,
        bytes: read.size,
        source: source.clone(),
        folder: folder.as_path().to_path_buf(),
    })
}

/// Reads the text of a skill, or a file beside it.
pub(crate) struct UseSkill {
    skills: Skills,
}

impl UseSkill {
    /// Creates the tool; `None` without skills.
    pub(crate) fn for_skills(skills: &Skills) -> Option<Arc<dyn Tool>> {
        // Without skills the tool would only make every request longer.
        let is_needed = !skills.skills.is_empty();
        is_needed.then(|| {
            Arc::new(Self {
                skills: skills.clone(),
            }) as Arc<dyn Tool>
        })
    }
}

impl Tool for UseSkill {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the skill."},
                "file": {
                    "type": "string",
                    "description": "A file of the skill, relative to its folder. Without it, the skill's own text is returned.",
                },
            },
            "required": ["name"],
        });
        let about = "Reads the instructions of a skill, or a file that belongs to it. Runs nothing: scripts of a skill are run with \
                     execute_command.";
        ToolSpec::new(USE_SKILL, about, parameters)
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Read)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::trim);
        let name = text("name").unwrap_or_default();
        let Some(skill) = self.skills.skills.iter().find(|skill| skill.name == name) else {
            let names = self.skills.skills.iter().map(|skill| skill.name.as_str());
            let near = sabir_call::nearest_candidate(name, names);
            let hint = near.map_or_else(
                || "the names are in your instructions".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            return InvalidCall::boxed(format!("there is no such skill: {hint}"));
        };
        let file = text("file")
            .filter(|file| !file.is_empty())
            .unwrap_or(SKILL_FILE);
        // Resolved without the file system, and never out of the skill's folder.
        let inside = WorkPath::parse(file, Path::new("/nowhere"));
        let path = inside
            .ok()
            .filter(|_| !Path::new(file).is_absolute())
            .and_then(|path| WorkPath::from_inside(&skill.folder.join(path.as_path())));
        match path {
            Some(path) => Box::new(SkillCall {
                skill: skill.clone(),
                path,
                is_main: file == SKILL_FILE,
            }),
            None => InvalidCall::boxed("`file` must be a path in the folder of the skill"),
        }
    }
}

struct SkillCall {
    skill: Skill,
    path: WorkPath,
    /// True for the text of the skill itself.
    is_main: bool,
}

impl PreparedCall for SkillCall {
    fn access(&self) -> Access {
        match &self.skill.source {
            // Checked as `read_file` is.
            SkillSource::Workspace(workspace) => Access::Read {
                path: workspace
                    .resolve_links(&self.path)
                    .unwrap_or_else(|_| self.path.clone())
                    .to_string(),
                outside: false,
            },
            // The user put it there for agents.
            SkillSource::User(_) => Access::Nothing,
        }
    }

    fn preview(&self) -> Option<String> {
        Some(self.skill.name.clone())
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            match self.read() {
                Ok(text) => ToolOutput::done(text),
                Err(error) => ToolOutput::failed(format!(
                    "{} of the skill {} cannot be read: {error}",
                    self.path, self.skill.name
                )),
            }
        })
    }
}

impl SkillCall {
    fn read(&self) -> Result<String, ConventionError> {
        let own;
        let workspace = match &self.skill.source {
            SkillSource::Workspace(workspace) => workspace.as_ref(),
            SkillSource::User(root) => {
                own = Workspace::open(root)?;
                &own
            }
        };
        // The text itself may be a link in the folder, as rules may; a file that the model names
        // may not.
        let read = if self.is_main {
            read_text_start(workspace, &self.path, MAX_TEXT_BYTES)?
        } else {
            read_named_text(workspace, &self.path, MAX_TEXT_BYTES)?
        };
        let rest = read.size.saturating_sub(read.text.len() as u64);
        let mut text = if self.is_main {
            let body = FrontMatter::parse(&read.text).body.trim();
            format!(
                "The skill {}. Its folder is {}.\n\n{body}\n",
                self.skill.name, self.skill.path
            )
        } else {
            read.text
        };
        if rest > 0 {
            text.push_str(&format!("\n[{rest} bytes of it are left out here]\n"));
        }
        // Names only: the third level of disclosure is the model's choice.
        if self.is_main {
            text.push_str(&self.file_list(workspace));
        }
        Ok(text)
    }

    /// Returns the names of the files beside the text.
    fn file_list(&self, workspace: &Workspace) -> String {
        let options = ListOptions {
            recursive: true,
            max_entries: MAX_FILES,
            stop: StopFlag::default(),
        };
        let Some(folder) = WorkPath::from_inside(&self.skill.folder) else {
            return String::new();
        };
        let Ok(listing) = workspace.list_folder(&folder, &options) else {
            return String::new();
        };
        let names: Vec<String> = listing
            .entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::File && entry.path != self.path)
            .filter_map(|entry| entry.path.as_path().strip_prefix(&self.skill.folder).ok())
            .map(|path| path.display().to_string())
            .collect();
        if names.is_empty() {
            return String::new();
        }
        let more = if listing.truncated { ", and more" } else { "" };
        format!(
            "\nFiles of the skill, which {USE_SKILL} reads with `file`: {}{more}\n",
            names.join(", ")
        )
    }
}
