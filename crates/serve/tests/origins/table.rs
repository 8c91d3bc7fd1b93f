//! The tables of `README.md` name tests that exist, and tests cite each promise of the page of the
//! crate.

use std::collections::BTreeSet;
use std::path::Path;

/// Each source below a directory.
fn sources(at: &Path, each: &mut impl FnMut(&str)) {
    for entry in std::fs::read_dir(at).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, each);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            each(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn every_test_of_the_tables_exists() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    for directory in ["tests", "src"] {
        sources(&home.join(directory), &mut |text| {
            let found = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
            names.extend(found.filter_map(|rest| Some(rest.split_once(['(', '<'])?.0.to_owned())));
        });
    }
    let (_, tables) = include_str!("../README.md").split_once("\n## evio").expect("the tables");
    let mut count = 0;
    for row in tables.lines().filter(|line| line.starts_with("| ")) {
        let tests = row.trim_end_matches(" |").rsplit("| ").next().expect("a cell");
        // What stands in backticks.
        for test in tests.split('`').skip(1).step_by(2) {
            assert!(names.contains(test), "there is no test {test}");
            count += 1;
        }
    }
    assert!(count > 60, "{count} tests: the search finds nothing any more");
}

#[test]
fn every_promise_is_cited() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = include_str!("../../src/lib.rs").lines();
    let promises = page.filter_map(|line| line.strip_prefix("//! - **P")?.split(' ').next());
    let promises: Vec<&str> = promises.collect();
    assert_eq!(promises, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    let mut cited = BTreeSet::new();
    sources(&home.join("tests"), &mut |text| {
        let citation = text.split_once("//! Of the promises on the page of the crate: ");
        let line = citation.and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
        let numbers = line.split([' ', ',', '.']).filter_map(|word| word.strip_prefix('P'));
        cited.extend(numbers.map(str::to_owned));
    });
    for promise in promises {
        assert!(cited.contains(promise), "no test cites P{promise}: {cited:?}");
    }
}
