//! Files of a file system that answers late: the loop serves its other sources meanwhile.
#![cfg(all(target_os = "linux", not(windlass_kqueue)))]
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![allow(unsafe_code)] // descriptors and limits need libc

mod common;

use std::io::Write;

use common::fuse::{Fuse, Options, Request};

/// The file system is one, and its daemon holds what it is told to hold.
#[test]
fn the_daemon_answers_when_it_is_told_to() {
    let Some(fuse) = Fuse::mount(Options::default()) else { return };
    let path = fuse.at("a");
    std::fs::write(&path, "first").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"first");
    std::fs::create_dir(fuse.at("d")).unwrap();
    std::fs::rename(&path, fuse.at("d/b")).unwrap();
    let names = |at| {
        let entries = std::fs::read_dir(at).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(fuse.at("")), ["d"]);
    assert_eq!(names(fuse.at("d")), ["b"]);
    let mut file = std::fs::File::options().append(true).open(fuse.at("d/b")).unwrap();
    file.set_len(3).unwrap();
    std::thread::scope(|scope| {
        let held = fuse.hold(Request::Write);
        let (says, done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            file.write_all(b" steps").unwrap();
            says.send(()).unwrap();
        });
        held.wait();
        assert_eq!(held.waiting(), 1);
        assert!(done.try_recv().is_err(), "the write waits for its answer");
        drop(held);
        common::receive(&done, "the write ends");
    });
    assert_eq!(std::fs::read(fuse.at("d/b")).unwrap(), b"fir steps");
    assert_eq!(fuse.seen(Request::Fsync), 0);
    std::fs::File::open(fuse.at("d/b")).unwrap().sync_all().unwrap();
    assert_eq!(fuse.seen(Request::Fsync), 1);
    std::fs::remove_file(fuse.at("d/b")).unwrap();
    std::fs::remove_dir(fuse.at("d")).unwrap();
    assert!(names(fuse.at("")).is_empty());
}
