//! Which servers there are, and how each is started.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Servers that are part of this program, in the order of the tables; the first is the base of the
/// ratios.
const INSIDE: &[&str] =
    &["raw-epoll", "raw-uring", "windlass", "windlass-uring", "mio", "tokio", "compio", "monoio"];
/// Servers in Go, built where Go is installed.
const GO: &[&str] = &["gaio", "nbio", "gnet"];

/// A server and the command that starts it, or why it cannot run here.
pub struct Peer {
    pub name: String,
    pub command: Result<Vec<String>, String>,
}

/// All servers that echo. Builds those that have to be built.
pub fn echo_servers() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let mut peers: Vec<Peer> = INSIDE
        .iter()
        .map(|&name| {
            let words = [&ours, "serve", name, "{port}"].map(String::from).to_vec();
            Peer { name: name.into(), command: Ok(words) }
        })
        .collect();
    let words = |program: PathBuf| vec![program.to_string_lossy().into_owned(), "{port}".into()];
    peers.push(Peer { name: "libuv".into(), command: libuv("echo").map(words) });
    for &name in GO {
        peers.push(Peer { name: name.into(), command: go(name).map(words) });
    }
    Ok(peers)
}

/// Those of `peers` that can run here, and that `only` (if not empty) names. The others are printed
/// with the reason.
pub fn usable(peers: Vec<Peer>, only: &str) -> io::Result<Vec<(String, Vec<String>)>> {
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let mut usable = Vec::new();
    for peer in peers {
        if !only.is_empty() && !only.contains(&peer.name.as_str()) {
            continue;
        }
        match peer.command {
            Ok(command) => usable.push((peer.name, command)),
            Err(why) => println!("left out: {}: {why}", peer.name),
        }
    }
    if usable.is_empty() {
        return Err(crate::arguments::invalid("no server of these names can run here".into()));
    }
    Ok(usable)
}

pub fn list() -> io::Result<()> {
    for peer in echo_servers()? {
        println!("{:15} {}", peer.name, peer.command.map_or_else(|why| why, |_| "can run".into()));
    }
    Ok(())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// The directory of the built servers.
fn built() -> Result<PathBuf, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    Ok(path)
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} fails: {}", said.lines().next().unwrap_or_default()))
}

/// Builds a Go server of `peers/go`.
pub fn go(name: &str) -> Result<PathBuf, String> {
    let program = built()?.join(name);
    let package = format!("./{name}");
    let mut build = Command::new("go");
    run(build.current_dir(sources().join("go")).args(["build", "-o"]).arg(&program).arg(package))?;
    Ok(program)
}

/// Builds a program of `peers/libuv` against the installed library.
pub fn libuv(name: &str) -> Result<PathBuf, String> {
    let program = built()?.join(format!("libuv-{name}"));
    let source = sources().join("libuv").join(format!("{name}.c"));
    run(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(source).arg("-luv"))?;
    Ok(program)
}
