//! What shells and manuals know of the command.

use std::io::{ErrorKind, Write, stdout};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{BadInput, Failure};

/// Completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

/// The manual page.
#[derive(Debug, Args)]
pub(crate) struct ManCommand {
    /// The command whose page it is; that of xlog itself without one
    command: Option<String>,
}

pub(super) fn completions(options: &CompletionsCommand, mut cli: Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut cli, "xlog", &mut text);
    print(&text)
}

pub(super) fn man(options: &ManCommand, cli: Command) -> Result<(), Failure> {
    let page = match &options.command {
        None => cli,
        Some(name) => {
            let Some(command) = cli.find_subcommand(name) else {
                let message = format!("there is no command {name:?}; see xlog --help");
                return Err(BadInput(message).into());
            };
            // Pages are asked for by one name.
            let title: &'static str = Box::leak(format!("xlog-{name}").into_boxed_str());
            command.clone().name(title).version(env!("CARGO_PKG_VERSION"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    print(&text)
}

/// Prints all of it; a reader that went away is no failure.
fn print(text: &[u8]) -> Result<(), Failure> {
    match stdout().write_all(text).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
