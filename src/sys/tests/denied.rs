//! Calls that a seccomp filter denies, and limits of the system.

use super::*;

/// Runs `body` in a thread for which a call fails; when told so, only if its first argument is more
/// than `over`.
fn denied<T: Send>(
    number: libc::c_long,
    errno: i32,
    over: Option<u32>,
    body: impl FnOnce() -> T + Send,
) -> T {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let more = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // The number of the call stands first in seccomp's data, the first argument at 16.
    let argument = 16 + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut filter = [
        step(load, 0, 0, 0),
        step(equal, number as u32, 0, 3),
        step(load, argument, 0, 0),
        if let Some(most) = over { step(more, most, 0, 1) } else { step(load, 0, 0, 0) },
        step(answer, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: no memory is passed.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            // It holds for this thread, which ends with the test.
            // SAFETY: the program lives across the call.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
            body()
        });
        thread.join().unwrap()
    })
}

#[test]
fn what_is_denied_is_told() {
    if open(32).is_none() {
        return;
    }
    let calls = [
        (libc::SYS_io_destroy, "io_destroy(2)"),
        (libc::SYS_io_setup, "io_setup(2)"),
        (libc::SYS_io_submit, "io_submit(2)"),
    ];
    for (number, step) in calls {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EOPNOTSUPP] {
            let found = denied(number, errno, None, || Aio::open(64).unwrap().err());
            assert_eq!(found, Some(AioRefused { step, errno, limits: None }));
            let text = found.unwrap().to_string();
            let reason = io::Error::from_raw_os_error(errno).to_string();
            assert!(text.contains(step) && text.contains(&reason), "{text}");
        }
        for errno in [libc::ENFILE, libc::ENOMEM] {
            let error = denied(number, errno, None, || Aio::open(64).err()).unwrap();
            assert_eq!(crate::Refusal::of(&error), Some(crate::Refusal::Os(errno)));
            assert!(error.to_string().starts_with(step), "{error}");
        }
    }
}

/// What of `fs.aio-max-nr` others have left decides the size; the least of all is needed.
#[test]
fn a_context_is_sized_down() {
    if open(32).is_none() {
        return;
    }
    for (asked, most, got) in
        [(256, 256, 256), (256, 255, 128), (256, 40, 32), (1000, 63, 62), (63, 40, 32), (1, 32, 32)]
    {
        let errno = libc::EAGAIN;
        let aio = denied(libc::SYS_io_setup, errno, Some(most), || Aio::open(asked)).unwrap();
        let aio = aio.expect("it is small enough");
        assert_eq!(aio.entries(), got);
        let text = aio.setup();
        assert_eq!(text.contains("fs.aio-max-nr is "), got < asked, "{text}");
        assert_eq!(text.contains(&format!("{got} of {asked} entries")), got < asked, "{text}");
    }
    let found = denied(libc::SYS_io_setup, libc::EAGAIN, Some(31), || Aio::open(256)).unwrap();
    let refused = found.err().expect("not even the least");
    assert_eq!((refused.step, refused.errno), ("io_setup(2)", libc::EAGAIN));
    let text = refused.to_string();
    assert!(refused.limits.is_none() || text.contains("fs.aio-max-nr is "), "{text}");
}

/// The same of the real limit.
#[test]
#[ignore = "takes all of fs.aio-max-nr for a moment, from every process of the system"]
fn the_limit_of_the_system() {
    let limits = Limits::read().expect("it is readable");
    let left = (limits.most - limits.used) as u32;
    let all = open(left - 100).unwrap();
    assert_eq!(all.entries(), left - 100);
    let some = open(256).unwrap();
    println!("{}", some.setup());
    assert_eq!(some.entries(), 64);
    let least = open(256).unwrap();
    assert_eq!(least.entries(), 32);
    let refused = Aio::open(256).unwrap().err().expect("4 are left");
    println!("{refused}");
    assert_eq!((refused.step, refused.errno), ("io_setup(2)", libc::EAGAIN));
    drop((all, some, least));
    assert_eq!(Limits::read(), Some(limits));
}

/// Without io_getevents(2) the ring is enough.
#[test]
fn the_ring_needs_no_call() {
    let Some(file) = direct(2) else { return };
    let results = denied(libc::SYS_io_getevents, libc::ENOSYS, None, || {
        let mut aio = open(32)?;
        let mut memory = Block::new(BLOCK);
        Some(aio.one(read(&file, &mut memory, 0, 0)))
    });
    assert!(results.is_none_or(|found| found == (BLOCK as i32, false)));
}

/// A context stays if a filter denies io_destroy(2).
#[test]
fn dropped_where_io_destroy_is_denied_since() {
    let Some(file) = direct(1) else { return };
    let Some(mut aio) = open(32) else { return };
    let mut memory = Block::new(BLOCK);
    assert_eq!(aio.one(read(&file, &mut memory, 0, 0)).0, BLOCK as i32);
    let context = aio.context;
    denied(libc::SYS_io_destroy, libc::EPERM, None, move || drop(aio));
    // Only its owner is forbidden to use it twice, and that is gone.
    assert_eq!(destroy(context), 0);
}
