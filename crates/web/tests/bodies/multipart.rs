//! Forms in parts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_web::body::{Demand, Resume};
use windlass_web::upload::{Multipart, PartHead, PartPlan, ReceiveParts};
use windlass_web::windlass::Buf;
use windlass_web::{App, Error, Request, Response, Status};

use crate::bench::{Bench, Harness, seed};

crate::every_driver! {
    a_form_comes_in_parts
    a_form_is_cut_anywhere
    a_paused_form_goes_on_where_it_was
    a_form_that_is_wrong_is_refused
    a_receiver_of_parts_ends_a_form
    a_receiver_of_parts_hears_that_its_client_has_gone
}

/// What a loop knows of its forms.
#[derive(Default)]
struct State {
    resume: Vec<Resume>,
    aborted: usize,
    copies: usize,
}

type Shared = Arc<Mutex<State>>;

/// Notes the parts of a form. What the name of a part says is done: `skip`, `pause`, `pause-end`,
/// `stop`, `error`, `panic`.
#[derive(Default)]
struct Notes {
    parts: Vec<(String, Option<String>, Vec<u8>, bool)>,
}

impl Notes {
    fn name(&self) -> &str {
        &self.parts.last().expect("a part has begun").0
    }
}

impl ReceiveParts<Shared> for Notes {
    fn begin(&mut self, state: &mut Shared, resume: Resume) {
        state.lock().unwrap().resume.push(resume);
    }

    fn part(&mut self, _: &mut Shared, part: PartHead) -> Result<PartPlan, Error> {
        let (name, file) = (part.name().to_owned(), part.file_name().map(str::to_owned));
        let plan = match &*name {
            "skip" => PartPlan::Skip,
            "error" => return Err(Error::new(Status::UNPROCESSABLE_CONTENT).text("no")),
            "panic" => panic!("a test panics"),
            _ => PartPlan::Read,
        };
        self.parts.push((name, file, Vec::new(), false));
        Ok(plan)
    }

    fn data(&mut self, state: &mut Shared, data: Buf) -> Result<Demand, Error> {
        assert!(!data.is_empty() && self.name() != "skip");
        self.parts.last_mut().expect("a part has begun").2.extend_from_slice(&data);
        state.lock().unwrap().copies += usize::from(data.into_lease().is_err());
        match self.name() {
            "pause" => Ok(Demand::Pause),
            "stop" => Ok(Demand::Stop("stopped".into())),
            _ => Ok(Demand::More),
        }
    }

    fn part_end(&mut self, _: &mut Shared) -> Result<Demand, Error> {
        self.parts.last_mut().expect("a part has begun").3 = true;
        Ok(if self.name() == "pause-end" { Demand::Pause } else { Demand::More })
    }

    fn end(
        self: Box<Self>,
        _: &mut Shared,
        q: &mut Request<'_, Shared>,
    ) -> Result<Response, Error> {
        assert!(q.body().is_err());
        let part = |(name, file, data, has_ended): &(String, Option<String>, Vec<u8>, bool)| {
            let file = file.as_deref().map(|file| format!("({file})")).unwrap_or_default();
            let end = if *has_ended { "" } else { "…" };
            format!("{name}{file}={}{end}", data.escape_ascii())
        };
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        Ok(Response::text(parts.join("&") + "."))
    }

    fn aborted(self: Box<Self>, state: &mut Shared) {
        state.lock().unwrap().aborted += 1;
    }
}

fn app(shared: &Shared) -> App<Shared> {
    let shared = Arc::clone(shared);
    let limits = Multipart::new().limit(100_000).parts(3).part_bytes(50_000);
    App::with(move |_| Arc::clone(&shared))
        .post("/form", move |_, q| q.multipart(limits, Notes::default()))
        .at_head()
        .get("/", |_, _| "next.")
}

fn part(name: &str, data: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{data}\r\n")
}

fn form(parts: &[(&str, &str)]) -> String {
    let parts: String = parts.iter().map(|(name, data)| part(name, data)).collect();
    parts + "--b--\r\n"
}

