//! Arguments of a subcommand that are only defined when it is called.

use std::ops::Deref;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// The arguments of a subcommand, which the parser defines only when the subcommand is called or explained.
///
/// Defining all options, hundreds with their help, took a third of a short start.
#[derive(Debug)]
pub(crate) struct Deferred<T>(T);

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| with_own_about(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| with_own_about(command, T::augment_args_for_update))
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Defines arguments, and keeps the description of the subcommand: that of the arguments is for readers of the code.
fn with_own_about(command: Command, define: fn(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    let mut command = define(command);
    command = match about {
        Some(about) => command.about(about),
        None => command.about(None),
    };
    match long_about {
        Some(about) => command.long_about(about),
        None => command.long_about(None),
    }
}
