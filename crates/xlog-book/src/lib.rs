//! The book under `docs/`. Its programs are compiled and run as tests, on the host device, so that
//! no page shows one that does not work. There is nothing to use here.
//!
//! The tests of `xlog-cli` run the commands of the same pages. The link `examples` beside this
//! crate's sources is the repository's folder: programs read their files from there, as a reader's
//! do who starts them in the repository.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/start.md")]
mod start {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/tracing.md")]
mod tracing {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/streams.md")]
mod streams {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/blocks.md")]
mod blocks {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/recorder.md")]
mod recorder {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/resources.md")]
mod resources {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/operators.md")]
mod operators {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/files.md")]
mod files {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/checking.md")]
mod checking {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to.md")]
mod how_to {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/design.md")]
mod design {}
