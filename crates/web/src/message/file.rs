//! Responses that are files.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use crate::files::body::FileBody;
use crate::files::dir::ServedDir;
use crate::message::response::{Body, Response};
use crate::words::status::Status;

impl Response {
    /// A file, which the server opens off the loop. A large one is sent without copying it through
    /// memory of the program. [`App::files`](crate::App::files) serves a directory.
    ///
    /// The type follows from the end of the name, unless the handler sets one. The response to a
    /// `GET` or a `HEAD` has `ETag`, `Last-Modified` and `Accept-Ranges`, and the server answers
    /// ranges and conditions: see [`files`](mod@crate::files). A response with a
    /// [status](Response::status) of its own is sent whole, whatever the request asks for.
    ///
    /// The open file is kept for a second, and serves further requests for this path meanwhile.
    ///
    /// The path is the program's own: it may be absolute, and symbolic links are followed. For a
    /// path from a request, take [`App::files`](crate::App::files).
    ///
    /// If there is no such file, the response becomes an [`Error`](crate::Error):
    ///
    /// - 404: there is none, or it is no regular file.
    /// - 403: the process may not read it (`EACCES`, `EPERM`).
    /// - 503 with `Retry-After`: the server has no descriptor or no memory left (`EMFILE`,
    ///   `ENFILE`, `ENOMEM`), or opens 1024 files already.
    /// - 500: the disk has failed, for example (`EIO`).
    ///
    /// ```
    /// use windlass_web::{App, Response};
    ///
    /// let app = App::new().get("/report", |_, _| {
    ///     Response::file("out/report.pdf").attachment("Report for May.pdf")
    /// });
    /// # let _ = app;
    /// ```
    pub fn file(path: impl Into<PathBuf>) -> Response {
        Response::of(Status::OK, None, Body::File(FileBody::At(path.into())))
    }

    /// What the path of a directory gets that has no slash behind it: the path with one, so that
    /// relative links in its file are right.
    pub(crate) fn to_directory(path: &str, query: Option<&str>) -> Response {
        // Not the whole path: one with two slashes in front would name another host.
        let name = path.rsplit('/').next().unwrap_or_default();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Response::redirect(format!("./{name}/{query}")).status(Status::PERMANENT_REDIRECT)
    }

    /// Lets the client save the body under this name: `Content-Disposition: attachment`. A name
    /// with other characters than ASCII is there twice, as RFC 6266 has it.
    ///
    /// ```
    /// use windlass_web::Response;
    ///
    /// let response = Response::text("1;2").attachment("a \"b\" €.csv");
    /// let wanted = concat!(
    ///     r#"attachment; filename="a _b_ _.csv"; "#,
    ///     "filename*=UTF-8''a%20%22b%22%20%E2%82%AC.csv",
    /// );
    /// assert_eq!(response.head().get("Content-Disposition"), Some(wanted));
    /// ```
    pub fn attachment(mut self, name: &str) -> Response {
        // Clients do not agree on escapes, and on `%` here (RFC 6266, appendix D).
        let plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !"\"\\%".contains(c);
        let fallback: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        let mut value = format!("attachment; filename=\"{fallback}\"");
        if fallback != name {
            value.push_str("; filename*=UTF-8''");
            for byte in name.bytes() {
                // The `attr-char` of RFC 8187, 3.2.1.
                if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
                    value.push(byte.into());
                } else {
                    let _ = write!(value, "%{byte:02X}"); // a String takes all
                }
            }
        }
        self.head_mut().set("Content-Disposition", value);
        self
    }

    /// The file below a directory that the path of a request names, from byte `at` on.
    pub(crate) fn below(dir: &Arc<ServedDir>, at: usize) -> Response {
        let body = FileBody::Below(Arc::clone(dir), u32::try_from(at).unwrap_or(u32::MAX));
        Response::of(Status::OK, None, Body::File(body))
    }
}
