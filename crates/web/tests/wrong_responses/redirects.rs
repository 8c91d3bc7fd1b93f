//! Redirects that lead nowhere, or where they should not.

use windlass_web::client::{Fetch, FetchSettings};

use crate::common::Harness;
use crate::hostile::server::Act;
use crate::hostile::{Who, scene};
use crate::table::{are_served, check};

crate::every_driver! {
    wrong_redirects_have_one_outcome
    redirects_are_followed_to_their_limit
    a_redirect_keeps_its_body_or_loses_it
}

const TOO_MANY: &str = "Redirect: there were too many redirects";
const SCHEME: &str = "Redirect: its scheme is neither http nor https";
const USER: &str = "Redirect: it has a user: set the field Authorization";
const NO_REFERENCE: &str = "Redirect: it is no reference of a URL";

fn found(fields: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nContent-Length: 4\r\n{fields}\r\nbody")
}

fn wrong_redirects_have_one_outcome<T: Harness>() {
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        for (fields, wanted) in [
            ("Location: /\r\n", TOO_MANY),
            ("Location: \r\n", TOO_MANY),
            ("Location: ?a\r\n", "200 good"),
            ("Location: /good#part\r\n", "200 good"),
            ("", "302 body"),
            ("X-Location: /good\r\n", "302 body"),
            ("Location: ftp://127.0.0.1/\r\n", SCHEME),
            ("Location: javascript:alert(1)\r\n", SCHEME),
            ("Location: file:///etc/passwd\r\n", SCHEME),
            ("Location: http://u:p@127.0.0.1/\r\n", USER),
            ("Location: http:///\r\n", "Redirect: it has no host"),
            (
                "Location: http://127.0.0.1:99999/\r\n",
                "Redirect: its port is no number below 65536",
            ),
            ("Location: /a b\r\n", NO_REFERENCE),
            ("Location: /\u{e9}\r\n", NO_REFERENCE),
            ("Location: http://[::1/\r\n", NO_REFERENCE),
            (
                "Location: /good\r\nLocation: /other\r\n",
                "Redirect: Location is there several times",
            ),
        ] {
            let acts = vec![Act::Say(found(fields).into())];
            check(&mut scene, Fetch::get(&url), acts, wanted);
        }
        // The body of a redirect is not worth its connection.
        let acts = vec![
            Act::Say("HTTP/1.1 302 Found\r\nLocation: /good\r\n\r\n".into()),
            Act::Endless(vec![b'x'; 4000]),
        ];
        check(&mut scene, Fetch::get(&url), acts, "200 good");
        let long = "HTTP/1.1 302 Found\r\nLocation: /good\r\nContent-Length: 99999999\r\n\r\n";
        check(&mut scene, Fetch::get(&url), vec![Act::Say(long.into())], "200 good");
        // It is truncated.
        let cut = found("Location: /\r\n").replace("body", "bo");
        let acts = vec![Act::Say(cut.into()), Act::Close];
        check(&mut scene, Fetch::get(&url), acts, "Ended");
    }
}

fn redirects_are_followed_to_their_limit<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new());
    let other = scene.origins[1].clone();
    for step in 0..12 {
        let to = match step {
            11 => "Location: /good\r\n".to_owned(),
            step if step % 2 == 0 => format!("Location: {other}/{}\r\n", step + 1),
            step => format!("Location: {}/{}\r\n", scene.origins[0], step + 1),
        };
        scene.script(&format!("/{step}"), vec![Act::Say(found(&to).into())]);
    }
    let url = |step: u32| format!("{}/{step}", [&scene.origins[0], &other][step as usize % 2]);
    let urls: Vec<String> = (0..12).map(url).collect();
    assert_eq!(scene.text(Fetch::get(&urls[11]).redirects(0)), "302 body");
    assert_eq!(scene.text(Fetch::get(&urls[11]).redirects(1)), "200 good");
    assert_eq!(scene.text(Fetch::get(&urls[10]).redirects(1)), TOO_MANY);
    assert_eq!(scene.text(Fetch::get(&urls[2])), "200 good");
    assert_eq!(scene.text(Fetch::get(&urls[1])), TOO_MANY);
    let fetched = scene.call(Fetch::get(&urls[3])).fetched.expect("a response");
    assert_eq!(fetched.url(), Some(&*format!("{other}/good")));
    // An endless path of relative references.
    let relative = format!("/{}", "a/".repeat(5));
    for depth in 1..30 {
        let script = vec![Act::Say(found("Location: a/\r\n").into())];
        scene.script(&format!("/{}", "a/".repeat(depth)), script);
    }
    let url = scene.url(&relative);
    assert_eq!(scene.text(Fetch::get(url)), TOO_MANY);
    let (_, last) = scene.hostile.requests.last().expect("a request");
    assert_eq!(*last, format!("GET /{}", "a/".repeat(15)));
    are_served(&mut scene, "redirects");
}

fn a_redirect_keeps_its_body_or_loses_it<T: Harness>() {
    let mut scene = scene::<T>(Who::App, FetchSettings::new());
    let url = scene.url("/");
    for (status, wanted) in [
        (301, "GET /good"),
        (302, "GET /good"),
        (303, "GET /good"),
        (307, "POST /good"),
        (308, "POST /good"),
    ] {
        let head = format!("HTTP/1.1 {status} A\r\nContent-Length: 0\r\nLocation: /good\r\n\r\n");
        scene.script("/", vec![Act::Say(head.into())]);
        for body in [&b""[..], b"hello", &[b'x'; 100_000]] {
            let post = Fetch::post(&url).body(body);
            assert_eq!(scene.text(post), "200 good", "{status}");
            let (_, last) = scene.hostile.requests.last().expect("a request");
            assert_eq!(last, wanted);
        }
    }
}
