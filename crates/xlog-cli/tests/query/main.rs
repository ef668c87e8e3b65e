//! The relational commands as people run them.

mod commands;
mod files;
mod help;
mod signals;
mod support;
