//! The table in README.md names tests that exist.
#![allow(missing_docs)] // a test binary has no users

use std::path::Path;

fn sources(at: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(at).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            texts.push(std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn the_tests_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    sources(&root.join("tests"), &mut texts);
    sources(&root.join("src"), &mut texts);
    let is_row = |line: &&str| line.starts_with("| 6455") || line.starts_with("| 7692");
    let mut seen = 0;
    for row in include_str!("README.md").lines().filter(is_row) {
        let last = row.trim_end_matches('|').rsplit('|').next().expect("a cell");
        for name in last.split('`').skip(1).step_by(2) {
            let head = format!("#[test]\nfn {name}()");
            let inner = format!("#[test]\n    fn {name}()");
            let is_there = texts.iter().any(|text| text.contains(&head) || text.contains(&inner));
            assert!(is_there, "there is no test {name}");
            seen += 1;
        }
    }
    assert!(seen > 50, "the search finds nothing any more: {seen}");
}
