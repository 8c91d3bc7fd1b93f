//! Rules for the sources of every crate of the workspace, and what does not keep them yet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{is_test, sources_of};

/// A crate, how much it may have, and its exceptions. An exception that is needed no more fails:
/// then it is deleted here.
pub(super) struct Rules {
    /// The folder of the crate, from the root of the repository.
    pub(super) home: &'static str,
    /// The most types that its root makes public.
    root_types: usize,
    /// The type with the most parts: its file, its definition, and the most fields that it has.
    parts: (&'static str, &'static str, usize),
    /// Modules with a file beside their folder.
    beside: &'static [&'static str],
    /// At least so many functions are seen, or the search is broken.
    functions: usize,
}

/// Every crate of the workspace.
pub(super) const CRATES: [Rules; 5] = [
    Rules {
        home: "",
        root_types: 32,
        parts: ("proactor/mod.rs", "pub struct Proactor<K: Kernel> {", 12),
        beside: &[],
        functions: 300,
    },
    Rules {
        home: "crates/serve",
        root_types: 24,
        parts: ("engine/mod.rs", "pub struct Engine<S> {", 12),
        beside: &["log.rs", "server/loops.rs"],
        functions: 300,
    },
    Rules {
        home: "crates/http1",
        root_types: 20,
        parts: ("head/request.rs", "pub struct RequestHead {", 12),
        beside: &[],
        functions: 100,
    },
    Rules {
        home: "crates/websocket",
        root_types: 20,
        parts: ("decode.rs", "pub struct Decoder {", 12),
        beside: &[],
        functions: 20,
    },
    Rules {
        home: "crates/web",
        root_types: 24,
        parts: ("exchange/mod.rs", "pub(crate) struct Exchange<K> {", 12),
        beside: &[],
        functions: 100,
    },
];

/// The most lines of a source file, and of a function between its braces.
const MOST_LINES: (usize, usize) = (700, 100);

/// A source file, as exceptions name it.
pub(super) fn name(file: &Path) -> String {
    file.to_str().expect("a name").replace('\\', "/")
}

impl Rules {
    /// Every source file, by its path from `src`.
    fn sources(&self) -> Vec<(PathBuf, String)> {
        sources_of(self.home)
    }

    /// Fails if one of the exceptions is none.
    fn are_needed(&self, exceptions: &[&str], found: &BTreeSet<String>) {
        for name in exceptions {
            let home = self.home;
            assert!(found.contains(*name), "{home}: {name} keeps the rule: delete its exception");
        }
    }
}

#[test]
fn every_crate_has_rules() {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let folders = std::fs::read_dir(at).expect("the members").map(|member| {
        format!("crates/{}", member.expect("a member").file_name().to_str().expect("a name"))
    });
    let all: BTreeSet<String> = std::iter::once(String::new()).chain(folders).collect();
    assert_eq!(all, CRATES.iter().map(|rules| rules.home.to_owned()).collect());
}

/// Lines that ask for a platform, in a `cfg` of any form, and the line behind each.
fn platform_lines(text: &str) -> Vec<(usize, &str, &str)> {
    const WORDS: [&str; 9] = [
        "target_os",
        "target_vendor",
        "target_family",
        "target_arch",
        "target_env",
        "target_pointer_width",
        "windlass_kqueue",
        "unix)",
        "windows)",
    ];
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let asks = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        WORDS.iter().any(|word| code.contains(word))
    };
    let at = (0..lines.len()).filter(|&i| asks(lines[i]));
    at.map(|i| (i + 1, lines[i], lines.get(i + 1).copied().unwrap_or(""))).collect()
}

/// Whether a `cfg` of a platform is allowed in this file of a crate: in `sys`, on `mod` lines of
/// lib.rs and kernel/mod.rs, on `Auto`'s variants, in files of tests.
fn is_allowed(file: &Path, line: &str, next: &str) -> bool {
    let attribute = line.starts_with("#[cfg(");
    match file.to_str() {
        _ if file.starts_with("sys") || file == Path::new("sys.rs") => true,
        _ if file.components().any(|part| part.as_os_str() == "tests") => true,
        _ if file.ends_with("tests.rs") => true,
        Some("lib.rs" | "kernel/mod.rs") => {
            let item = next.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            attribute && item.starts_with("mod ")
        }
        Some("watcher/auto.rs") => {
            let names = next.trim_start_matches("Auto::");
            attribute && names.starts_with(|first: char| first.is_ascii_uppercase())
        }
        _ => false,
    }
}

