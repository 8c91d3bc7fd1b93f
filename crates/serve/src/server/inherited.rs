//! Listeners that the process has inherited.

use std::io;

use windlass::fd::{self, RawFd};

use super::address::{Listen, Place, wrong};

/// The first descriptor that a service manager passes: `SD_LISTEN_FDS_START` of sd_listen_fds(3).
const FIRST: RawFd = 3;

/// Takes the descriptor that `text` names, or all of a service manager if `number` is empty.
pub(super) fn listens(text: &str, number: &str) -> io::Result<Vec<Listen>> {
    if !number.is_empty() {
        let number = number.parse();
        return Ok(vec![take(number.map_err(|_| wrong(text, "it is no number"))?)?]);
    }
    let get = |name| std::env::var(name).ok();
    let count = passed(std::process::id(), get("LISTEN_PID"), get("LISTEN_FDS"))
        .map_err(|why| io::Error::new(io::ErrorKind::NotFound, format!("{text}: {why}")))?;
    (FIRST..FIRST.saturating_add(count)).map(take).collect()
}

/// How many descriptors the variables pass to the process `id`.
fn passed(id: u32, pid: Option<String>, count: Option<String>) -> Result<RawFd, &'static str> {
    let (Some(pid), Some(count)) = (pid, count) else {
        return Err("LISTEN_PID and LISTEN_FDS are not set");
    };
    if pid.parse() != Ok(id) {
        return Err("LISTEN_PID is another process");
    }
    match count.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("LISTEN_FDS passes no descriptor"),
    }
}

fn take(number: RawFd) -> io::Result<Listen> {
    let name = format!("fd://{number}");
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
    let socket = fd::inherited(number).map_err(about)?;
    Ok(Listen::at(Place::Inherited(socket.into(), name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_passed_to_one_process() {
        let passed = |pid: &str, count: &str| passed(7, Some(pid.into()), Some(count.into()));
        assert_eq!(passed("7", "2"), Ok(2));
        for (pid, count) in [("8", "2"), ("", "2"), ("7", "0"), ("7", "-1"), ("7", "two")] {
            assert!(passed(pid, count).is_err(), "{pid} {count}");
        }
        assert!(super::passed(7, None, Some("1".into())).is_err());
        assert!(super::passed(7, Some("7".into()), None).is_err());
    }

    #[test]
    fn what_is_no_inherited_descriptor_is_refused() {
        for number in ["three", "3?sessions=true", "3x", "99999999999"] {
            let error = listens("fd://…", number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{number}: {error}");
        }
    }
}
