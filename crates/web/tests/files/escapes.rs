//! Paths that try to leave the directory.

use super::Tree;
use super::common::real::Real;
use super::wire::Client;
use windlass::DriverKind;
use windlass_web::App;
use windlass_web::files::FilesOptions;

#[test]
fn no_path_leads_out() {
    let tree = Tree::new();
    tree.write("secret", "secret");
    tree.write("www/a", "a");
    tree.write("www/.hidden", "secret");
    tree.write("www/.git/config", "secret");
    tree.write("www/sub/b", "b");
    tree.write("www2/a", "secret");
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, tree.at(name)).expect("a link");
    };
    link("../secret", "www/out");
    link("..", "www/up");
    link("sub", "www/in");
    let absolute = tree.at("secret");
    link(absolute.to_str().expect("a text"), "www/absolute");
    link("/proc/self/root", "www/magic");
    let app = App::new().files("/s", tree.www(), FilesOptions::new());
    let server = Real::with(DriverKind::Auto, app);
    let mut client = Client::new(server.address());
    assert_eq!(client.get("/s/in/b").text(), "b", "links in the directory are followed");
    let long = "x".repeat(300);
    let deep = "sub/".repeat(1500);
    for path in [
        "..",
        "../secret",
        "sub/../../secret",
        "%2e%2e/secret",
        "%2E%2E%2Fsecret",
        "..%2fsecret",
        ".%2e/secret",
        "sub/..%2f../secret",
        "%252e%252e/secret",
        "..%5csecret",
        "..\\secret",
        "%5c..%5csecret",
        "....//secret",
        "..;/secret",
        "..%00/secret",
        "a%00",
        "a%00.html",
        "%00",
        "%c0%ae%c0%ae/secret",
        "%ff",
        "%e0%80%ae%e0%80%ae/secret",
        "//secret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "sub//b",
        "./a",
        "%2e/a",
        "a/",
        "a/.",
        "a/..",
        ".hidden",
        "%2ehidden",
        ".git/config",
        "sub/../.hidden",
        "out",
        "up/secret",
        "up/www/a",
        "absolute",
        "magic/etc/passwd",
        "../www2/a",
        "..2/a",
        "a%",
        "a%2",
        "%zz",
        "~",
        "a::$DATA",
        "A",
        &long,
        &deep,
    ] {
        let reply = client.get(&format!("/s/{path}"));
        // A case-insensitive file system has `A`.
        let is_there = path == "A" && std::fs::metadata(tree.at("www/A")).is_ok();
        let allowed: &[u16] = if is_there { &[200] } else { &[400, 404, 414] };
        assert!(allowed.contains(&reply.status), "{path:.60}: {reply:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{path:.60}");
        if reply.get("Connection") == Some("close") {
            client = Client::new(server.address());
        }
    }
    assert_eq!(client.get("/s/a").text(), "a");
    server.stop();
}
