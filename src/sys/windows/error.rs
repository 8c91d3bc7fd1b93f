//! Errors of Winsock and Win32 as errnos, and back.
//!
//! The crate's errors carry errnos, here the numbers of the C library (`libc::ECONNRESET` …), so
//! that a program compares with the same names on every system. An `io::Error` has Windows' number,
//! from which std tells its kind and text.

use std::io;

/// Windows' numbers and what they are called elsewhere. The first row of an errno is what it
/// becomes.
const TABLE: &[(i32, i32)] = &[
    // Win32 (winerror.h)
    (2, libc::ENOENT),         // ERROR_FILE_NOT_FOUND
    (3, libc::ENOENT),         // ERROR_PATH_NOT_FOUND
    (4, libc::EMFILE),         // ERROR_TOO_MANY_OPEN_FILES
    (5, libc::EACCES),         // ERROR_ACCESS_DENIED
    (6, libc::EBADF),          // ERROR_INVALID_HANDLE
    (8, libc::ENOMEM),         // ERROR_NOT_ENOUGH_MEMORY
    (14, libc::ENOMEM),        // ERROR_OUTOFMEMORY
    (15, libc::ENOENT),        // ERROR_INVALID_DRIVE
    (17, libc::EXDEV),         // ERROR_NOT_SAME_DEVICE
    (19, libc::EROFS),         // ERROR_WRITE_PROTECT
    (87, libc::EINVAL),        // ERROR_INVALID_PARAMETER
    (32, libc::EBUSY),         // ERROR_SHARING_VIOLATION
    (33, libc::EBUSY),         // ERROR_LOCK_VIOLATION
    (112, libc::ENOSPC),       // ERROR_DISK_FULL
    (39, libc::ENOSPC),        // ERROR_HANDLE_DISK_FULL
    (50, libc::EOPNOTSUPP),    // ERROR_NOT_SUPPORTED
    (53, libc::ENOENT),        // ERROR_BAD_NETPATH
    (80, libc::EEXIST),        // ERROR_FILE_EXISTS
    (183, libc::EEXIST),       // ERROR_ALREADY_EXISTS
    (109, libc::EPIPE),        // ERROR_BROKEN_PIPE
    (232, libc::EPIPE),        // ERROR_NO_DATA
    (120, libc::ENOSYS),       // ERROR_CALL_NOT_IMPLEMENTED
    (123, libc::EINVAL),       // ERROR_INVALID_NAME
    (131, libc::EINVAL),       // ERROR_NEGATIVE_SEEK
    (145, libc::ENOTEMPTY),    // ERROR_DIR_NOT_EMPTY
    (161, libc::ENOENT),       // ERROR_BAD_PATHNAME
    (170, libc::EBUSY),        // ERROR_BUSY
    (206, libc::ENAMETOOLONG), // ERROR_FILENAME_EXCED_RANGE
    (223, libc::EFBIG),        // ERROR_FILE_TOO_LARGE
    (267, libc::ENOTDIR),      // ERROR_DIRECTORY
    (336, libc::EISDIR),       // ERROR_DIRECTORY_NOT_SUPPORTED
    (995, libc::ECANCELED),    // ERROR_OPERATION_ABORTED
    (1314, libc::EPERM),       // ERROR_PRIVILEGE_NOT_HELD
    (1450, libc::ENOMEM),      // ERROR_NO_SYSTEM_RESOURCES
    (1921, libc::ELOOP),       // ERROR_CANT_RESOLVE_FILENAME
    (4390, libc::EINVAL),      // ERROR_NOT_A_REPARSE_POINT
    // Winsock (winsock2.h)
    (10004, libc::EINTR),           // WSAEINTR
    (10009, libc::EBADF),           // WSAEBADF
    (10013, libc::EACCES),          // WSAEACCES
    (10014, libc::EFAULT),          // WSAEFAULT
    (10022, libc::EINVAL),          // WSAEINVAL
    (10024, libc::EMFILE),          // WSAEMFILE
    (10035, libc::EAGAIN),          // WSAEWOULDBLOCK
    (10036, libc::EINPROGRESS),     // WSAEINPROGRESS
    (10037, libc::EALREADY),        // WSAEALREADY
    (10038, libc::ENOTSOCK),        // WSAENOTSOCK
    (10039, libc::EDESTADDRREQ),    // WSAEDESTADDRREQ
    (10040, libc::EMSGSIZE),        // WSAEMSGSIZE
    (10041, libc::EPROTOTYPE),      // WSAEPROTOTYPE
    (10042, libc::ENOPROTOOPT),     // WSAENOPROTOOPT
    (10043, libc::EPROTONOSUPPORT), // WSAEPROTONOSUPPORT
    (10044, libc::EPROTONOSUPPORT), // WSAESOCKTNOSUPPORT
    (10045, libc::EOPNOTSUPP),      // WSAEOPNOTSUPP
    (10047, libc::EAFNOSUPPORT),    // WSAEAFNOSUPPORT
    (10046, libc::EAFNOSUPPORT),    // WSAEPFNOSUPPORT
    (10048, libc::EADDRINUSE),      // WSAEADDRINUSE
    (10049, libc::EADDRNOTAVAIL),   // WSAEADDRNOTAVAIL
    (10050, libc::ENETDOWN),        // WSAENETDOWN
    (10051, libc::ENETUNREACH),     // WSAENETUNREACH
    (10052, libc::ENETRESET),       // WSAENETRESET
    (10053, libc::ECONNABORTED),    // WSAECONNABORTED
    (10054, libc::ECONNRESET),      // WSAECONNRESET
    (10055, libc::ENOBUFS),         // WSAENOBUFS
    (10056, libc::EISCONN),         // WSAEISCONN
    (10057, libc::ENOTCONN),        // WSAENOTCONN
    (10058, libc::EPIPE),           // WSAESHUTDOWN
    (10060, libc::ETIMEDOUT),       // WSAETIMEDOUT
    (258, libc::ETIMEDOUT),         // WAIT_TIMEOUT
    (10061, libc::ECONNREFUSED),    // WSAECONNREFUSED
    (10062, libc::ELOOP),           // WSAELOOP
    (10063, libc::ENAMETOOLONG),    // WSAENAMETOOLONG
    (10065, libc::EHOSTUNREACH),    // WSAEHOSTUNREACH
    (10064, libc::EHOSTUNREACH),    // WSAEHOSTDOWN
    (10066, libc::ENOTEMPTY),       // WSAENOTEMPTY
    // Look-ups, whose errnos `resolve.rs` of the other systems lists
    (11001, libc::ENOENT), // WSAHOST_NOT_FOUND
    (11002, libc::EAGAIN), // WSATRY_AGAIN
    (11003, libc::EIO),    // WSANO_RECOVERY
    (11004, libc::ENOENT), // WSANO_DATA
];

