//! Modules of each crate import each other downward only: checks it, and draws it for the core.
//!
//! `WINDLASS_DRAW=1 cargo test --test imports` draws the imports into ARCHITECTURE.md. Without the
//! variable the drawing there must be the one that it would draw.
#![allow(missing_docs)] // a test binary has no users

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use scan::{Import, Source};

#[path = "imports/scan.rs"]
mod scan;

/// The order of the modules of a crate.
struct Floors {
    /// The folder of the crate, from the root of the repository.
    home: &'static str,
    /// The modules of its `src`, from bottom to top, in layers. A module imports only modules of
    /// the layers below its own, and those on its left. A name such as `op::payload` is a part of a
    /// folder with a place of its own; all other parts of the folder have the folder's place.
    layers: &'static [(&'static str, &'static [&'static str])],
    /// Folders whose own file only declares their parts.
    folders: &'static [&'static str],
    /// Imports that point upward and have to go: the module, and what it imports.
    upward: &'static [(&'static str, &'static str)],
    /// A module with public names of other modules, and its own: code of the crate imports only
    /// these from it.
    own: Option<(&'static str, &'static str)>,
    /// A component, and modules below it that it must work without.
    apart: Option<(&'static str, &'static [&'static str])>,
    /// At least so many imports are seen, or the search is broken.
    least: usize,
}

/// Every crate of the workspace.
const CRATES: [&Floors; 5] = [&CORE, &SERVE, &HTTP1, &WEBSOCKET, &WEB];

const CORE: Floors = Floors {
    home: "",
    layers: &LAYERS,
    folders: &["memory", "words"],
    upward: &[],
    own: Some(("driver", "Driver")),
    apart: Some(("reactor", &["memory::buf", "op", "file", "workers"])),
    least: 500,
};

const SERVE: Floors = Floors {
    home: "crates/serve",
    layers: &[
        ("the system", &["sys"]),
        ("TLS without I/O", &["tls"]),
        (
            "words",
            &[
                "words::id",
                "words::cause",
                "words::refused",
                "words::job",
                "words::op",
                "words::limits",
                "words::balance",
                "words::networks",
                "words::proxy",
                "words::counters",
                "words::event",
            ],
        ),
        ("memory", &["memory"]),
        ("beside", &["framing", "log"]),
        ("settings, life", &["words::config", "stage"]),
        (
            "parts",
            &[
                "parts::trim",
                "parts::text",
                "parts::idle",
                "parts::flights",
                "parts::proxy",
                "parts::cipher",
                "parts::transport",
                "parts::files",
                "parts::allowances",
                "parts::deadlines",
                "parts::datagrams",
                "parts::jobs",
                "parts::ops",
                "parts::side",
                "parts::moves",
                "parts::kept",
                "parts::heads",
                "parts::pressure",
                "parts::table",
                "parts::writer",
                "parts::output",
                "parts::sessions",
            ],
        ),
        (
            "other threads",
            &[
                "inbox",
                "handles::threads",
                "handles::remote",
                "handles::dial",
                "handles::stream",
                "handles::job",
            ],
        ),
        ("connections", &["engine"]),
        ("programs", &["server"]),
        ("public names", &["net", "jobs", "modes", "ops", "report"]),
    ],
    folders: &["words", "parts", "handles"],
    upward: &[],
    own: None,
    apart: None,
    least: 80,
};

const HTTP1: Floors = Floors {
    home: "crates/http1",
    layers: &[
        ("words", &["bytes", "words", "limits", "error"]),
        ("parts", &["scan", "head::target", "head::fields"]),
        ("heads", &["head"]),
        ("both ways", &["decode", "encode"]),
    ],
    folders: &[],
    upward: &[],
    own: None,
    apart: None,
    least: 40,
};

const WEBSOCKET: Floors = Floors {
    home: "crates/websocket",
    layers: &[
        ("words", &["words", "close", "error", "limits"]),
        ("bytes", &["mask", "utf8"]),
        ("compression", &["deflate"]),
        ("messages", &["handshake", "encode", "decode"]),
    ],
    folders: &[],
    upward: &[],
    own: None,
    apart: None,
    least: 8,
};

const WEB: Floors = Floors {
    home: "crates/web",
    layers: &[
        ("words", &["words"]),
        ("codings of bodies", &["coding"]),
        ("other threads", &["remote"]),
        ("sources of bodies", &["message::source"]),
        (
            "other servers",
            &[
                "client::error",
                "client::url",
                "client::fetch",
                "client::fetched",
                "client::settings",
                "client::redirect",
                "client::input",
                "client::call",
                "client::link",
                "client::pool",
                "client::hub",
                "client::clocks",
                "client::pump",
                "client::news",
                "client::steps",
                "proxy",
            ],
        ),
        (
            "served files",
            &[
                "files::options",
                "files::path",
                "files::range",
                "files::validators",
                "files::conditions",
                "files::dir",
                "files::found",
                "files::body",
                "files::cache",
            ],
        ),
        (
            "messages",
            &[
                "message::date",
                "message::kind",
                "message::gone",
                "message::handover",
                "message::head",
                "message::query",
                "message::subscription",
                "message::response",
                "message::file",
                "message::compress",
                "message::later",
                "message::writer",
                "message::event",
                "message::publication",
                "message::arrived",
                "message::form",
                "message::save",
                "message::forwarded",
                "message::trace",
                "message::request",
                "message::http_types",
            ],
        ),
        ("who hears what", &["topics"]),
        ("connections", &["exchange"]),
        (
            "WebSockets",
            &[
                "websocket::message",
                "websocket::settings",
                "websocket::incoming",
                "websocket::parts",
                "websocket::unfinished",
                "websocket::unfinished_output",
                "websocket::ends",
                "websocket::mask_keys",
                "websocket::compression",
                "websocket::loop_sockets",
                "websocket::sender",
                "websocket::carrier",
                "websocket::session",
                "websocket::inflate_parts",
                "websocket::frames",
                "websocket::sending",
                "websocket::opening",
                "websocket::agreement",
                "websocket::own_carrier",
                "websocket::socket",
                "websocket::peer",
                "websocket",
            ],
        ),
        (
            "programs",
            &[
                "client::own",
                "client::sockets",
                "client",
                "engine::request",
                "engine::events",
                "engine::queue",
                "engine",
                "app",
            ],
        ),
        (
            "tests of programs",
            &[
                "test::error",
                "test::loop_work",
                "test::request",
                "test::response",
                "test::net",
                "test::receive",
                "test::connection",
                "test::client",
                "test::simulation",
                "test::call",
                "test::seeds",
            ],
        ),
        ("public names", &["answers", "body", "events", "report", "upgrade", "upload"]),
    ],
    folders: &["files", "message", "test"],
    upward: &[],
    own: None,
    apart: None,
    least: 40,
};

/// The modules of the core, as `Floors` has them.
const LAYERS: [(&str, &[&str]); 10] = [
    ("the system", &["sys"]),
    (
        "memory",
        &[
            "memory::discard",
            "memory::trace",
            "memory::region",
            "memory::aligned",
            "memory::buf",
            "memory::leaked",
            "memory::buf_pool",
        ],
    ),
    (
        "words",
        &[
            "words::error",
            "words::clock",
            "words::address",
            "words::table",
            "words::source",
            "words::message",
            "words::explain",
            "words::wake_state",
        ],
    ),
    ("threads and files", &["workers", "file"]),
    (
        "operations",
        &[
            "driver::config",
            "driver::endpoint",
            "op::payload",
            "op",
            "completion",
            "driver::parts",
            "op::operation",
            "completion::verbs",
        ],
    ),
    ("parts of a driver", &["remote", "completion::batch", "driver::deadline", "kernel::quirks"]),
    ("components", &["reactor", "kernel::aio"]),
    ("drivers", &["driver", "kernel", "proactor", "kernel::ring", "sim", "watcher::auto"]),
    ("programs", &["watcher", "watcher::source_map"]),
    ("public names", &["process", "fd", "fs", "net"]),
];

/// Where the drawing stands in ARCHITECTURE.md.
const MARKS: (&str, &str) = ("<!-- drawn by tests/imports.rs -->", "<!-- end of the drawing -->");

const COLUMNS: usize = 100;

impl Floors {
    /// All places, from bottom to top.
    fn places(&self) -> impl Iterator<Item = &'static str> {
        self.layers.iter().flat_map(|(_, places)| *places).copied()
    }

    /// How far up a place stands.
    fn rank(&self, place: &str) -> Option<usize> {
        self.places().position(|other| other == place)
    }

    /// The place of a module, or of a name in it: its folder's, or its own.
    fn unit(&self, path: &[String]) -> String {
        let own = path.get(..2).map(|two| two.join("::"));
        let own = own.filter(|own| self.rank(own).is_some());
        own.unwrap_or_else(|| path.first().cloned().unwrap_or_default())
    }

    /// What is wrong with an import, if anything is.
    fn fault(&self, import: &Import) -> Option<String> {
        let Import { path, is_public, .. } = import;
        let (from, to) = (self.unit(&import.from), self.unit(path));
        let own = |name: &str| self.own.filter(|(module, _)| *module == name);
        if *is_public && own(&from).is_some() || self.upward.contains(&(from.as_str(), to.as_str()))
        {
            return None;
        }
        let Some(here) = self.rank(&from) else {
            return Some(format!("{from} has no place in the order"));
        };
        let Some(there) = self.rank(&to) else {
            return Some(format!("no module of the order: {to}"));
        };
        if there > here {
            return Some(format!("{from} imports {to}, which stands above it"));
        }
        if own(&to).is_some_and(|(_, name)| path.get(1).is_none_or(|other| other != name)) {
            return Some(format!("{}: import it from its own module", path.join("::")));
        }
        let apart = self.apart.filter(|(module, _)| *module == from);
        let is_apart = apart.is_some_and(|(_, without)| without.contains(&to.as_str()));
        is_apart.then(|| format!("{from} works without {to}"))
    }

    fn imports(&self) -> Vec<Import> {
        scan::imports(&self.sources(), &|path| self.unit(path))
    }

    /// Every source file of the crate, but its root and its tests.
    fn sources(&self) -> Vec<Source> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.home).join("src");
        let (mut files, mut left) = (Vec::new(), vec![root.clone()]);
        while let Some(at) = left.pop() {
            for entry in std::fs::read_dir(at).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    left.push(path);
                } else if path.extension().is_some_and(|kind| kind == "rs") {
                    let text = std::fs::read_to_string(&path).expect("a source");
                    let path = path.strip_prefix(&root).expect("below").to_owned();
                    files.push(Source { path, text });
                }
            }
        }
        let is_test = |file: &Source| file.path.iter().any(|part| part == "tests");
        files.retain(|file| file.path != Path::new("lib.rs") && !is_test(file));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }
}

