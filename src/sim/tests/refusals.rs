//! A simulation refuses unsupported operations with a reason of their own.

use super::*;
use crate::error::Reason;

#[test]
fn files_jobs_and_look_ups_are_refused_with_no_files() {
    let sim = Sim::new(1);
    let mut watcher = watcher(&sim);
    let (a, _b) = sim.pair();
    let source = watcher.attach(a).unwrap();
    for op in [
        Op::read_at(source, vec![0; 8], 0),
        Op::write_at(source, "bytes", 0),
        Op::sync_all(source),
        Op::sync_data(source),
        Op::set_len(source, 0),
        Op::send_file(source, source, 0, 10),
        Op::rename("a", "b"),
        Op::lookup_host("localhost", 80),
        Op::run(|| 7),
    ] {
        let code = op.code();
        let refused = watcher.submit(op).unwrap_err();
        assert_eq!(refused.reason, Reason::NoFiles, "{code:?}");
        let error = io::Error::from(refused);
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("kernel"), "{error}");
        assert!(!error.to_string().contains("descriptor"), "{error}");
    }
    assert_eq!(watcher.fd(source).unwrap_err(), Reason::NoDescriptor);
}
