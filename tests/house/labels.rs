//! Labels of invariants: one definition each, and no citation of what is not there.
//!
//! A label is a letter and a digit (and C10, C11). The definition begins a sentence of a comment
//! with the label in parentheses; the contract's are bold.

use std::collections::BTreeMap;

/// The text of the comment on a line, if it has one.
fn comment(line: &str) -> Option<&str> {
    let (_, text) = line.split_once("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

fn is_label(word: &str) -> bool {
    let (letter, number) = word.split_at_checked(1).unwrap_or(("", ""));
    let is_number = number.len() == 1 && number.starts_with(|c: char| c.is_ascii_digit());
    letter.starts_with(|c: char| c.is_ascii_uppercase())
        && (is_number || matches!(word, "C10" | "C11"))
}

/// The labels that the comments of a file define.
fn defined(text: &str) -> Vec<String> {
    // Code and an empty line end a sentence.
    let sentence = |line| comment(line).filter(|text| !text.is_empty()).unwrap_or(".");
    let all = text.lines().map(sentence).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, open) in all.match_indices(['(', '*']) {
        let (before, rest) = (all[..at].trim_end(), &all[at + 1..]);
        let word = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
        let begins = before.is_empty() || before.ends_with([':', ';', '.', '-']);
        let is_definition = match open {
            "(" => begins && rest[word.len()..].starts_with(") "),
            _ => before.ends_with("- *") && rest[word.len()..].starts_with(' '),
        };
        if is_label(word) && is_definition {
            found.push(word.to_owned());
        }
    }
    found
}

/// The labels in the comments of a file, with their lines.
fn cited(text: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.lines());
    let comments = lines.filter_map(|(number, line)| Some((number, comment(line)?)));
    let words = comments.flat_map(|(number, text)| {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.map(move |word| (number, word))
    });
    words.filter(|(_, word)| is_label(word)).collect()
}

/// A label names one invariant, and one that exists.
#[test]
fn labels_of_invariants_are_unique_and_defined() {
    let files = super::sources();
    let mut of: BTreeMap<String, String> = BTreeMap::new();
    for (file, text) in &files {
        for label in defined(text) {
            let other = of.insert(label.clone(), file.display().to_string());
            assert!(other.is_none(), "{label} is in {} and in {}", file.display(), other.unwrap());
        }
    }
    assert!(of.len() > 40, "the search finds nothing any more: {}", of.len());
    let mut count = 0;
    for (file, text) in &files {
        for (number, label) in cited(text) {
            assert!(of.contains_key(label), "{}:{number}: there is no {label}", file.display());
            count += 1;
        }
    }
    assert!(count > 150, "the search finds nothing any more: {count}");
}

/// Tests the search for labels.
#[test]
fn the_search_for_labels_sees_what_it_should() {
    let text = "//! # Safety\n//!\n//! (A1) one; (A2) two.\n//! So (A3). (A4)\n//! Four.\n//!\n\
                //! - (A5) Five.\n//! - **C10 six.** Seven.\nlet B1 = (1);\n/// Eight (A1, B2).";
    assert_eq!(defined(text), ["A1", "A2", "A4", "A5", "C10"]);
    let all = [(3, "A1"), (3, "A2"), (4, "A3"), (4, "A4"), (7, "A5"), (8, "C10")];
    assert_eq!(cited(text), [&all[..], &[(10, "A1"), (10, "B2")]].concat());
    assert!(
        !is_label("X11") && !is_label("a1") && !is_label("A") && !is_label("") && is_label("V4")
    );
}