#[test]
fn every_crate_has_floors() {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let folders = std::fs::read_dir(at).expect("the members").map(|member| {
        format!("crates/{}", member.expect("a member").file_name().to_str().expect("a name"))
    });
    let all: BTreeSet<String> = std::iter::once(String::new()).chain(folders).collect();
    assert_eq!(all, CRATES.iter().map(|floors| floors.home.to_owned()).collect());
}

#[test]
fn imports_point_downward_only() {
    for floors in CRATES {
        let imports = floors.imports();
        let faults: Vec<String> = imports
            .iter()
            .filter_map(|import| {
                let Import { file, line, .. } = import;
                let path = Path::new(floors.home).join("src").join(file);
                Some(format!("{}:{line}: {}", path.display(), floors.fault(import)?))
            })
            .collect();
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
        let seen = imports.len();
        assert!(seen > floors.least, "{}: the search finds nothing any more: {seen}", floors.home);
        for (from, to) in floors.upward {
            let is_it = |import: &Import| {
                floors.unit(&import.from) == *from && floors.unit(&import.path) == *to
            };
            assert!(imports.iter().any(is_it), "{from} imports {to} no more: delete the exception");
        }
    }
}

#[test]
fn every_module_has_a_place() {
    for floors in CRATES {
        let placed: Vec<&str> = floors.places().collect();
        let once: BTreeSet<String> = placed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(once.len(), placed.len(), "a module stands in two places");
        let mut modules = BTreeSet::new();
        for file in floors.sources() {
            let (module, unit) = (file.module(), floors.unit(&file.module()));
            // The pages of the guide have no code of the crate.
            match floors.folders.contains(&unit.as_str()) {
                true if module.len() > 1 => drop(modules.insert(module.join("::"))),
                false if unit != "guide" => drop(modules.insert(unit)),
                _ => {}
            }
        }
        let (new, gone) = (modules.difference(&once), once.difference(&modules));
        let (new, gone): (Vec<_>, Vec<_>) = (new.collect(), gone.collect());
        assert!(new.is_empty(), "{}: modules without a place: {new:?}", floors.home);
        assert!(gone.is_empty(), "{}: places without a module: {gone:?}", floors.home);
    }
}

