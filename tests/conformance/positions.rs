//! Files: bytes at an offset, and what brings them to the disk.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use windlass::fs::OpenOptions;
use windlass::{Buf, ErrorKind, Op, Refusal};

use crate::common::files::*;
use crate::common::*;

pub fn bytes_go_where_they_are_told<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let file = b.make_file(&path);
        let bytes = pattern(300_000, 1);
        let memory = bytes.as_ptr();
        let back = expect_written(b.run(Op::write_at(file, bytes.clone(), 1000)));
        drop(back);
        let (start, c) = (bytes.as_ptr(), b.run(Op::write_at(file, bytes, 0).token(9)));
        assert_eq!((c.token, c.source, c.bytes()), (9, file, 300_000));
        assert_eq!((start, expect_written(c).as_ptr()), (memory, memory));
        b.write_at(file, "text", 299_998);
        b.write_at(file, Arc::<[u8]>::from([7; 3]), 10);
        let mut wanted = pattern(300_000, 1);
        let tail = pattern(300_000, 1)[299_000..].to_vec();
        wanted.extend_from_slice(&tail);
        wanted[299_998..300_002].copy_from_slice(b"text");
        wanted[10..13].fill(7);
        expect_same(&fs::read(&path).unwrap(), &wanted);
        // Whole, in parts, in reverse.
        expect_same(&b.read_at(file, wanted.len(), 0), &wanted);
        for at in (0..wanted.len()).step_by(70_000).rev() {
            let end = wanted.len().min(at + 80_000);
            expect_same(&b.read_at(file, end - at, at as u64), &wanted[at..end]);
        }
        // The whole capacity is offered, and the memory is the same.
        let mut into = vec![9; 50];
        into.reserve_exact(50);
        let (start, capacity) = (into.as_ptr(), into.capacity());
        let data = expect_read(b.run(Op::read_at(file, into, 5)));
        assert_eq!((data.as_ptr(), data.len()), (start, capacity));
        expect_same(&data, &wanted[5..5 + capacity]);
        b.expect_all_ended();
    }
}

pub fn a_file_ends_where_it_ends<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        fs::write(&path, pattern(10_001, 1)).unwrap();
        let file = b.open_file(&path, OpenOptions::new().read(true));
        expect_same(&b.read_at(file, 20_000, 0), &pattern(10_001, 1));
        expect_same(&b.read_at(file, 20_000, 10_000), &pattern(10_001, 1)[10_000..]);
        for offset in [10_001, 10_002, 1 << 20, 1 << 40] {
            expect_eof(b.run(Op::read_at(file, room(100), offset)));
        }
        // Beyond what an operation says.
        for offset in [(1 << 61) - 1, 1 << 61, u64::MAX] {
            for op in [Op::read_at(file, room(100), offset), Op::write_at(file, "x", offset)] {
                assert_eq!(b.refuse(op).0, Refusal::Os(libc::EINVAL));
            }
        }
        // Longer than any file.
        let c = b.run(Op::read_at(file, room(100), (1 << 61) - 2));
        match c.error_kind() {
            None => assert!(expect_read(c).is_eof()),
            Some(_) => {
                let errnos = [libc::EINVAL, libc::EOVERFLOW, libc::EFBIG];
                assert!(expect_errno(c, &errnos).capacity() >= 100);
            }
        }
        let empty = b.make_file(directory.at("empty"));
        expect_eof(b.run(Op::read_at(empty, room(1), 0)));
        let list = Buf::list([room(5), room(5)]);
        expect_eof(b.run(Op::read_at(empty, list, 0)));
        // Others make it longer and shorter.
        fs::write(directory.at("empty"), "grown").unwrap();
        assert_eq!(b.read_at(empty, 100, 0), b"grown");
        fs::write(directory.at("empty"), "").unwrap();
        assert_eq!(b.read_at(empty, 100, 0), b"");
        b.expect_all_ended();
    }
}

pub fn holes_are_zeroes<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let file = b.make_file(&path);
        b.write_at(file, "x", (1 << 30) + 1);
        assert_eq!(fs::metadata(&path).unwrap().len(), (1 << 30) + 2);
        expect_same(&b.read_at(file, 100_000, 1 << 29), &[0; 100_000]);
        assert_eq!(b.read_at(file, 10, 1 << 30), b"\0x");
        expect_finished(b.run(Op::set_len(file, 5)));
        expect_finished(b.run(Op::set_len(file, 10_000)));
        expect_same(&b.read_at(file, 20_000, 0), &[0; 10_000]);
    }
}

