//! The reader's view of a tool: the names that its tags may have.
//!
//! It is derived from the definitions and from the table of other agents' tools, once for each set
//! of tools, since that costs as much as reading many texts.

use std::borrow::Cow;
use std::sync::Arc;

use crate::compatibility::{FOREIGN_TOOLS, ForeignTool, unambiguous_aliases};
use crate::tool::{ToolSet, ToolSpec};

/// The reader's view of a tool.
#[derive(Debug, Clone)]
pub(crate) struct KnownTool {
    pub(crate) name: Cow<'static, str>,
    // Shared by the names of one foreign tool: copies took a tenth of the start of a task.
    pub(crate) arguments: Arc<[String]>,
    required: Arc<[String]>,
    /// Names that are understood besides the declared ones; an alias comes with its argument.
    understood: Arc<[UnderstoodArgument]>,
    /// True for a tool of another agent, whose tag needs more evidence than that of a declared one.
    pub(crate) is_foreign: bool,
}

/// An argument that a tool does not declare but that is understood.
#[derive(Debug, Clone)]
struct UnderstoodArgument {
    name: &'static str,
    /// The declared argument that it means; `None` for an argument of its own.
    meaning: Option<String>,
}

impl KnownTool {
    /// Returns the names that are understood beside the declared ones.
    pub(crate) fn understood_names(&self) -> impl Iterator<Item = &str> {
        self.understood.iter().map(|argument| argument.name)
    }

    /// Returns true if the name is an alias of a declared argument.
    pub(crate) fn has_alias(&self, name: &str) -> bool {
        self.understood
            .iter()
            .any(|known| known.name == name && known.meaning.is_some())
    }

    /// Returns true if the argument is understood, and neither it nor the argument that it means was
    /// given.
    pub(crate) fn understands_argument(&self, name: &str, is_given: impl Fn(&str) -> bool) -> bool {
        self.understood
            .iter()
            .find(|known| known.name == name)
            .is_some_and(|known| {
                !is_given(name)
                    && known
                        .meaning
                        .as_deref()
                        .is_none_or(|meant| !is_given(meant))
            })
    }

    /// Returns true if these include all arguments that the tool requires.
    pub(crate) fn is_satisfied_by<'n>(&self, given: impl Iterator<Item = &'n str> + Clone) -> bool {
        self.required
            .iter()
            .all(|name| given.clone().any(|given| given == name))
    }

    /// Collects the declared tools, then those of other agents, if the set understands them.
    pub(crate) fn collect_tools(tools: &ToolSet) -> Vec<Self> {
        let mut known: Vec<Self> = tools
            .all_tools()
            .map(|spec| Self::from_spec(spec, tools))
            .collect();
        let foreign = FOREIGN_TOOLS.iter().filter(|row| tools.means_tool(row));
        for row in foreign {
            let pattern = Self::from_row(row);
            let free = row.names.iter().filter(|name| tools.get(name).is_none());
            known.extend(free.map(|name| Self {
                name: Cow::Borrowed(name),
                ..pattern.clone()
            }));
        }
        known
    }

    fn from_spec(spec: &ToolSpec, tools: &ToolSet) -> Self {
        let mut arguments: Vec<&str> = spec
            .declared_arguments()
            .map(|argument| argument.name)
            .collect();
        for name in spec.branch_argument_names() {
            if !arguments.contains(&name) {
                arguments.push(name);
            }
        }
        let mut understood = understood_aliases(&arguments);
        let extension = ForeignTool::find_exact(&spec.name)
            .filter(|row| row.is_extension() && tools.means_tool(row));
        for argument in extension.into_iter().flat_map(|row| row.arguments) {
            if !arguments.contains(&argument.name) {
                // The name's own meaning takes precedence over that of an alias.
                understood.retain(|alias| alias.name != argument.name);
                understood.push(UnderstoodArgument {
                    name: argument.name,
                    meaning: None,
                });
            }
        }
        let required = spec
            .declared_arguments()
            .filter(|argument| argument.required)
            .map(|argument| argument.name.to_owned())
            .collect();
        Self {
            name: Cow::Owned(spec.name.clone()),
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            required,
            understood: understood.into(),
            is_foreign: false,
        }
    }

    fn from_row(row: &'static ForeignTool) -> Self {
        let arguments: Vec<&str> = row.arguments.iter().map(|argument| argument.name).collect();
        let understood = understood_aliases(&arguments).into();
        let required = row.arguments.iter().filter(|argument| argument.required);
        Self {
            name: Cow::Borrowed(""),
            required: required.map(|argument| argument.name.to_owned()).collect(),
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            understood,
            is_foreign: true,
        }
    }
}

fn understood_aliases(arguments: &[&str]) -> Vec<UnderstoodArgument> {
    let aliases = unambiguous_aliases(arguments).into_iter();
    aliases
        .map(|(name, argument)| UnderstoodArgument {
            name,
            meaning: Some(argument.to_owned()),
        })
        .collect()
}
