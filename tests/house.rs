//! Rules of the sources and the documents: which code may be in which file, and which names exist.
#![allow(missing_docs)] // a test binary has no users

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use skip::Needs;

#[path = "house/crates.rs"]
mod crates;
#[path = "house/labels.rs"]
mod labels;
#[path = "common/skip.rs"]
mod skip;
#[path = "house/type_names.rs"]
mod type_names;

/// The sources below `at`, by their path from `root`.
fn walk(at: &Path, root: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(at).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, root, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            files.push((path.strip_prefix(root).expect("below").to_owned(), text));
        }
    }
}

/// Every source file of the core, by its path from `src`.
fn sources() -> Vec<(PathBuf, String)> {
    sources_of("")
}

/// Every source file of the crate in this folder, by its path from `src`.
fn sources_of(home: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(home).join("src");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files
}

/// Whether a source of `src` holds tests only.
fn is_test(file: &Path) -> bool {
    let in_tests = file.components().any(|part| part.as_os_str() == "tests");
    in_tests || file.ends_with("tests.rs") || file.ends_with("sim/soak.rs")
}

/// The part of a source that is in the library: no comments, no tests.
fn code_of(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or("")).collect()
}

/// An operation is in three files: its code, its constructor, and what drivers do with it.
#[test]
fn an_operation_is_in_three_files() {
    // Those that `submit` and the events of a selector have shortcuts for, and the reads and syncs
    // that Linux AIO serves as well. A connect has its races; a timer's time is its deadline.
    const SHORTCUTS: [&str; 10] = [
        "Nop", "Timer", "Read", "Write", "Connect", "Close", "ReadAt", "WriteAt", "SyncAll",
        "SyncData",
    ];
    let codes = include_str!("../src/op/code.rs");
    let (_, list) = codes.split_once("ALL: [OpCode; OpCode::COUNT] = [").expect("all codes");
    let (list, _) = list.split_once("];").expect("its end");
    let names: Vec<&str> = list
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("OpCode::")?.strip_suffix(","))
        .collect();
    assert!(names.len() > 20, "the search finds nothing any more");
    let files: Vec<(PathBuf, String)> = sources()
        .into_iter()
        .filter(|(file, _)| !is_test(file))
        .map(|(file, text)| (file, code_of(&text)))
        .collect();
    for name in names.into_iter().filter(|name| !SHORTCUTS.contains(name)) {
        let code = format!("OpCode::{name}");
        let names_it = |text: &String| {
            text.match_indices(&code).any(|(at, found)| {
                let next = text[at + found.len()..].chars().next();
                !next.is_some_and(|next| next.is_ascii_alphanumeric())
            })
        };
        let found = files.iter().filter(|(_, text)| names_it(text)).map(|(file, _)| file);
        let found: Vec<_> = found.collect();
        assert!((2..=3).contains(&found.len()), "{name}: {found:?}");
    }
}

/// The words behind `before` that end with `after`, one a line.
fn words<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let line = |line: &'a str| line.strip_prefix(before)?.split_once(after).map(|(word, _)| word);
    text.lines().filter_map(line).collect()
}

/// A setting has one name, on the builder and in the settings of drivers.
#[test]
fn builder_and_config_agree() {
    let builder = words(include_str!("../src/watcher/builder.rs"), "    pub fn ", "(mut self");
    let config = include_str!("../src/driver/config.rs");
    let (_, fields) = config.split_once("pub struct Config {").expect("the settings");
    let fields = words(fields, "    pub ", ": ");
    assert!(fields.len() > 15, "the search finds nothing any more");
    for name in &fields {
        assert!(builder.contains(name), "the builder has no {name}");
    }
    // Settings of the watcher itself, which no driver gets.
    let own = builder.iter().filter(|name| !fields.contains(name));
    assert_eq!(own.collect::<Vec<_>>(), [&"driver", &"affinity"]);
}