pub fn lists_are_filled_and_written_in_order<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    // More parts than one call takes, and some without bytes.
    for (parts, size) in [(3, 40_000), (2_500, 7), (1_030, 0)] {
        let path = directory.at(format!("{parts}"));
        let file = b.make_file(&path);
        let lens: Vec<usize> = (0..parts).map(|i| size + i % 3).collect();
        let all = pattern(lens.iter().sum(), 5);
        let mut rest = &all[..];
        let list = lens.iter().map(|&len| {
            let (part, behind) = rest.split_at(len);
            rest = behind;
            part.to_vec()
        });
        let list = Buf::list(list);
        let back = expect_written(b.run(Op::write_at(file, list, 100)));
        assert_eq!(back.parts().len(), parts);
        expect_same(&fs::read(&path).unwrap()[100..], &all);
        let rooms = Buf::list(lens.iter().map(|&len| room(len.max(1))));
        let data = expect_read(b.run(Op::read_at(file, rooms, 100)));
        assert_eq!(data.len(), all.len());
        let got: Vec<u8> = data.into_parts().flat_map(Buf::into_vec).collect();
        expect_same(&got, &all);
        // Over the end, which no part, some part, or the first one meets.
        for missing in [0, 1, all.len() / 2, all.len()] {
            let rooms = Buf::list(lens.iter().map(|&len| room(len.max(1))));
            let c = b.run(Op::read_at(file, rooms, 100 + missing as u64));
            expect_same(&expect_read(c).into_vec(), &all[missing..]);
        }
    }
    b.expect_all_ended();
}

pub fn what_is_appended_comes_at_the_end<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let path = directory.at("a");
    let options = OpenOptions::new().read(true).append(true).create(true);
    let file = b.open_file(&path, options);
    b.write_at(file, "one", 0);
    if cfg!(any(target_os = "linux", target_os = "android")) {
        b.write_at(file, "two", 0);
        b.write_at(file, Buf::list(["th", "ree"]), 1 << 20);
        assert_eq!(fs::read(&path).unwrap(), b"onetwothree");
        // Each of them whole, in any order.
        let more: Vec<_> =
            (0..100u8).map(|i| b.submit(Op::write_at(file, vec![i; 1000], 0))).collect();
        for ticket in more {
            expect_written(b.end(ticket));
        }
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len(), 11 + 100_000);
        let mut seen: Vec<u8> = all[11..].chunks(1000).map(|chunk| chunk[0]).collect();
        assert!(all[11..].chunks(1000).all(|chunk| chunk.iter().all(|&byte| byte == chunk[0])));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..100));
    }
}

#[cfg(unix)]
pub fn the_position_of_a_file_is_left_alone<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let mut options = fs::File::options();
    let mut file = options.read(true).write(true).create_new(true).open(directory.at("a")).unwrap();
    file.write_all(b"0123456789").unwrap();
    file.seek(SeekFrom::Start(3)).unwrap();
    let source = b.watcher.attach_dup(&file).unwrap();
    assert_eq!(b.read_at(source, 4, 6), b"6789");
    b.write_at(source, "xy", 8);
    expect_finished(b.run(Op::sync_all(source)));
    assert_eq!(file.stream_position().unwrap(), 3);
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "34567xy");
    assert!(b.watcher.abort(source));
    // The duplicate is closed, the file is not.
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"more").unwrap();
}

pub fn a_sync_of_every_kind<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let file = b.make_file(&path);
        b.write_at(file, pattern(100_000, 1), 0);
        for op in [
            Op::sync_all(file),
            Op::sync_data(file),
            Op::sync_range(file, 10_000, 5_000),
            Op::sync_range(file, 0, 0),
        ] {
            let c = b.run(op.token(4));
            assert_eq!((c.token, c.source, c.bytes()), (4, file, 0));
            expect_finished(c);
        }
        // Many at once, beside writes.
        let mut open = Vec::new();
        for i in 0..30 {
            open.push((true, b.submit(Op::write_at(file, vec![i; 5000], u64::from(i) * 5000))));
            open.push((false, b.submit(Op::sync_data(file))));
            open.push((false, b.submit(Op::sync_all(file))));
        }
        for (writes, ticket) in open {
            let c = b.end(ticket);
            if writes {
                expect_written(c);
            } else {
                expect_finished(c);
            }
        }
        // A directory, too; Windows syncs what is open for writing.
        #[cfg(unix)]
        {
            let above = b.open_file(directory.path(), OpenOptions::new().read(true));
            expect_finished(b.run(Op::sync_all(above)));
        }
        b.expect_all_ended();
    }
}

