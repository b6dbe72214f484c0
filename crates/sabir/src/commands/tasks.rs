//! Implements `tasks`: lists the tasks that have a journal, with subtasks below their parents.

use sabir_session::{TaskList, TaskLookup};
use sabir_terminal::task_tree::{TaskTree, no_tasks_text, task_json};

use crate::cli::{OutputFormat, TasksArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;

/// Runs `sabir tasks`.
pub(crate) fn run_tasks(arguments: &TasksArguments) -> Result<ExitStatus, CommandError> {
    let environment = process_environment::environment();
    let lookup = TaskLookup::open(environment, arguments.folder.as_deref())?;
    let workspace = (!arguments.everywhere).then(|| lookup.folder());
    let list = TaskList::read(environment, workspace, &arguments.words)?;
    let objects = list.tasks().iter().map(|listed| task_json(&list, listed));
    match arguments.output {
        OutputFormat::Json => print::print_redacted_json(&objects.collect::<Vec<_>>()),
        OutputFormat::Events => objects.for_each(|object| print::print_redacted_json(&object)),
        OutputFormat::Text => {
            let numbered: Vec<_> = lookup.folder_tasks().map(|task| task.id.clone()).collect();
            let tree = TaskTree {
                shows_subtasks: arguments.all,
                numbered: &numbered,
                shows_folders: arguments.everywhere,
                now: environment.now_milliseconds(),
            };
            print::write_stdout(&print::sanitize_text(&tree.render(&list)));
            if list.tasks().is_empty() && !arguments.everywhere {
                print::write_stderr(no_tasks_text(&arguments.words));
            }
        }
    }
    Ok(ExitStatus::Completed)
}