#[test]
fn platforms_are_asked_for_in_sys_only() {
    let mut asked = 0;
    for rules in CRATES {
        for (file, text) in rules.sources() {
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
            for (number, line, next) in platform_lines(code) {
                let name = name(&file);
                assert!(is_allowed(&file, line, next), "{}: {name}:{number}: {line}", rules.home);
                asked += 1;
            }
        }
    }
    assert!(asked > 10, "the search finds nothing any more");
}

/// Tests the search for platforms.
#[test]
fn the_search_sees_what_it_should() {
    let asks = |text: &str| !platform_lines(text).is_empty();
    assert!(asks("#[cfg(target_os = \"linux\")]\nfn f() {}"));
    assert!(asks("if cfg!(windows) {"));
    assert!(asks("#[cfg_attr(not(unix), allow(dead_code))]"));
    assert!(!asks("#[cfg(test)]\nmod tests;"));
    assert!(!asks("// not for (unix) alone"));
    let cfg = "#[cfg(unix)]";
    assert!(is_allowed(Path::new("sys/net.rs"), cfg, "fn f()"));
    assert!(is_allowed(Path::new("lib.rs"), cfg, "mod ring;"));
    assert!(!is_allowed(Path::new("lib.rs"), cfg, "pub use ring::Ring;"));
    assert!(is_allowed(Path::new("kernel/mod.rs"), cfg, "pub mod ring {"));
    assert!(!is_allowed(Path::new("kernel/mod.rs"), cfg, "pub use ring::Ring;"));
    assert!(is_allowed(Path::new("watcher/auto.rs"), cfg, "Ring(Proactor<Ring>),"));
    assert!(is_allowed(Path::new("watcher/auto.rs"), cfg, "Auto::Ring(driver) => driver.f(),"));
    assert!(!is_allowed(Path::new("watcher/auto.rs"), cfg, "use crate::ring::Ring;"));
    assert!(!is_allowed(Path::new("kernel/os.rs"), cfg, "fn f()"));
    assert!(is_allowed(Path::new("reactor/tests.rs"), cfg, "fn f()"));
    assert!(is_allowed(Path::new("file/tests/mod.rs"), cfg, "mod paths;"));
    assert!(!is_allowed(Path::new("file/job.rs"), cfg, "mod tests;"));
}

/// The names that `pub use` lines at the root of the crate make public.
fn names_at_the_root(text: &str) -> Vec<String> {
    let uses = text.split(';').filter_map(|statement| {
        let code = statement.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.collect::<Vec<_>>().join(" ").trim().strip_prefix("pub use ").map(str::to_owned)
    });
    let mut names = Vec::new();
    for path in uses {
        let list = path.split_once('{').map_or_else(
            || path.rsplit("::").next().unwrap_or("").to_owned(),
            |(_, list)| list.trim_end_matches('}').to_owned(),
        );
        let each = list.split(',').map(|name| name.rsplit([' ', ':']).next().unwrap_or(""));
        names.extend(each.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    names
}

/// The root has the types that every program uses. Types for special needs are in modules.
#[test]
fn the_root_has_few_names() {
    for Rules { home, root_types, .. } in CRATES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(home).join("src/lib.rs");
        let names = names_at_the_root(&std::fs::read_to_string(path).expect("the root"));
        // A module is a page of names of its own.
        let types = names.iter().filter(|name| name.starts_with(|c: char| c.is_uppercase()));
        let count = types.count();
        assert!(count > 10, "{home}: the search finds nothing any more: {names:?}");
        assert!(count <= root_types, "{home}: {count}: {names:?}");
        assert!(!names.iter().any(|name| name == "*"), "{home}: a glob has no count");
    }
    let names = names_at_the_root(include_str!("../../src/lib.rs"));
    for name in ["Watcher", "Op", "Completion", "Submit", "Complete"] {
        assert!(names.iter().any(|other| other == name), "{name} is not seen");
    }
}

/// Tests the search for public names.
#[test]
fn the_search_for_names_sees_what_it_should() {
    let text = "pub mod fs;\nmod op;\n// A word.\npub use op::Op;\npub use a::b::{C,\n    D as E, \
                F};\nuse x::Y;\npub use sys::*;\nconst _: () = ();";
    assert_eq!(names_at_the_root(text), ["Op", "C", "E", "F", "*"]);
}

/// The driver and the engine consist of few parts, each with a name, a file and methods of its own.
#[test]
fn the_proactor_and_the_engine_have_few_parts() {
    for Rules { home, parts: (file, head, most), .. } in CRATES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(home).join("src").join(file);
        let text = std::fs::read_to_string(path).expect("a source");
        let (_, text) = text.split_once(&format!("{head}\n")).expect("the type");
        let (fields, _) = text.split_once("\n}").expect("its end");
        let is_field = |line: &&str| !line.trim_start().starts_with("//") && line.contains(": ");
        let parts: Vec<&str> = fields.lines().filter(is_field).collect();
        assert!(parts.len() > 5, "{home}: the search finds nothing any more");
        assert!(parts.len() <= most, "{home}: {}: {parts:?}", parts.len());
    }
}