/// Codecs, which work on bytes: without I/O, clock, randomness, unsafe code, and other members.
const CODECS: [&str; 2] = ["crates/http1", "crates/websocket"];

#[test]
fn codecs_need_no_other_member() {
    for home in CODECS {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(home);
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
        assert!(!manifest.contains("path ="), "{home} depends on another member");
        let lib = std::fs::read_to_string(root.join("src/lib.rs")).expect("a root");
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{home}");
        let floors = CRATES.iter().find(|floors| floors.home == home).expect("its floors");
        for file in floors.sources() {
            for name in ["std::io", "std::net::Tcp", "std::time", "std::thread", "windlass::"] {
                let has = file.text.contains(name);
                assert!(!has, "{home}: {} has {name}", file.path.display());
            }
        }
    }
}

/// The modules of the core from top to bottom, and what each of them imports.
fn drawing(imports: &[Import]) -> String {
    let mut of: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let own = CORE.own.map_or("", |(module, _)| module);
    for import in imports.iter().filter(|import| !(import.is_public && import.from == [own])) {
        let to = CORE.rank(&CORE.unit(&import.path));
        of.entry(CORE.unit(&import.from)).or_default().extend(to);
    }
    let names: Vec<&str> = CORE.places().collect();
    let mut text = String::from("```text\n");
    for (layer, modules) in LAYERS.iter().rev() {
        writeln!(text, "{layer} {}", "─".repeat(COLUMNS - 1 - layer.len())).expect("a string");
        for module in modules.iter().rev() {
            let mut line = format!("  {module:<19}");
            let below = of.get(*module).into_iter().flatten().rev();
            for (i, to) in below.enumerate() {
                let word = if i == 0 { " ▶ " } else { " " };
                if line.chars().count() + word.len() + names[*to].len() > COLUMNS {
                    text += &line;
                    text.push('\n');
                    line = " ".repeat(23);
                }
                line += word;
                line += names[*to];
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text + "```"
}

/// The text with the drawing between its marks.
fn drawn_into(page: &str, drawing: &str) -> String {
    let (before, rest) = page.split_once(MARKS.0).expect("the first mark");
    let (_, after) = rest.split_once(MARKS.1).expect("the last mark");
    format!("{before}{}\n{drawing}\n{}{after}", MARKS.0, MARKS.1)
}

#[test]
fn the_drawing_shows_the_imports() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let now = drawn_into(&page, &drawing(&CORE.imports()));
    if std::env::var_os("WINDLASS_DRAW").is_some() {
        std::fs::write(&path, now).expect("the page");
    } else {
        assert!(now == page, "draw again: WINDLASS_DRAW=1 cargo test --test imports");
    }
}

/// The imports of one file, each as `line path`.
fn seen(path: &str, text: &str) -> Vec<String> {
    let file = Source { path: PathBuf::from(path), text: text.to_owned() };
    let found = scan::imports(&[file], &|path| CORE.unit(path));
    found.iter().map(|import| format!("{} {}", import.line, import.path.join("::"))).collect()
}

/// Tests the search for imports.
#[test]
fn the_search_sees_every_form() {
    let nested = "use crate::a::{self, b::{C, D as E}, f::*};\nuse crate::{g, h::I};";
    let all = ["1 a", "1 a::b::C", "1 a::b::D", "1 a::f", "2 g", "2 h::I"];
    assert_eq!(seen("x.rs", nested), all);
    let inline = "fn f(a: crate::b::C) -> bool {\n    crate::d::e::<u8>(a) == $crate::f!()\n}";
    assert_eq!(seen("x.rs", inline), ["1 b::C", "2 d::e", "2 f"]);
    assert_eq!(seen("x.rs", "use super::y::Z;\nuse self::w::V;"), ["1 y::Z"]);
    assert_eq!(seen("x/v.rs", "use super::y::Z;\nuse super::super::{t, u::W};"), ["2 t", "2 u::W"]);
    assert_eq!(seen("x/mod.rs", "mod w {\n    use super::super::y::Z;\n}"), ["2 y::Z"]);
    assert_eq!(seen("x.rs", "mod w {\n}\nuse super::y;"), ["3 y"]);
    assert_eq!(seen("sys/a.rs", "use crate::sys::b;\nuse crate::buf::Buf;"), ["2 buf::Buf"]);
    assert_eq!(seen("no_aio.rs", "use crate::aio::A;\nuse crate::op::B;"), ["2 op::B"]);
    assert!(seen("x.rs", "pub(in crate::y) fn f() {}\nuse std::io;\nuse y::Z;").is_empty());
}

/// Tests that the search leaves out what is no code, and what no build has but that of the tests
/// and of the documents.
#[test]
fn the_search_leaves_out_what_it_should() {
    for text in [
        "// use crate::y;\n/* crate::y /* nested */ crate::z */",
        "const A: &str = \"crate::y\\\" crate::z\";",
        "const A: &str = r#\"a \" crate::y\"#;",
        "#[cfg(doc)]\nuse crate::{Y, z::{W}};",
        "#[cfg(test)]\nmod tests {\n    use crate::y;\n    fn f() {}\n}",
        "#[cfg(all(test, not(miri)))]\n#[allow(unused)]\nfn f(a: crate::y::Z) { crate::w() }",
        "struct A {\n    #[cfg(test)]\n    b: crate::y::Z,\n}",
        "#![cfg(any(test, doctest))]\nuse crate::y;",
    ] {
        assert!(seen("x.rs", text).is_empty(), "{text}: {:?}", seen("x.rs", text));
    }
    let kept = "#[cfg(not(test))]\nuse crate::y;\n#[cfg(any(unix, test))]\nuse crate::z;\n\
                #[cfg(test)]\nuse crate::{a};\nfn f<'a>(b: &'a crate::c::D) -> char { '\"' }\n\
                struct E {\n    #[cfg(test)]\n    f: u8,\n    g: crate::h::I,\n}";
    assert_eq!(seen("x.rs", kept), ["2 y", "4 z", "7 c::D", "11 h::I"]);
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
    let files = [file("x.rs", "#[cfg(test)]\nmod t;"), file("x/t/u.rs", "use crate::y;")];
    assert!(scan::imports(&files, &|path| CORE.unit(path)).is_empty());
}

/// Tests what counts as a fault.
#[test]
fn faults_are_told() {
    let import = |from: &str, path: &str, is_public| Import {
        file: PathBuf::new(),
        line: 1,
        from: from.split("::").map(str::to_owned).collect(),
        path: path.split("::").map(str::to_owned).collect(),
        is_public,
    };
    let is_fault = |from, path, is_public| CORE.fault(&import(from, path, is_public)).is_some();
    assert!(is_fault("sys", "words::error::Refusal", false));
    assert!(is_fault("sys", "words::error::Refusal", true));
    assert!(is_fault("memory::aligned", "memory::buf::Buf", false));
    assert!(!is_fault("memory::buf", "memory::aligned", false));
    assert!(is_fault("watcher", "fs::Access", false), "a page of public names");
    assert!(is_fault("watcher", "Op", false), "a name at the root");
    assert!(is_fault("watcher", "driver::OpCode", false), "a name of another module");
    assert!(!is_fault("watcher", "driver::Driver", false));
    assert!(!is_fault("driver", "watcher::auto::Auto", true));
    assert!(is_fault("driver", "watcher::auto::Auto", false));
    assert!(is_fault("reactor", "memory::buf::Buf", false));
    assert!(!is_fault("reactor", "words::table", false));
    const SMALL: Floors = Floors {
        layers: &[("low", &["a", "b"]), ("high", &["c"])],
        upward: &[("a", "c")],
        own: None,
        apart: None,
        ..CORE
    };
    let is_fault = |from, path| SMALL.fault(&import(from, path, false)).is_some();
    assert!(!is_fault("a", "c::D") && is_fault("b", "c::D") && is_fault("a", "b::E"));
    assert!(!is_fault("c", "b::E") && is_fault("c", "f::G") && is_fault("f", "a::H"));
}

/// Tests the drawing.
#[test]
fn the_drawing_has_its_marks() {
    let page = format!("a\n{}\nold\n{}\nb", MARKS.0, MARKS.1);
    let new = drawn_into(&page, "new");
    assert_eq!(new, format!("a\n{}\nnew\n{}\nb", MARKS.0, MARKS.1));
    assert_eq!(drawn_into(&new, "new"), new);
}
