//! The helper of the tests: `tools-probe __supervise …` supervises a command.

use std::process::ExitCode;

use sabir_workspace::supervise;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == supervise::ARGUMENT => supervise::main(args),
        _ => ExitCode::from(2),
    }
}
