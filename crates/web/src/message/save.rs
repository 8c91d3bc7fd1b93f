//! Files that bodies are saved to, and names of files that clients choose.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::files::path::{is_short_name, is_special_on_windows};
use crate::words::error::Error;
use crate::words::status::Status;

/// How a body is saved to a file: [`Request::save`](crate::Request::save) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Save {
    /// The most bytes of the body. A longer one is a 413, and no file. Default `None`: as many as
    /// [`App::body_limit`](crate::App::body_limit) allows, or
    /// [`Limits::body`](crate::Limits::body), which is 1 MiB. For a part of a form the limits of
    /// the form count, too.
    pub limit: Option<u64>,
    /// Whether the file and its name are on the disk before the request is answered. Default false:
    /// then a loss of power may leave the old file, the new one, or a part of it.
    pub sync: bool,
    /// Whether it may take the place of another file. Default true. If false, a file that is there
    /// makes a 409.
    /// The file then gets its name by a hard link, which FAT and some network file systems lack.
    pub replace: bool,
    /// The permissions of the file, less the umask. Default 0o666, as for `File::create`. Windows
    /// has permissions of its own.
    pub mode: u32,
    /// How long the disk may take for each of these: to open the file, to write a block, and to do
    /// all that is left at the end of the body. After that: 504, and no file. Default 60 s.
    pub time: Duration,
}

impl Save {
    /// The defaults: each field says its own.
    pub const fn new() -> Save {
        let time = Duration::from_secs(60);
        Save { limit: None, sync: false, replace: true, mode: 0o666, time }
    }

    /// Sets [`limit`](Save::limit), in bytes.
    pub fn limit(mut self, bytes: u64) -> Save {
        self.limit = Some(bytes);
        self
    }

    /// Sets [`sync`](Save::sync).
    pub fn sync(mut self, on: bool) -> Save {
        self.sync = on;
        self
    }

    /// Sets [`replace`](Save::replace).
    pub fn replace(mut self, on: bool) -> Save {
        self.replace = on;
        self
    }

    /// Sets [`mode`](Save::mode): 0o600, for example.
    pub fn mode(mut self, mode: u32) -> Save {
        self.mode = mode;
        self
    }

    /// Sets [`time`](Save::time).
    pub fn time(mut self, span: Duration) -> Save {
        self.time = span;
        self
    }
}

impl Default for Save {
    fn default() -> Save {
        Save::new()
    }
}

/// A file that is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Its path, as the program has given it.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
}

/// Whether the process or the system has no descriptor or no memory left: it may have some soon.
pub(crate) fn is_shortage(error: &windlass::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// The error of an operation on a file, for a client.
pub(crate) fn failed(error: &windlass::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, QuotaExceeded, StorageFull};
    if is_shortage(error) {
        let busy = Error::new(Status::SERVICE_UNAVAILABLE).header("Retry-After", "1");
        return busy.because(error.kind().to_string());
    }
    let kind = error.raw_os_error().map(|errno| io::Error::from_raw_os_error(errno).kind());
    let status = match kind {
        Some(StorageFull | QuotaExceeded) => Status::INSUFFICIENT_STORAGE,
        Some(AlreadyExists | IsADirectory) => Status::CONFLICT,
        Some(InvalidFilename) => Status::BAD_REQUEST,
        _ => Status::INTERNAL_SERVER_ERROR,
    };
    Error::new(status).because(error.kind().to_string())
}

/// Checks a name that a client has chosen, so that it names a file in the directory that a program
/// puts in front of it, and nothing else. Returns the name itself.
///
/// **A name of a client is no path.** [`Request::param`](crate::Request::param) has no
/// percent-encoding any more, so that `..%2F..%2Fetc%2Fpasswd` is `../../etc/passwd`. The
/// name of a file in a form can be that, too.
///
/// ```
/// use windlass_web::Error;
/// use windlass_web::upload::file_name;
///
/// let path = format!("uploads/{}", file_name("report.pdf")?);
/// assert_eq!(path, "uploads/report.pdf");
/// for name in ["../../etc/passwd", "a/b", "a\\b", "..", "", ".htaccess", "a\0b", "a\nb"] {
///     assert_eq!(file_name(name).unwrap_err().status().code(), 400);
/// }
/// # Ok::<(), Error>(())
/// ```
///
/// A name may be that of a file that is there, of a symbolic link or of a directory: a
/// [save](crate::Request::save) takes the place of a link, and does not follow it. Case is the file
/// system's matter: `A` and `a` are one file on some.
///
/// # Errors
///
/// 400: the name is empty or longer than 255 bytes, begins with a dot, or has a slash, a backslash
/// or a control character. Or it is no file on Windows, and this is so on every system: it has one
/// of `<>:"|?*`, ends with a dot or a blank, or is that of a device, as `NUL` and `com1.txt` are.
/// On Windows itself short names, such as `HTACCE~1`, are refused, too: they can mean other files.
pub fn file_name(name: &str) -> Result<&str, Error> {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\');
    let is_refused = name.is_empty()
        || name.len() > 255
        || name.starts_with('.')
        || name.contains(is_bad)
        || is_special_on_windows(name)
        || std::path::is_separator('\\') && is_short_name(name);
    if is_refused {
        return Err(Error::new(Status::BAD_REQUEST).text("the name of the file is not allowed"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_disk_have_a_status() {
        for (errno, status) in [
            (libc::EMFILE, 503),
            (libc::ENFILE, 503),
            (libc::ENOMEM, 503),
            (libc::ENOSPC, 507),
            (libc::EEXIST, 409),
            (libc::EISDIR, 409),
            (libc::EIO, 500),
            (libc::ENOENT, 500),
        ] {
            let error = windlass::Error::new(windlass::ErrorKind::Os(errno), 0, Default::default());
            assert_eq!(failed(&error).status().code(), status, "{errno}");
        }
    }

    #[test]
    fn names_of_devices_are_no_files_of_windows() {
        for name in ["con", "NUL", "nul.txt", "Com1", "lpt¹.x", "aux .c", "a:b", "C:x", "a.", "a "]
        {
            assert!(file_name(name).is_err(), "{name}");
        }
        for name in ["console", "com", "com12", "lptx", "a b", "nul-a"] {
            assert!(file_name(name).is_ok(), "{name}");
        }
    }
}