pub fn space_is_made_and_taken<H: Harness>() {
    for directory in directories() {
        let mut b = H::bench();
        let path = directory.at("a");
        let file = b.make_file(&path);
        b.write_at(file, "kept", 0);
        let c = b.run(Op::allocate(file, 0, 1 << 20));
        match c.error_kind() {
            None => {
                expect_finished(c);
                let known = fs::metadata(&path).unwrap();
                assert_eq!(known.len(), 1 << 20);
                #[cfg(unix)]
                assert!(std::os::unix::fs::MetadataExt::blocks(&known) * 512 >= 1 << 20);
            }
            Some(_) => drop(expect_errno(c, &[libc::EOPNOTSUPP])),
        }
        let c = b.run(Op::allocate(file, 0, 0));
        expect_errno(c, &[libc::EINVAL, libc::EOPNOTSUPP]);
        let c = b.run(Op::set_len(file, u64::MAX));
        expect_errno(c, &[libc::EINVAL, libc::EFBIG]);
        expect_finished(b.run(Op::set_len(file, 2)));
        assert_eq!(fs::read(&path).unwrap(), b"ke");
    }
}

pub fn many_files_at_once<H: Harness>() {
    const FILES: usize = 40;
    const EACH: usize = 40;
    let directory = Directory::new();
    let mut b = H::bench();
    let files: Vec<_> = (0..FILES).map(|i| b.make_file(directory.at(format!("{i}")))).collect();
    let mut open = Vec::new();
    for part in 0..EACH {
        for (i, &file) in files.iter().enumerate() {
            let bytes = pattern(3000, (i * EACH + part) as u64);
            open.push(b.submit(Op::write_at(file, bytes, part as u64 * 3000)));
        }
    }
    for ticket in open.drain(..) {
        expect_written(b.end(ticket));
    }
    for part in 0..EACH {
        for (i, &file) in files.iter().enumerate() {
            let op = Op::read_at(file, room(3000), part as u64 * 3000);
            open.push(b.submit(op.token((i * EACH + part) as u64)));
        }
    }
    for ticket in open {
        let c = b.end(ticket);
        let wanted = pattern(3000, c.token);
        expect_same(&expect_read(c), &wanted);
    }
    b.expect_all_ended();
    let counters = b.watcher.counters();
    assert_eq!(counters.submitted, counters.completed);
}

/// One wait serves everything.
pub fn sockets_files_and_timers_in_one_wait<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let (here, there) = b.pair();
    let file = b.make_file(directory.at("a"));
    for round in 0..50u64 {
        let bytes = pattern(9000, round);
        let mut open = vec![
            b.submit(Op::read_exact(there, room(9000), 9000)),
            b.submit(Op::write_at(file, bytes.clone(), round * 9000)),
            b.submit(Op::timer(std::time::Duration::from_micros(100))),
            b.submit(Op::run(move || round)),
            b.submit(Op::metadata(directory.path())),
            b.submit(Op::sync_data(file)),
        ];
        open.push(b.submit(Op::write(here, bytes.clone())));
        let ends: Vec<_> = open.into_iter().map(|ticket| b.end(ticket)).collect();
        let mut ends = ends.into_iter();
        expect_same(&expect_read(ends.next().unwrap()), &bytes);
        expect_written(ends.next().unwrap());
        expect_timer(ends.next().unwrap());
        assert_eq!(expect_returned::<u64>(ends.next().unwrap()), round);
        assert!(ends.next().unwrap().error_kind().is_none());
        expect_finished(ends.next().unwrap());
        expect_written(ends.next().unwrap());
        expect_same(&b.read_at(file, 9000, round * 9000), &bytes);
    }
    b.expect_all_ended();
}

/// What is done at submission is delivered by the next wait, and its deadline has no say.
pub fn bytes_that_are_there_win_over_a_passed_deadline<H: Harness>() {
    let directory = Directory::new();
    let mut b = H::bench();
    let file = b.make_file(directory.at("a"));
    b.write_at(file, pattern(5000, 1), 0);
    let passed = b.watcher.now();
    for _ in 0..50 {
        let c = b.run(Op::read_at(file, room(5000), 0).deadline(passed));
        let late = c.is_late();
        match c.error_kind() {
            None => expect_same(&expect_read(c), &pattern(5000, 1)),
            Some(_) => {
                assert!(!late, "an operation that was not begun");
                assert!(expect_unmoved(c, ErrorKind::Deadline).capacity() >= 5000);
            }
        }
    }
    b.expect_all_ended();
}
