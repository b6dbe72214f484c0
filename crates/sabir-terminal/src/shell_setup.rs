//! Renders what a shell and a manual reader need: completions and man pages, from the same texts as the help.

use std::io;
use std::path::Path;

use clap::Command;
pub use clap_complete::Shell;

/// Returns the script that makes a shell complete the commands and options of the program.
pub fn completion_script(shell: Shell, mut root: Command) -> Vec<u8> {
    let name = root.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, name, &mut script);
    script
}

/// Returns the man page of the program, without its commands.
///
/// # Errors
/// The error of the writer.
pub fn main_page(root: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(root).render(&mut page)?;
    Ok(page)
}

/// Writes the man pages of the program and of each command into an existing folder.
///
/// # Errors
/// When a page cannot be written.
pub fn write_pages(root: Command, folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(root, folder)
}
