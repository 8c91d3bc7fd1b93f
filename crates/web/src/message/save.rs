//! Names of files that clients choose.

use crate::words::error::Error;
use crate::words::status::Status;

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
/// A name may be that of a file that is there, of a symbolic link or of a directory. Case is the
/// file system's matter: `A` and `a` are one file on some.
///
/// # Errors
///
/// 400: the name is empty or longer than 255 bytes, begins with a dot, or has a slash, a backslash
/// or a control character. Or it is no file on Windows, and this is so on every system: it has one
/// of `<>:"|?*`, ends with a dot or a blank, or is that of a device, as `NUL` and `com1.txt` are.
pub fn file_name(name: &str) -> Result<&str, Error> {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\');
    let is_refused = name.is_empty()
        || name.len() > 255
        || name.starts_with('.')
        || name.contains(is_bad)
        || is_of_windows(name);
    if is_refused {
        return Err(Error::new(Status::BAD_REQUEST).text("the name of the file is not allowed"));
    }
    Ok(name)
}

/// Whether a name is something else than that of a file on Windows.
fn is_of_windows(name: &str) -> bool {
    const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_ascii_lowercase();
    let is_port = |kind: &str| {
        let number = stem.strip_prefix(kind).map(|rest| rest.chars().collect::<Vec<_>>());
        matches!(number.as_deref(), Some(['0'..='9' | '¹' | '²' | '³']))
    };
    name.contains(['<', '>', ':', '"', '|', '?', '*'])
        || name.ends_with(['.', ' '])
        || DEVICES.contains(&&*stem)
        || is_port("com")
        || is_port("lpt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_no_files_of_windows() {
        for name in ["con", "NUL", "nul.txt", "Com1", "lpt¹.x", "aux .c", "a:b", "C:x", "a.", "a "]
        {
            assert!(is_of_windows(name), "{name}");
        }
        for name in ["console", "com", "com12", "lptx", "a b", "nul-a"] {
            assert!(!is_of_windows(name), "{name}");
        }
    }
}