/// The folder reads as a table of contents.
#[test]
fn the_top_of_the_sources_has_few_modules() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = std::fs::read_dir(top).expect("the sources").count();
    assert!((5..=20).contains(&names), "{names} names at the top of src");
}

/// Each call that is counted is in the table of calls that do not wait, with its reason.
#[test]
fn every_call_of_the_loop_has_its_reason() {
    let calls = include_str!("../src/kernel/os_calls/mod.rs");
    let (_, list) = calls.split_once("\ncalls!(").expect("the list");
    let (list, _) = list.split_once(");").expect("its end");
    let table = include_str!("../src/kernel/mod.rs");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("//! | `")).collect();
    let mut seen = 0;
    for name in list.split(',').map(str::trim) {
        let code = format!("`{name}`");
        let has = |row: &&&str| row.split('|').nth(1).is_some_and(|cell| cell.contains(&code));
        assert!(rows.iter().any(|row| has(&row)), "{name} has no row in src/kernel/mod.rs");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// Only `sys` names the selectors: code above it uses the trait.
#[test]
fn the_proactor_names_no_selector() {
    let mut looked = 0;
    for (file, text) in sources() {
        if !file.starts_with("proactor") {
            continue;
        }
        looked += 1;
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let named = ["Epoll", "Kqueue", "sys::Poll", "epoll_", "kevent"];
            let found = named.iter().find(|name| code.contains(**name));
            assert!(found.is_none(), "{}:{}: {line}", file.display(), number + 1);
        }
    }
    assert!(looked > 3);
}

#[test]
fn what_a_system_has_is_not_skipped_in_ci() {
    let linux = cfg!(target_os = "linux");
    assert_eq!(Needs::Aio.is_expected(""), linux);
    assert_eq!(Needs::Aio.is_expected("io_uring"), linux);
    assert!(!Needs::Aio.is_expected("io_uring, aio"));
    assert!(!Needs::Luck.is_expected(""));
}

/// Every file of the examples.
fn examples() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files
}

/// An example opens the descriptors of its signals before connections can use them up.
#[test]
fn examples_make_their_signals_before_they_accept() {
    let mut servers = 0;
    for (path, text) in examples() {
        let at = |call| text.find(call);
        if let (Some(signals), Some(accept)) = (at("common::signals("), at("Op::accept(")) {
            servers += 1;
            assert!(signals < accept, "{path:?} accepts before it has its signals");
        }
    }
    assert!(servers >= 5, "{servers} examples that serve");
}

