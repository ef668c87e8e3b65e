//! Every command that the documents show, run as a reader runs it.
//!
//! In blocks marked `sh`, lines that begin with `xlog ` are run by a shell, those of one page in
//! one folder and in their order, since a page may read what it has written. Blocks with another
//! mark (`console`) are for what takes long, needs a GPU, or changes a machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The fewest commands, and links, that there are: a test that finds less looks in the wrong place.
const FEWEST: usize = 30;

fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate is part of the repository")
}

/// All pages: the README, and everything under `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md")];
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of documents") {
            let path = entry.expect("an entry of it").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// A fenced block: what it is marked as, where it begins, and its lines.
struct Block<'p> {
    mark: &'p str,
    line: usize,
    lines: Vec<&'p str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(mark), None) => open = Some(Block { mark, line: index + 1, lines: Vec::new() }),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block that is never closed");
    blocks
}

/// The commands of a block, each on one line.
fn commands(block: &Block<'_>) -> Vec<String> {
    let mut commands = Vec::new();
    let mut joined = String::new();
    for line in &block.lines {
        match line.strip_suffix('\\') {
            Some(begun) => joined += begun,
            None => commands.push(std::mem::take(&mut joined) + line),
        }
    }
    assert!(joined.is_empty(), "the last line of a block goes on");
    commands.retain(|command| command.starts_with("xlog "));
    commands
}

/// Whether the reader is told that a command fails: its comment begins so.
fn is_to_fail(command: &str) -> bool {
    command.rsplit_once(" # ").is_some_and(|(_, comment)| comment.starts_with("fails"))
}

/// A folder that is gone after the test, in which `examples` is the repository's.
struct Folder(PathBuf);

impl Folder {
    fn new(number: usize) -> Self {
        let name = format!("xlog-docs-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("a folder for the test");
        // Copied, not linked: a page that writes there by mistake must not change the repository.
        copy_folder(&repository().join("examples"), &folder.0.join("examples"));
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for the examples");
    for entry in fs::read_dir(from).expect("the repository's examples") {
        let path = entry.expect("an entry of them").path();
        let name = path.file_name().expect("an entry has a name");
        if path.is_dir() {
            copy_folder(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).expect("a copy of an example");
        }
    }
}

/// Runs a command in `folder`; an answer if it did not end as the page says.
fn run(command: &str, folder: &Folder) -> Option<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_xlog")).parent().expect("a program is in a folder");
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(binary.to_owned()).chain(std::env::split_paths(&others)),
    );
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(&folder.0)
        .env("PATH", path.expect("folders with names that a path can have"))
        .output()
        .expect("a shell");
    (output.status.success() == is_to_fail(command))
        .then(|| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn every_command_of_the_documents_ends_as_they_say() {
    let (mut found, mut wrong) = (0, Vec::new());
    for (number, path) in pages().iter().enumerate() {
        let page = fs::read_to_string(path).expect("a page");
        let folder = Folder::new(number);
        for block in blocks(&page).iter().filter(|block| block.mark == "sh") {
            for command in commands(block) {
                found += 1;
                if let Some(answer) = run(&command, &folder) {
                    wrong.push(format!("{}:{}: {command}\n{answer}", path.display(), block.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {found} commands:\n{}", wrong.len(), wrong.join("\n"));
    assert!(found >= FEWEST, "only {found} commands were found in {} pages", pages().len());
}

#[test]
fn a_file_that_a_page_shows_is_that_file() {
    let mut shown = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("a page");
        for block in blocks(&page) {
            let first = block.lines.first().copied().unwrap_or_default();
            let Some(name) = first.strip_prefix("# examples/") else { continue };
            let file = fs::read_to_string(repository().join("examples").join(name));
            let file = file.unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
            assert_eq!(block.lines.join("\n"), file.trim_end(), "{}: {name}", path.display());
            shown += 1;
        }
    }
    assert!(shown > 0, "no page shows a plan");
}

/// Where the links of a page lead, those of its list of references included.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let inline = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let listed = page.lines().filter(|line| line.starts_with('['));
    inline.chain(listed.filter_map(|line| Some(line.split_once("]: ")?.1)))
}

/// The name under which a heading is linked to: small letters, no punctuation, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars();
    let kept = kept.filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let mut found = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("a page");
        let folder = path.parent().expect("a page is in a folder");
        for link in links(&page).filter(|link| !link.contains("://")) {
            found += 1;
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: {link} is not there", path.display());
            if !place.is_empty() {
                let text = fs::read_to_string(&target).expect("a page with headings");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let there = headings.any(|heading| anchor(heading) == place);
                assert!(there, "{}: {link}: no such heading", path.display());
            }
        }
    }
    assert!(found >= FEWEST, "only {found} links were found");
}
