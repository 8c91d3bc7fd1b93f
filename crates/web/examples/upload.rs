//! Uploads into a directory: a file by PUT, and the files of a form.
//!
//! ```text
//! cargo run --release -p windlass-web --features multipart --example upload -- DIR
//! curl -T report.pdf http://127.0.0.1:8080/files/report.pdf
//! curl -F 'note=two files' -F file=@report.pdf -F file=@plan.txt http://127.0.0.1:8080/form
//! ```
//!
//! A browser finds a form at `/`. What is uploaded is on the disk when it is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_web::body::Demand;
use windlass_web::upload::{Multipart, PartHead, PartPlan, ReceiveParts, Save, Saved, file_name};
use windlass_web::windlass::Buf;
use windlass_web::{App, Error, Request, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// The most bytes of a file.
const MOST: u64 = 4 << 30;

const FORM: &str = "<!doctype html><title>Upload</title>\
    <form action=form method=post enctype=multipart/form-data>\
    <input name=note> <input type=file name=file multiple> <button>Send</button></form>";

/// Saves the files of a form, and lists its parts.
struct Form {
    root: Arc<Path>,
    lines: Vec<String>,
    text: Vec<u8>,
}

impl ReceiveParts<()> for Form {
    fn part(&mut self, _: &mut (), part: PartHead) -> Result<PartPlan, Error> {
        match part.file_name() {
            Some("") => Ok(PartPlan::Skip), // a browser's user has chosen none
            Some(name) => Ok(PartPlan::Save(self.root.join(file_name(name)?), save())),
            None => {
                self.lines.push(part.name().to_owned());
                Ok(PartPlan::Read)
            }
        }
    }

    fn data(&mut self, _: &mut (), data: Buf) -> Result<Demand, Error> {
        self.text.extend_from_slice(&data);
        if self.text.len() > 10_000 {
            return Err(Error::new(Status::CONTENT_TOO_LARGE).text("the fields are too long"));
        }
        Ok(Demand::More)
    }

    fn saved(&mut self, _: &mut (), saved: Result<Saved, Error>) -> Result<Demand, Error> {
        self.lines.push(line(&saved?));
        Ok(Demand::More)
    }

    fn end(self: Box<Self>, _: &mut (), _: &mut Request<'_>) -> Result<Response, Error> {
        Ok(Response::text(self.lines.join("\n") + "\n").status(Status::CREATED))
    }
}

fn save() -> Save {
    Save::new().limit(MOST).sync(true)
}

fn line(saved: &Saved) -> String {
    let name = saved.path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}: {} bytes", saved.bytes)
}

pub(crate) fn app(root: PathBuf) -> App {
    let root: Arc<Path> = root.into();
    let of_form = Arc::clone(&root);
    App::new()
        .get("/", |_, _| Response::html(FORM))
        .put("/files/{name}", move |_, q| {
            // The name is the client's: it must not lead out of the directory.
            let path = root.join(file_name(q.param("name"))?);
            Ok::<_, Error>(q.save(path, save(), |_, saved| {
                Ok::<_, Error>(Response::text(line(&saved?) + "\n").status(Status::CREATED))
            }))
        })
        .at_head()
        .post("/form", move |_, q| {
            let limits = Multipart::new().limit(MOST).part_bytes(MOST).parts(20);
            let (lines, text) = (Vec::new(), Vec::new());
            q.multipart(limits, Form { root: Arc::clone(&of_form), lines, text })
        })
        .at_head()
}

fn main() -> std::io::Result<()> {
    const USAGE: &str = "upload DIR [--port N] [--loops N] [--tls [--cert FILE --key FILE]]";
    let mut options = common::Options::new(USAGE);
    let setup = common::Setup::take(&mut options, 8080);
    let root = options.word();
    options.end();
    setup.run(app(root.into()))
}