/// People copy examples, so no example ignores a result.
#[test]
fn examples_discard_no_result() {
    let discards = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        let dropped = code.contains("drop(")
            && ["submit(", "send(", "?)"].iter().any(|call| code.contains(call));
        dropped || [" _ = ", ".ok();"].iter().any(|what| code.contains(what))
    };
    assert!(discards("Ok(_) => drop(watcher.submit(op)),") && discards("let _ = tell.send(1);"));
    assert!(discards("socket.set_nodelay(true).ok();") && !discards("drop(buf);"));
    for (path, text) in examples() {
        for (number, line) in text.lines().enumerate() {
            assert!(!discards(line), "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

/// `examples/README.md` has a line for every example.
#[test]
fn examples_are_in_their_index() {
    let index = include_str!("../examples/README.md");
    for (path, _) in examples() {
        let name = path.display().to_string();
        assert!(name.contains("common") || index.contains(&format!("]({name})")), "{name}");
    }
}

/// Examples have names of their own in the whole repository, and those of a member are in its
/// index.
#[test]
fn examples_of_members_are_in_their_indices() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names: BTreeSet<String> =
        examples().iter().filter_map(|(path, _)| example_name(path)).collect();
    let mut of_members = 0;
    for member in std::fs::read_dir(root.join("crates")).expect("the members") {
        let at = member.expect("a member").path().join("examples");
        let mut files = Vec::new();
        if at.exists() {
            walk(&at, &at, &mut files);
        }
        for (path, _) in files {
            let Some(name) = example_name(&path) else { continue };
            let index = std::fs::read_to_string(at.join("README.md")).expect("an index");
            assert!(index.contains(&format!("]({})", path.display())), "{name} is in no index");
            assert!(names.insert(name.clone()), "two examples are called {name}");
            of_members += 1;
        }
    }
    assert!(of_members > 3);
}

/// The name of the example that a file starts: the file itself, or the main.rs of a folder.
fn example_name(path: &Path) -> Option<String> {
    let is_main = path.ends_with("main.rs");
    let of = if is_main { path.parent()? } else { path };
    let depth = path.components().count();
    let name = of.file_stem()?.to_str()?.to_owned();
    (depth == 1 || is_main && depth == 2).then_some(name)
}

/// The names of the types that implement a trait in this source.
fn implementers<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let of = format!(" {name} for ");
    let lines = text.lines().filter(|line| line.starts_with("impl"));
    lines
        .filter_map(move |line| line.split_once(&of))
        .map(|(_, of)| of.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or(""))
}

/// Everything that moves operations speaks the same two traits, and each type both of them. (`Auto`
/// is the proactor on the kernel of choice. Where there is no Linux AIO, an `AioFiles` that never
/// exists stands in for it.)
#[test]
fn reactor_proactor_aio_and_watcher_submit_and_complete() {
    for name in ["Submit", "Complete"] {
        let mut found = BTreeSet::new();
        for (_, text) in sources() {
            found.extend(implementers(&text, name).map(str::to_owned));
        }
        let all = ["AioFiles", "Auto", "Proactor", "Reactor", "Watcher"];
        assert!(found.iter().eq(all), "{name}: {found:?}");
    }
}

/// Every file of the tests.
fn tests() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files
}

/// The tests in the tables of `tests/README.md` exist, there or in the sources.
#[test]
fn the_tests_that_are_named_exist() {
    let page = include_str!("README.md");
    let (_, table) = page.split_once("| the test that fails |").expect("the table");
    let last = |row: &str| row.trim_end_matches('|').rsplit('|').next().unwrap_or("").to_owned();
    let cells: Vec<String> = table.lines().map(last).collect();
    let names = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let (files, mut count) = ([tests(), sources()].concat(), 0);
    for name in names {
        let (plain, generic) = (format!("fn {name}("), format!("fn {name}<"));
        let there = files.iter().any(|(_, text)| text.contains(&plain) || text.contains(&generic));
        assert!(there, "there is no test {name}");
        count += 1;
    }
    assert!(count > 10, "the search finds nothing any more");
}

/// Every skipped test calls `skip`, which knows the mechanisms of CI.
#[test]
fn what_is_left_out_is_told_by_one_function() {
    let word = ["SK", "IP"].concat();
    let mut seen = 0;
    for (file, text) in tests().into_iter().chain(sources()) {
        let told = text.lines().filter(|line| {
            let code = line.split("//").next().unwrap_or("");
            code.contains(&format!("\"{word}"))
        });
        let allowed = file.ends_with("common/skip.rs") || file.ends_with("common/child.rs");
        for line in told {
            assert!(allowed, "{}: {line}", file.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 2, "skip.rs says it, child.rs passes it on");
}

/// The documents of the project, by their path from its root.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned(), root.join("docs/guide"), root.join("tests")];
    for member in std::fs::read_dir(root.join("crates")).expect("the members") {
        let member = member.expect("a member").path();
        directories.extend(["", "docs", "examples", "tests"].map(|part| member.join(part)));
    }
    for directory in directories.into_iter().filter(|directory| directory.exists()) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|kind| kind == "md") {
                let text = std::fs::read_to_string(&path).expect("a document");
                files.push((path.strip_prefix(root).expect("below").to_owned(), text));
            }
        }
    }
    files
}

/// One screen, then proof.
#[test]
fn the_readme_is_short() {
    let lines = include_str!("../README.md").lines().count();
    assert!(lines <= 120, "README.md has {lines} lines");
}

