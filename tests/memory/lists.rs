//! Lists of buffers: short ones cost no allocation.

use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\n\r\n";

/// An answer of three parts (a head, the request's lease, a tail) is read into two vectors.
fn lists<W: World>(pair: impl Fn(&W) -> (Handle, Handle)) {
    let world = W::open(&CALM);
    let mut watcher = world.watcher(Watcher::builder());
    let [client, server] =
        <[Handle; 2]>::from(pair(&world)).map(|end| watcher.attach(end).expect("room"));
    let mut done = Completions::new();
    let mut spare = Some([Vec::with_capacity(HEAD.len()), Vec::with_capacity(100)]);
    for size in [1, 80] {
        let body: &[u8] = vec![7; size].leak();
        expect_none(&format!("{} a list of three and {size} bytes", W::NAME), |_| {
            watcher.submit(Op::read(server)).expect("room");
            watcher.submit(Op::write(client, body)).expect("room");
            let mut left = 4;
            while left > 0 {
                let count = watcher.wait_timeout(&mut done, BOUND).expect("a wait");
                assert!(count > 0, "an answer in three parts: {left} completions are missing");
                for c in done.drain(..) {
                    left -= 1;
                    match c.result.expect("nothing fails") {
                        Done::Written { .. } if c.source == client => {}
                        Done::Read(data) if c.source == server => {
                            assert_eq!(&*data, body);
                            let parts = [Buf::from(HEAD), data, Buf::from("\r\n")];
                            watcher.submit(Op::write_vectored(server, parts)).expect("room");
                        }
                        Done::Written { buf, .. } => {
                            assert_eq!((buf.parts().len(), &*buf.parts()[1]), (3, body));
                            let room = Buf::list(spare.take().expect("they came back"));
                            let count = HEAD.len() + size + 2;
                            let read = Op::read_exact(client, room, count);
                            watcher.submit(read).expect("room");
                        }
                        Done::Read(data) => {
                            let mut parts = data.into_parts().map(Buf::into_vec);
                            let parts = [(); 2].map(|()| parts.next().expect("two parts"));
                            assert_eq!(parts[0], HEAD.as_bytes());
                            assert_eq!(parts[1][..size], *body);
                            spare = Some(parts);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        });
    }
}

#[test]
fn short_lists_allocate_nothing() {
    let _alone = alone();
    lists::<Real>(|world| world.pair());
    lists::<Real>(|world| world.tcp_pair());
    lists::<Ring>(|world| world.pair());
    lists::<Ring>(|world| world.tcp_pair());
    lists::<Poll>(|world| world.pair());
    lists::<Virtual>(|world| world.pair());
}

/// Lists of two vectors, written to a file and read from it: in the page cache, and past it.
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
#[test]
fn short_lists_on_files_allocate_nothing() {
    use std::os::unix::fs::OpenOptionsExt;
    use windlass::AlignedBuf;
    use windlass::fs::FileBackend;

    let _alone = alone();
    let path = file_of_the_disk("lists");
    for (driver, files) in [
        (DriverKind::Epoll, FileBackend::Uring),
        (DriverKind::Epoll, FileBackend::Aio),
        (DriverKind::Epoll, FileBackend::Pool),
        (DriverKind::Uring, FileBackend::Uring),
    ] {
        let mut options = std::fs::File::options();
        let cached = options.read(true).write(true).open(&path).expect("a file");
        let direct = options.custom_flags(libc::O_DIRECT).open(&path);
        let watcher = Watcher::builder().driver(driver).file_backend(files).threads(1).build();
        let mut watcher = watcher.expect("it is there");
        let mut done = Completions::new();
        let file = watcher.attach(cached).expect("room");
        let direct = direct.inspect_err(|error| {
            skip(Needs::Direct, format_args!("direct I/O: {error}"));
        });
        let direct = direct.ok().map(|file| watcher.attach(file).expect("room"));
        let part = || AlignedBuf::with_capacity(4096, 4096);
        let mut buf = Some(Buf::list([part(), part()]));
        for (what, file) in [("cached", Some(file)), ("direct", direct)] {
            let Some(file) = file else { continue };
            expect_none(&format!("{driver:?} {files:?} {what} lists"), |i| {
                let offset = u64::from(i % 8) * 8192;
                one_by_one(&mut watcher, &mut done, &mut buf, |buf| match i % 2 {
                    0 => Op::read_at(file, buf, offset),
                    _ => Op::write_at(file, buf, offset),
                });
            });
        }
    }
    std::fs::remove_file(path).expect("it is there");
}
