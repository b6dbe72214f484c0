//! Implements `edit`: applies an edit, in a format that models write, from standard input to a file.

use sabir_edit::EditSyntax;
use sabir_toolbox::edit::{EditError, EditOptions, edit_file, failed_edit};

use crate::cli::{EditArguments, EditFormat, ReportFormat};
use crate::commands::parse::read_stdin;
use crate::exit::{CommandError, ExitStatus};
use crate::report_output::print_report;

/// Runs `sabir edit`.
pub(crate) fn run_edit(arguments: &EditArguments) -> Result<ExitStatus, CommandError> {
    let edit = read_edit()?;
    let options = EditOptions {
        format: arguments.format.map(EditSyntax::from),
        dry_run: arguments.dry_run,
    };
    let error = match edit_file(&arguments.file, &edit, options) {
        Ok(applied) => {
            print_report(&applied, arguments.output)?;
            return Ok(ExitStatus::Completed);
        }
        Err(error) => error,
    };
    // As text, a file that cannot be edited is reported as the error of the command alone.
    let is_problem = matches!(error, EditError::Problems(_));
    if is_problem || arguments.output == ReportFormat::Json {
        print_report(&failed_edit(&arguments.file, &error), arguments.output)?;
    }
    if is_problem {
        Ok(ExitStatus::NotUnderstood)
    } else {
        Err(error.into())
    }
}

/// Reads the edit on standard input.
fn read_edit() -> Result<String, CommandError> {
    String::from_utf8(read_stdin()?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandError::usage(format!(
            "standard input: the edit is not UTF-8, byte {at} is the first that is wrong"
        ))
    })
}

impl From<EditFormat> for EditSyntax {
    fn from(format: EditFormat) -> Self {
        match format {
            EditFormat::SearchReplace => Self::SearchReplace,
            EditFormat::ApplyPatch => Self::ApplyPatch,
            EditFormat::StringReplace => Self::StringReplace,
            EditFormat::WholeFile => Self::WholeFile,
        }
    }
}