/// A request with a form: with its length, or in chunks of this size.
fn request(form: &str, chunk: Option<usize>) -> String {
    let head =
        "POST /form HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=b\r\n";
    let Some(size) = chunk else {
        return format!("{head}Content-Length: {}\r\n\r\n{form}", form.len());
    };
    let chunks = form.as_bytes().chunks(size);
    let chunks =
        chunks.map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
    format!("{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunks.collect::<String>())
}

const NEXT: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn a_form_comes_in_parts<T: Harness>() {
    let shared = Shared::default();
    let mut bench = Bench::new::<T>(app(&shared));
    let client = bench.connect();
    let form =
        form(&[("name=a", "x"), ("name=\"f\"; filename=\"../e\"", "1\r\n--2"), ("name=skip", "s")]);
    for chunk in [None, Some(7), Some(1000)] {
        let heard = bench.ask(client, request(&form, chunk) + NEXT, "next.");
        assert!(heard.contains("\r\n\r\na=x&f(../e)=1\\r\\n--2&skip=….HTTP/1.1 200"), "{heard}");
    }
    shared.lock().unwrap().copies = 0;
    let long = "y".repeat(3000);
    let heard = bench.ask(client, request(&self::form(&[("name=a", &long)]), None), &(long + "."));
    assert!(heard.starts_with("HTTP/1.1 200"));
    let copies = shared.lock().unwrap().copies;
    if !T::VIRTUAL {
        assert!(copies == 0, "{copies} parts were copied");
    }
}

fn a_form_is_cut_anywhere<T: Harness>() {
    let mut bench = Bench::new::<T>(app(&Shared::default()));
    let mut rng = fastrand::Rng::with_seed(seed());
    let form = form(&[("name=a", "x\r\n--"), ("name=b", "\r\n-\r\r\n--c"), ("name=c", "")]);
    for round in 0..if T::VIRTUAL { 40 } else { 10 } {
        let client = bench.connect();
        let chunk = (round % 2 == 1).then(|| rng.usize(1..20));
        let whole = request(&form, chunk);
        let mut rest = &whole[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rng.usize(1..=rest.len().min(30)));
            bench.say(client, now.as_bytes().to_vec());
            rest = later;
            bench.turn(Duration::from_millis(1));
        }
        bench.until("the form is answered", |b| b.heard(client).ends_with("&c=."));
        let heard = bench.take(client);
        assert!(heard.ends_with("a=x\\r\\n--&b=\\r\\n-\\r\\r\\n--c&c=."), "{heard}");
    }
}

fn a_paused_form_goes_on_where_it_was<T: Harness>() {
    let shared = Shared::default();
    let mut bench = Bench::new::<T>(app(&shared));
    for chunk in [None, Some(5), Some(1000)] {
        let client = bench.connect();
        let form = form(&[("name=pause", "12345"), ("name=pause-end", "67"), ("name=a", "8")]);
        bench.say(client, request(&form, chunk) + NEXT);
        let mut pauses = 0;
        while !bench.heard(client).ends_with("next.") {
            bench.run_for(Duration::from_millis(20));
            // Each resume ends at most one pause.
            pauses += 1;
            let resume = shared.lock().unwrap().resume.last().cloned();
            resume.inspect(|resume| _ = resume.resume());
        }
        assert!(pauses >= 2, "{pauses}");
        let heard = bench.take(client);
        assert!(heard.contains("\r\n\r\npause=12345&pause-end=67&a=8.HTTP/1.1 200"), "{heard}");
    }
}

fn a_form_that_is_wrong_is_refused<T: Harness>() {
    let shared = Shared::default();
    let mut bench = Bench::new::<T>(app(&shared));
    let whole = form(&[("name=a", "x")]);
    let (long, many) = ("y".repeat(50_001), "y".repeat(40_000));
    let parts = [("name=a", ""), ("name=b", ""), ("name=c", ""), ("name=d", "")];
    let cases = [
        (whole.replace("--b--", "--c--"), "400", "the form is not whole"),
        (whole.replace("--b\r", "--bc\r"), "400", "not a line"),
        (whole.replace("name=a", "nick=a"), "400", "has no name"),
        (form(&parts), "413", "more than 3 parts"),
        (form(&[("name=a", &long)]), "413", "more than 50000 bytes"),
        (
            form(&[("name=a", &many), ("name=b", &many), ("name=c", &many)]),
            "413",
            "the body is longer",
        ),
        (String::new(), "400", "the form is not whole"),
    ];
    for (number, (form, status, text)) in cases.into_iter().enumerate() {
        for chunk in [None, Some(4096)] {
            let client = bench.connect();
            bench.say(client, request(&form, chunk));
            bench.until("it is refused", |b| b.heard(client).contains(text));
            let heard = bench.take(client);
            assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{number}: {heard}");
            bench.reset(client);
        }
    }
    let aborted = shared.lock().unwrap().aborted;
    assert_eq!(aborted, 14, "each receiver hears of it");
    let client = bench.connect();
    let no_form = request(&whole, None).replace("form-data; boundary", "mixed; boundary");
    let heard = bench.ask(client, no_form + NEXT, "next.");
    assert!(heard.starts_with("HTTP/1.1 415 "), "{heard}");
}

fn a_receiver_of_parts_ends_a_form<T: Harness>() {
    let mut bench = Bench::new::<T>(app(&Shared::default()));
    for (name, status) in [("stop", "200"), ("error", "422"), ("panic", "500")] {
        let form = form(&[("name=a", "x"), (&format!("name={name}"), "y"), ("name=b", "z")]);
        let client = bench.connect();
        let heard = match name {
            "panic" => bench.ask_last(client, request(&form, None) + NEXT),
            _ => bench.ask(client, request(&form, None) + NEXT, "next."),
        };
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
    }
}

fn a_receiver_of_parts_hears_that_its_client_has_gone<T: Harness>() {
    let shared = Shared::default();
    let mut bench = Bench::new::<T>(app(&shared));
    let client = bench.connect();
    let whole = request(&form(&[("name=a", "12345")]), None);
    bench.say(client, whole[..whole.len() - 12].to_owned());
    bench.until("the form has begun", |_| shared.lock().unwrap().resume.len() == 1);
    bench.reset(client);
    bench.until("the receiver hears of it", |_| shared.lock().unwrap().aborted == 1);
}
