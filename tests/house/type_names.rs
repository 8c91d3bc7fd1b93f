//! Names of types: each in one file, so that a reader cannot take one type for another.

use std::collections::{BTreeMap, BTreeSet};

use super::crates::{CRATES, Rules, name as file_name};

const NO_AIO: &str = "stands for Linux AIO where there is none";
const NO_FILE_RING: &str = "stands for the ring where there is no io_uring";
const NO_TRACE: &str = "stands for the table of buffers without the feature `trace-buffers`";
const WINDOWS: &str = "takes the place of the one for Unix";

/// Types that replace each other, of which one build has one: their name, their files, the reason.
const TWINS: [(&str, [&str; 2], &str); 10] = [
    ("AioCounters", ["kernel/no_aio.rs", "sys/aio.rs"], NO_AIO),
    ("AioFiles", ["kernel/aio/mod.rs", "kernel/no_aio.rs"], NO_AIO),
    ("Child", ["sys/child.rs", "sys/windows/child.rs"], WINDOWS),
    ("FileRing", ["sys/file_ring.rs", "sys/no_file_ring.rs"], NO_FILE_RING),
    ("FileRingCounters", ["sys/file_ring.rs", "sys/no_file_ring.rs"], NO_FILE_RING),
    ("Kind", ["memory/no_trace.rs", "memory/trace.rs"], NO_TRACE),
    ("Raw", ["kernel/aio/store.rs", "kernel/no_aio.rs"], NO_AIO),
    ("Signals", ["sys/signals.rs", "sys/windows/signals.rs"], WINDOWS),
    ("Vector", ["sys/fs.rs", "sys/windows/fs.rs"], WINDOWS),
    ("WakeFd", ["sys/wake_fd.rs", "sys/windows/wake_fd.rs"], WINDOWS),
];

/// Types of windlass-web that stand for those of the feature `deflate` where it is off.
const WITHOUT_DEFLATE: [&str; 4] = ["Compression", "PackStep", "Packing", "Whole"];

/// Names that two crates have, each for its own: as the settings of a driver and of an engine are
/// both `Config`. None of them has two files in one crate.
const BETWEEN: &[&str] = &[
    "Answer",
    "Asked",
    "Begin",
    "Begun",
    "Body",
    "Call",
    "Cause",
    "Choice",
    "Chunk",
    "Closed",
    "Config",
    "Content",
    "Context",
    "Counters",
    "Deadlines",
    "Decoder",
    "Ends",
    "Engine",
    "Error",
    "Event",
    "Fetch",
    "Field",
    "Fields",
    "Files",
    "Finished",
    "Found",
    "History",
    "Inbox",
    "Input",
    "Job",
    "Jobs",
    "Kept",
    "Kind",
    "Limits",
    "Link",
    "Listen",
    "Loop",
    "Machine",
    "Message",
    "Moved",
    "Origin",
    "Owner",
    "Pairs",
    "Parts",
    "Payload",
    "Peer",
    "Plan",
    "Refusal",
    "Refused",
    "Remote",
    "Report",
    "Request",
    "Rest",
    "Role",
    "Rule",
    "Running",
    "ServerLoop",
    "Session",
    "Socket",
    "Stage",
    "Step",
    "Submitted",
    "Table",
    "Target",
    "Text",
    "Then",
    "Version",
    "Waker",
    "Wire",
    "Writer",
];

/// Names of several types of one crate, which have to become different.
const WITHIN: [&str; 7] = ["Head", "Piece", "Place", "Queue", "Shared", "Slot", "State"];

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let is_public = code.starts_with("pub ") || code.starts_with("pub(");
    let mut words = code.split_whitespace().skip_while(|word| {
        // Words of `pub`, `pub(crate)` and `pub(in crate::proactor)`, and `unsafe`.
        word.starts_with("pub") || word.ends_with(')') || *word == "unsafe"
    });
    let is_type = match words.next()? {
        "struct" | "enum" | "trait" | "union" => true,
        // A `type` further in, without `pub`, belongs to an `impl` or a trait.
        "type" => is_public || !line.starts_with(' '),
        _ => false,
    };
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let name = words.next()?.split(is_end).next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// The types that a source defines outside of its modules of tests.
fn types(text: &str) -> Vec<&str> {
    let (mut found, mut previous, mut in_tests) = (Vec::new(), "", false);
    for line in text.lines() {
        let of_tests = previous == "#[cfg(test)]" || previous.starts_with("#[cfg(all(test,");
        if of_tests && line.starts_with("mod ") && line.ends_with('{') {
            in_tests = true;
        }
        if !in_tests {
            found.extend(defined(line));
        }
        in_tests &= line != "}";
        previous = line;
    }
    found
}

/// The files of each type of the workspace, by the crate's folder and the path from its `src`.
fn files_of_types() -> BTreeMap<String, BTreeSet<(&'static str, String)>> {
    let mut of: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for Rules { home, .. } in CRATES {
        let sources = super::sources_of(home);
        for (file, text) in sources.iter().filter(|(file, _)| !super::is_test(file)) {
            for name in types(text) {
                of.entry(name.to_owned()).or_default().insert((home, file_name(file)));
            }
        }
    }
    of
}

/// Two types that a reader could confuse do not share a name, over all crates.
#[test]
fn a_type_name_has_one_file() {
    let mut of = files_of_types();
    assert!(of.len() > 400, "the search finds nothing any more: {}", of.len());
    for (name, twins, reason) in TWINS {
        let found = of.get_mut(name).expect(name);
        for twin in twins {
            assert!(found.remove(&("", twin.to_owned())), "{name} in {twin}, which {reason}");
        }
        // One of them stands for both.
        found.insert(("", twins[0].to_owned()));
    }
    for name in WITHOUT_DEFLATE {
        let found = of.get_mut(name).expect(name);
        assert!(found.remove(&("crates/web", "exchange/no_compress.rs".to_owned())), "{name}");
    }
    of.retain(|_, files| files.len() > 1);
    for &name in BETWEEN {
        let files = of.remove(name);
        let files = files.unwrap_or_else(|| panic!("{name} has one file: delete its exception"));
        let crates: BTreeSet<&str> = files.iter().map(|(home, _)| *home).collect();
        assert_eq!(crates.len(), files.len(), "{name} has two files in a crate: {files:?}");
    }
    for name in WITHIN {
        assert!(of.remove(name).is_some(), "{name} has one file: delete its exception");
    }
    assert!(of.is_empty(), "names of types in several files: {of:#?}");
}

/// Tests the search for types.
#[test]
fn the_search_for_types_sees_what_it_should() {
    let text = "
pub struct A<T>(T);
enum B {
    C(D),
}
pub(crate) unsafe trait E: F {
    type G = H;
}
/// struct I
mod raw {
    pub(super) type J = u8;
    union K {}
}
pub(in crate::proactor) type L = M;
type N = O;
struct $name;
let type_name = 1;
#[cfg(all(test, loom))]
mod loom_tests {
    struct P;
}
struct Q;
#[cfg(test)]
mod tests {
    struct R;
}
";
    assert_eq!(types(text), ["A", "B", "E", "J", "K", "L", "N", "Q"]);
}
