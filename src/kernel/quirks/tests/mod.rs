//! The quirks of each release.

#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
mod gates;

use super::*;

fn of(release: &str) -> Quirks {
    Quirks::of(release.into(), "x86_64")
}

#[test]
fn releases_are_read() {
    for (text, release) in [
        ("6.18.44-fc-v669", (6, 18)),
        ("6.18", (6, 18)),
        ("5.15.0-105-generic", (5, 15)),
        ("6.12-rc1", (6, 12)),
        ("6.1.0+", (6, 1)),
        ("10.0.0", (10, 0)),
    ] {
        assert_eq!(parse(text), Some(release), "{text}");
    }
    for text in ["", "6", "6.", "six.one", ".6.1", "99999.1"] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn rows_make_sense() {
    for row in ROWS {
        assert!(ROWS.iter().filter(|other| other.name == row.name).count() == 1);
        assert!(row.to.is_none_or(|to| row.from <= to), "{}", row.name);
        assert!(!row.source.is_empty() && !row.action.is_empty() && !row.concerns.is_empty());
    }
}

#[test]
fn long_multishot_receives() {
    for (release, has) in [("6.11.0", false), ("6.12.0", true), ("7.2.0", true)] {
        assert_eq!(of(release).has(Quirk::LongMultishot), has, "{release}");
    }
}

#[test]
fn multishot_receives_of_unix_sockets() {
    for (release, has) in [
        ("6.12.0", false),
        ("6.16.99", false),
        ("6.17.0", true),
        ("6.18.44", true),
        ("7.2.0", true),
    ] {
        assert_eq!(of(release).has(Quirk::UnixMultishot), has, "{release}");
    }
}

#[test]
fn sends_to_unix_sockets() {
    for release in ["5.17.0", "6.18.44", "7.2.0"] {
        assert!(of(release).has(Quirk::UnixSends), "{release}");
    }
}

#[test]
fn buffers_that_are_taken_whole() {
    for (release, has) in [("5.17.0", true), ("6.11.11", true), ("6.12.0", false), ("7.0.1", false)]
    {
        assert_eq!(of(release).has(Quirk::WholeBuffers), has, "{release}");
    }
}

#[test]
fn work_on_files_by_architecture() {
    for (arch, release, arm, power) in [
        ("arm", "5.17.0", true, false),
        ("arm", "6.1.54-v7l+", true, false),
        ("arm", "7.2.0", true, false),
        ("powerpc64", "6.6.7-1-default", false, true),
        ("powerpc64", "7.2.0", false, true),
        ("aarch64", "6.1.54", false, false),
        ("x86_64", "5.17.0", false, false),
        ("riscv64", "6.18.44", false, false),
    ] {
        let quirks = Quirks::of(release.into(), arch);
        let has = (quirks.has(Quirk::ArmFiles), quirks.has(Quirk::PowerFiles));
        assert_eq!(has, (arm, power), "{arch} {release}");
    }
}

#[test]
fn direct_writes_before_a_freeze_was_looked_at() {
    for (release, has) in [
        ("5.17.0", true),
        ("6.11.11", true),
        ("6.12.0", false),
        ("6.18.44", false),
        ("7.0.1", false),
    ] {
        assert_eq!(of(release).has(Quirk::FrozenWrites), has, "{release}");
    }
}

/// An unreadable release may have any quirk, but only of its own architecture.
#[test]
fn an_unknown_release_has_everything() {
    for arch in ["x86_64", "arm", "powerpc64"] {
        let quirks = Quirks::of("custom".into(), arch);
        for row in ROWS {
            assert_eq!(quirks.has(row.quirk), row.arch.is_none_or(|its| its == arch));
        }
    }
}

#[test]
fn rows_are_turned_on_and_off() {
    let mut quirks = of("6.18.44");
    quirks.override_by(" unix-multishot=off, whole-buffers=on ,", "the test").unwrap();
    assert!(!quirks.has(Quirk::UnixMultishot) && quirks.has(Quirk::WholeBuffers));
    assert!(quirks.has(Quirk::UnixSends), "what is not named stays");
    // The last word counts.
    quirks.override_by("unix-multishot=on,unix-multishot=off", "the test").unwrap();
    assert!(!quirks.has(Quirk::UnixMultishot));
    quirks.override_by("", "the test").unwrap();
    assert!(!quirks.has(Quirk::UnixMultishot));
}

#[test]
fn unknown_words_are_told() {
    for word in ["unix=on", "unix-sends", "unix-sends=", "unix-sends=maybe", "=on"] {
        let list = format!("whole-buffers=on,{word}");
        let error = of("6.18.44").override_by(&list, "the test").unwrap_err();
        assert_eq!(error, BadWord(word.into()));
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("whole-buffers"), "{text}");
    }
}

#[test]
fn an_explanation_shows_what_is_in_force_and_how_often() {
    let mut quirks = of("6.18.44");
    quirks.override_by("unix-sends=off,whole-buffers=on", "the test").unwrap();
    assert!(quirks.applies(Quirk::UnixMultishot) && quirks.applies(Quirk::UnixMultishot));
    assert!(!quirks.applies(Quirk::UnixSends));
    let mut explain = Explain::new("test", "why");
    quirks.explain(&mut explain);
    let row = |i: usize| (explain.rows[i].mechanism.as_str(), explain.rows[i].count);
    assert_eq!(explain.rows.len(), 3);
    assert_eq!(row(0), ("quirk long-multishot", 0));
    assert_eq!(row(1), ("quirk unix-multishot", 2));
    assert_eq!(row(2), ("quirk whole-buffers", 0));
    let why = &explain.rows[1].reason;
    assert!(why.contains("issues/1549") && why.contains("this kernel, 6.18.44"), "{why}");
    assert!(explain.rows[2].reason.contains("the test"), "{}", explain.rows[2].reason);
}