/// Says that a number is an errno: the bit that Windows leaves to programs.
const OURS: i32 = 1 << 29;

/// The errno of one of Windows' numbers; `EIO` for one that has none.
pub(crate) fn of_code(code: i32) -> i32 {
    if code & OURS != 0 {
        return code & !OURS;
    }
    TABLE.iter().find(|(known, _)| *known == code).map_or(libc::EIO, |(_, errno)| *errno)
}

/// The number of the last failed call of this thread, Windows' own.
pub(crate) fn code() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The errno of the last failed call of this thread.
pub(crate) fn errno() -> i32 {
    of_code(code())
}

/// The errno in an error, if the system has reported it.
pub(crate) fn os_errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().map(of_code)
}

/// The error that an errno stands for, with a number of Windows', so that std knows its kind.
pub(crate) fn os_error(errno: i32) -> io::Error {
    let row = TABLE.iter().find(|(_, known)| *known == errno);
    io::Error::from_raw_os_error(row.map_or(errno | OURS, |(code, _)| *code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_survive_the_round_trip_and_have_stds_kind() {
        for errno in (1..150).filter(|errno| *errno != libc::EIO) {
            assert_eq!(os_errno(&os_error(errno)), Some(errno));
        }
        assert_eq!(of_code(10035), libc::EAGAIN);
        assert_eq!(of_code(10054), libc::ECONNRESET);
        assert_eq!(of_code(31), libc::EIO);
        for (errno, kind) in [
            (libc::EAGAIN, io::ErrorKind::WouldBlock),
            (libc::ECONNREFUSED, io::ErrorKind::ConnectionRefused),
            (libc::ECONNRESET, io::ErrorKind::ConnectionReset),
            (libc::EADDRINUSE, io::ErrorKind::AddrInUse),
            (libc::ENOENT, io::ErrorKind::NotFound),
            (libc::EEXIST, io::ErrorKind::AlreadyExists),
            (libc::EACCES, io::ErrorKind::PermissionDenied),
            (libc::EINVAL, io::ErrorKind::InvalidInput),
            (libc::EPIPE, io::ErrorKind::BrokenPipe),
        ] {
            assert_eq!(os_error(errno).kind(), kind, "{errno}");
        }
    }

    #[test]
    fn no_number_stands_twice() {
        for (i, (code, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[i + 1..].iter().all(|(other, _)| other != code), "{code}");
        }
    }
}
