//! Parts of forms that are saved to files.

use std::path::PathBuf;
use std::time::Duration;

use windlass_web::upload::{Multipart, PartHead, PartPlan, ReceiveParts, Save, file_name};
use windlass_web::windlass::Watcher;
use windlass_web::windlass::sim::Sim;
use windlass_web::{App, Error, Limits, Request, Response};

use crate::bench::{Bench, Harness};
use crate::save::Disk;

crate::every_driver! {
    parts_are_saved
    a_part_without_its_end_is_not_saved
}

/// Saves parts that have the name of a file.
struct Files(PathBuf);

impl ReceiveParts<()> for Files {
    fn part(&mut self, (): &mut (), part: PartHead) -> Result<PartPlan, Error> {
        match part.file_name() {
            Some(name) => Ok(PartPlan::Save(self.0.join(file_name(name)?), Save::new())),
            None => Ok(PartPlan::Skip),
        }
    }

    fn data(
        &mut self,
        (): &mut (),
        _: windlass_web::windlass::Buf,
    ) -> Result<windlass_web::body::Demand, Error> {
        unreachable!("no plan is to read")
    }

    fn end(self: Box<Self>, (): &mut (), _: &mut Request<'_, ()>) -> Result<Response, Error> {
        Ok("saved.".into())
    }
}

fn app(root: PathBuf) -> App {
    let limits = Multipart::new().limit(10 << 20).part_bytes(10 << 20);
    App::new()
        .post("/form", move |_, q| q.multipart(limits, Files(root.clone())))
        .at_head()
        .get("/", |_, _| "next.")
}

fn part(name: &str, data: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{data}")
}

fn head(framing: &str) -> String {
    let kind = "Content-Type: multipart/form-data; boundary=b";
    format!("POST /form HTTP/1.1\r\nHost: h\r\n{kind}\r\n{framing}\r\n\r\n")
}

fn with_length(form: &str) -> String {
    head(&format!("Content-Length: {}", form.len())) + form
}

const NEXT: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn parts_are_saved<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let client = b.connect();
    let (one, two) = ("x".repeat(300_000), "y".repeat(10));
    let form = part("name=f; filename=one", &one)
        + "\r\n"
        + &part("name=g", &one)
        + "\r\n"
        + &part("name=f; filename=two", &two)
        + "\r\n--b--";
    let heard = b.ask(client, with_length(&form) + NEXT, "next.");
    assert!(heard.contains("saved."), "{heard}");
    assert!(disk.read("one") == Some(one.into_bytes()) && disk.read("two") == Some(two.into()));
    assert_eq!(disk.temporaries(), 0);
}

fn a_part_without_its_end_is_not_saved<T: Harness>() {
    let (disk, mut b) = Disk::bench::<_, T>(app);
    let part = part("name=f; filename=old", "half of it");
    for form in [part.clone(), part.clone() + "\r\n--", part.clone() + "\r\n--b", part + "\r\n--b-"]
    {
        let chunked = head("Transfer-Encoding: chunked");
        let chunked = format!("{chunked}{:x}\r\n{form}\r\n0\r\n\r\n", form.len());
        for request in [with_length(&form), chunked] {
            let client = b.connect();
            let heard = b.ask(client, request + NEXT, "next.");
            assert!(heard.starts_with("HTTP/1.1 400 "), "{form}: {heard}");
            if !form.ends_with('b') && !form.ends_with("b-") {
                assert_eq!(disk.read("old").as_deref(), Some(&b"old"[..]), "{form}");
            }
            b.until("nothing is left", |_| disk.temporaries() == 0);
        }
    }
}

#[test]
fn a_part_behind_a_saved_one_has_the_time_of_a_body() {
    let sim = Sim::new(3);
    sim.write_file("files/old", "old");
    let limits = Limits::new().body_rate(1, Duration::from_secs(30));
    let app = app("files".into()).limits(limits);
    let mut b = Bench::on(Watcher::simulated(&sim), None, app);
    let client = b.connect();
    let form = part("name=f; filename=one", "1") + "\r\n" + &part("name=g", "");
    let rest = "x".repeat(300) + "\r\n--b--";
    b.say(client, head(&format!("Content-Length: {}", form.len() + rest.len())) + &form);
    for piece in rest.as_bytes().chunks(31) {
        b.run_for(Duration::from_secs(15));
        b.say(client, piece.to_vec());
    }
    let heard = b.answer(client);
    assert!(heard.contains("saved."), "{heard}");
}