/// A module with parts is a folder with a `mod.rs`, never a file beside its folder.
#[test]
fn modules_have_one_form() {
    for rules in CRATES {
        let files: BTreeSet<PathBuf> = rules.sources().into_iter().map(|(file, _)| file).collect();
        let has_folder =
            |file: &&PathBuf| files.iter().any(|other| other.starts_with(file.with_extension("")));
        let beside: BTreeSet<String> =
            files.iter().filter(has_folder).map(|file| name(file)).collect();
        rules.are_needed(rules.beside, &beside);
        let new: Vec<_> = beside.iter().filter(|file| !rules.beside.contains(&&***file)).collect();
        assert!(new.is_empty(), "{}: beside their folders: {new:?}", rules.home);
    }
}

/// Each file names what it needs. Tests may take all from the module that they test.
#[test]
fn no_module_takes_all_of_another() {
    for rules in CRATES {
        let has_glob = |text: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.starts_with("use ") && line.ends_with("::*;"))
        };
        let sources = rules.sources();
        let code = sources.iter().filter(|(file, _)| !is_test(file));
        let globs: Vec<_> = code.filter(|(_, text)| has_glob(text)).map(|(file, _)| file).collect();
        assert!(globs.is_empty(), "{}: they take all of a module: {globs:?}", rules.home);
    }
}

/// The functions of a source: the line of each, and how many lines it has between its braces. As
/// rustfmt sets it, a function ends at the first brace with its own indent.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_head = |line: &str| {
        let words = line.split_whitespace().take_while(|word| !word.contains('"'));
        let mut words = words.skip_while(|word| {
            word.starts_with("pub")
                || word.ends_with(')')
                || ["in", "const", "async", "unsafe"].contains(word)
        });
        words.next() == Some("fn")
    };
    let mut found = Vec::new();
    for (at, head) in lines.iter().enumerate().filter(|(_, line)| is_head(line)) {
        let own = indent(head);
        let Some(open) = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}'])) else {
            continue;
        };
        if !lines[at + open].ends_with('{') {
            continue; // it has no body, or one in its line
        }
        let body = &lines[at + open + 1..];
        let end = body.iter().position(|line| line.trim_start() == "}" && indent(line) == own);
        found.extend(end.map(|end| (at + 1, end)));
    }
    found
}

/// So that a reader can hold one in mind.
#[test]
fn files_and_functions_are_short() {
    let (most_lines, most_of_function) = MOST_LINES;
    for rules in CRATES {
        let (mut long, mut count) = (Vec::new(), 0);
        for (file, text) in rules.sources() {
            let (file, lines) = (file.display(), text.lines().count());
            if lines > most_lines {
                long.push(format!("{file} has {lines} lines"));
            }
            for (at, lines) in functions(&text) {
                count += 1;
                if lines > most_of_function {
                    long.push(format!("{file}:{at}: a function of {lines} lines"));
                }
            }
        }
        assert!(
            count > rules.functions,
            "{}: the search finds nothing any more: {count}",
            rules.home
        );
        assert!(long.is_empty(), "{}: {}", rules.home, long.join("\n"));
    }
}

/// Tests the search for functions.
#[test]
fn the_search_for_functions_sees_what_it_should() {
    let text = "
fn one() {
    if a {
        b();
    }
}

impl A {
    pub(in crate::b) const unsafe fn two(
        c: u8,
    ) -> bool
    where
        D: E,
    {
        true
    }
}

trait F {
    fn three(&self);
    fn four() {}
}
let five = \"fn five() {\";
// fn six() {
";
    assert_eq!(functions(text), [(2, 3), (9, 1)]);
}
