//! Look-ups, and jobs of the program's.

use super::*;
use std::net::SocketAddr;

fn resolve(host: &str) -> Result<Vec<SocketAddr>, i32> {
    match run(Job::LookupHost { host: host.into(), port: 7007 }) {
        Ok(Value::Addresses(addresses)) => Ok(addresses),
        Ok(other) => panic!("{other:?}"),
        Err(errno) => Err(errno),
    }
}

#[test]
fn localhost_is_here() {
    let found = resolve("localhost").unwrap();
    assert!(!found.is_empty());
    assert!(found.iter().all(|a| a.ip().is_loopback() && a.port() == 7007), "{found:?}");
    assert_eq!(resolve("127.0.0.1"), Ok(vec!["127.0.0.1:7007".parse().unwrap()]));
    assert_eq!(resolve("::1"), Ok(vec!["[::1]:7007".parse().unwrap()]));
}

#[test]
fn names_that_are_none_are_not_found() {
    for host in ["", "256.1.1.1.", "two words", "nobody.invalid"] {
        // Without a name server the errno is not ENOENT.
        let errno = resolve(host).unwrap_err();
        assert!([libc::ENOENT, libc::EAGAIN, libc::EIO].contains(&errno), "{host}: {errno}");
    }
    assert_eq!(resolve("a\0b"), Err(libc::EINVAL));
}

#[test]
fn an_address_has_a_name() {
    for text in ["127.0.0.1:9", "[::1]:59999"] {
        let address: SocketAddr = text.parse().unwrap();
        let Ok(Value::HostName(name)) = run(Job::LookupAddr { address }) else {
            panic!("no name");
        };
        assert!(!name.host.is_empty());
        assert!(name.service == "discard" || name.service == address.port().to_string());
    }
}

#[test]
fn a_job_returns_its_value() {
    let Ok(Value::Job(value)) = run(Job::Run(Closure::new(|| 6 * 7))) else {
        panic!("no value");
    };
    assert_eq!(value.downcast::<i32>().unwrap(), 42);
}