/// Tables, and addresses that cannot be broken, may be wider.
#[test]
fn documents_are_at_most_100_columns_wide() {
    for (file, text) in documents() {
        for (number, line) in text.lines().enumerate() {
            let free = line.trim_start().starts_with('|') || line.contains("https://");
            let columns = line.chars().count();
            assert!(free || columns <= 100, "{}:{}: {columns}", file.display(), number + 1);
        }
    }
}

/// A link to a file of the project names one that exists. The bench makes the plots.
#[test]
fn documents_link_to_files_that_exist() {
    let mut seen = 0;
    for (file, text) in documents() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let here = root.join(file.parent().expect("a directory"));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let outside = link.contains("://") || link.starts_with(['#', '<']);
            if outside || link.contains("::") || link.starts_with("docs/plots/") {
                continue;
            }
            let path = link.split('#').next().expect("a path");
            // Pages of the guide link to each other by their names in rustdoc, without an ending.
            let exists = here.join(path).exists() || file.starts_with("docs/guide");
            assert!(exists, "{}: {link}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "the search finds nothing any more");
}

/// A public function in an `impl Op` that makes or changes an operation for a program.
struct Maker {
    name: String,
    doc: String,
    /// It makes the operation, and does not change one.
    is_constructor: bool,
}

/// The functions in the `impl Op` blocks of a file that answer `Op`.
fn makers(text: &str) -> Vec<Maker> {
    let (mut found, mut doc, mut inside) = (Vec::new(), String::new(), false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line {
            "impl Op {" => inside = true,
            "}" => inside = false,
            _ => {}
        }
        let code = line.trim_start();
        if let Some(text) = code.strip_prefix("///") {
            doc = doc + text.trim_start() + "\n";
        } else if inside && code.starts_with("pub ") && code.contains("fn ") {
            let mut head = code.to_owned();
            while !head.ends_with(['{', ';']) {
                head += lines.next().expect("the rest of a function's head").trim();
            }
            let (_, rest) = head.split_once("fn ").expect("a function");
            let name = rest.split(['(', '<']).next().unwrap_or("").to_owned();
            let (_, arguments) = rest.split_once('(').expect("its arguments");
            let is_constructor = !arguments.trim_start_matches("mut ").starts_with("self");
            // A function for authors of drivers makes no operation of its own.
            if head.ends_with("-> Op {") && !doc.contains("(for authors of drivers)") {
                found.push(Maker { name, doc: std::mem::take(&mut doc), is_constructor });
            }
            doc.clear();
        } else if !code.starts_with("#[") {
            doc.clear();
        }
    }
    found
}

/// The page of an operation says what it completes with, how it fails, where it differs, what a
/// cancel leaves, and shows it: in this order.
#[test]
fn every_operation_has_its_page() {
    let makers: Vec<Maker> = sources().iter().flat_map(|(_, text)| makers(text)).collect();
    let named = |name: &str| makers.iter().any(|maker| maker.name == name);
    for maker in &makers {
        let Maker { name, doc, is_constructor } = maker;
        let at = |title: &str| doc.lines().position(|line| line == title);
        let sections = ["# Errors", "# Platforms", "# Cancellation"].map(at);
        if *is_constructor {
            assert!(sections.iter().all(Option::is_some), "{name}: {sections:?}");
            assert!(sections.is_sorted(), "{name}: {sections:?}");
            assert!(doc.contains("Completes with [`Done::"), "{name}: what it completes with");
        } else {
            assert!(sections.iter().any(Option::is_some), "{name} has no section");
        }
        let flat = doc.replace('\n', " ");
        let shown = flat.split_once("xample is at [`Op").map(|(_, rest)| {
            let other = rest.split('`').next().unwrap_or("").trim_start_matches("::");
            other.is_empty() || named(other)
        });
        assert!(doc.contains("```") || shown == Some(true), "{name} has no example");
    }
    let constructors = makers.iter().filter(|maker| maker.is_constructor).count();
    assert_eq!((constructors, makers.len() - constructors), (58, 8), "the search finds them all");
}

/// Tests the search for operations.
#[test]
fn the_search_for_operations_sees_what_it_should() {
    let text = "
impl Op {
    /// One.
    ///
    /// # Errors
    #[inline]
    pub const fn one(source: Source) -> Op {
    }

    /// Two.
    pub fn two<T: Any>(
        mut self,
        b: u8,
    ) -> Op {
    }

    /// Not public.
    fn three() -> Op {
    }

    /// Not an operation.
    pub fn four(&self) -> u8 {
    }

    pub fn five() -> Op {
    }

    /// Puts one together (for authors of drivers).
    pub fn from_parts(parts: u8) -> Op {
    }
}

impl Other {
    /// Of another type.
    pub fn six() -> Op {
    }
}
";
    let seen = makers(text);
    let names: Vec<_> = seen.iter().map(|maker| maker.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "five"]);
    assert_eq!(seen[0].doc, "One.\n\n# Errors\n");
    assert_eq!(seen[1].doc, "Two.\n");
    assert!(seen[2].doc.is_empty());
    let constructors: Vec<_> = seen.iter().map(|maker| maker.is_constructor).collect();
    assert_eq!(constructors, [true, false, true]);
}

/// The map in ARCHITECTURE.md names the files that exist, and every file at the top of `src`.
#[test]
fn the_map_and_the_sources_agree() {
    let page = include_str!("../ARCHITECTURE.md");
    let (_, tree) = page.split_once("src/lib.rs").expect("the tree");
    let (tree, _) = tree.split_once("```").expect("its end");
    let words = tree.split(|c: char| !(c.is_ascii_alphanumeric() || "_./".contains(c)));
    let names: Vec<&str> = words
        .filter(|word| word.ends_with(".rs"))
        .map(|word| word.rsplit('/').next().unwrap_or(word))
        .collect();
    let files = sources();
    for name in &names {
        assert!(files.iter().any(|(file, _)| file.ends_with(name)), "there is no {name}");
    }
    for (file, _) in files.iter().filter(|(file, _)| file.components().count() == 1) {
        let name = file.to_str().expect("a name");
        assert!(name == "lib.rs" || names.contains(&name), "the map lacks {name}");
    }
    assert!(names.len() > 50, "the search finds nothing any more");
}

/// A call that has a default in `Driver` and is not passed on is refused by a driver around another
/// one.
#[test]
fn the_traced_driver_passes_every_call_on() {
    fn names(text: &str) -> impl Iterator<Item = &str> {
        let calls = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
        calls.filter_map(|rest| Some(rest.split_once(['(', '<'])?.0))
    }
    let traced = include_str!("../crates/serve/src/log/traced.rs");
    let traced: Vec<&str> = names(traced).collect();
    let (_, driver) =
        include_str!("../src/driver/mod.rs").split_once("pub trait Driver").expect("it");
    let (driver, _) = driver.split_once("\n}\n").expect("its end");
    let missing: Vec<&str> = names(driver).filter(|name| !traced.contains(name)).collect();
    assert!(names(driver).count() > 20, "the search finds nothing any more");
    assert!(missing.is_empty(), "{missing:?}");
}

/// No line of a source has more than 100 columns, but those with an address or of a table.
#[test]
fn lines_have_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for place in ["src", "tests", "examples", "benches", "crates", "bench", "fuzz", "interop"] {
        walk(&root.join(place), root, &mut files);
    }
    let mut long = Vec::new();
    for (file, text) in &files {
        for (number, line) in (1..).zip(text.lines()) {
            let text = line.trim_start_matches([' ', '/', '!']);
            let free = text.starts_with('|') || text.contains("://");
            if line.chars().count() > 100 && !free {
                long.push(format!("{}:{number}", file.display()));
            }
        }
    }
    assert!(files.len() > 250, "the search finds nothing any more: {}", files.len());
    assert!(long.is_empty(), "lines of more than 100 columns: {}", long.join(" "));
}
