//! Servers of files, HTTP clients and proxies.

use std::io;
use std::path::Path;

use super::{Peer, configured, example, go, haproxy, libuv};

fn ours() -> io::Result<String> {
    Ok(std::env::current_exe()?.to_string_lossy().into_owned())
}

fn peer(name: &str, command: Result<Vec<String>, String>) -> Peer {
    Peer { name: name.into(), command }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Servers of the files below `root`; the first is the base of the ratios.
pub fn file_servers(root: &Path) -> io::Result<Vec<Peer>> {
    let (ours, root) = (ours()?, root.to_string_lossy().into_owned());
    let inside = |name: &str| peer(name, Ok(words(&[&ours, "serve", name, "{port}", &root])));
    let nginx = |name: &str, cache: &str| {
        let config = NGINX_FILES.replace("ROOT", &root).replace("CACHE", cache);
        peer(name, configured(&format!("{name}.conf.in"), &config))
    };
    Ok(vec![
        nginx("nginx", "off"),
        nginx("nginx-cached", "max=2000"),
        inside("windlass-files"),
        inside("windlass-files-uring"),
        inside("file-floor"),
        inside("file-floor-read"),
    ])
}

/// nginx as one process that serves files.
const NGINX_FILES: &str = "daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off;
    types { text/plain txt; }
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    sendfile on;
    tcp_nopush on;
    open_file_cache CACHE;
    open_file_cache_valid 1s;
    server {
        listen 127.0.0.1:PORT backlog=4096;
        root ROOT;
    }
}
";

/// Clients of the server on a port; the first is the base of the ratios.
pub fn clients(port: u16, connections: usize) -> io::Result<Vec<Peer>> {
    let (ours, port, connections) = (ours()?, port.to_string(), connections.to_string());
    let inside = |name: &str, is_there: bool| {
        let command = words(&[&ours, "client", name, &port, &connections]);
        let missing = || format!("it was built without the feature that has {name}");
        peer(name, is_there.then_some(command).ok_or_else(missing))
    };
    let go = go("netclient").map(|program| {
        words(&["env", "GOMAXPROCS=1", &program.to_string_lossy(), &port, &connections])
    });
    Ok(vec![
        inside("client-floor", true),
        inside("hyper-util", cfg!(feature = "http")),
        inside("windlass-client", true),
        inside("windlass-client-uring", true),
        inside("ureq", cfg!(feature = "http")),
        peer("Go net/http", go),
    ])
}

/// HTTP proxies to a port of this host; the first is the base of the ratios.
pub fn http_proxies(to: u16) -> io::Result<Vec<Peer>> {
    let (ours, to_port) = (ours()?, to.to_string());
    let config = NGINX_PROXY.replace("UPSTREAM", &to_port);
    let inside = |name: &str| peer(name, Ok(words(&[&ours, "serve", name, "{port}", &to_port])));
    Ok(vec![
        peer("haproxy", haproxy("haproxy-http.cfg", HAPROXY_HTTP, to)),
        peer("nginx", configured("nginx-proxy.conf.in", &config)),
        inside("windlass-proxy"),
        inside("windlass-proxy-uring"),
    ])
}

/// haproxy in HTTP mode, with one thread.
const HAPROXY_HTTP: &str = "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
    http-reuse always
listen proxy
    bind 127.0.0.1:\"${PORT}\"
    server up 127.0.0.1:\"${TO}\"
";

/// nginx as one process that forwards requests, and writes no response to a file.
const NGINX_PROXY: &str = "daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    upstream up {
        server 127.0.0.1:UPSTREAM;
        keepalive 64;
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }
    server {
        listen 127.0.0.1:PORT backlog=4096;
        location / {
            proxy_pass http://up;
            proxy_http_version 1.1;
            proxy_max_temp_file_size 0;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
        }
    }
}
";

/// Servers of blocks of the file below `root`, read with O_DIRECT if `direct`; the first is the
/// base of the ratios.
pub fn block_servers(root: &Path, direct: bool) -> io::Result<Vec<Peer>> {
    let root = root.to_string_lossy().into_owned();
    let file = format!("{root}/0.txt");
    let libuv = libuv("http").map(|program| {
        words(&[&program.to_string_lossy(), "{port}", &file, if direct { "1" } else { "0" }])
    });
    let example = example("windlass-web", "files");
    let ours = |files: &str| {
        let program = example.clone()?.to_string_lossy().into_owned();
        let mut words = words(&[&program, &root, "--port", "{port}", "--files", files]);
        words.extend(direct.then(|| "--direct".to_owned()));
        Ok(words)
    };
    let mut peers = vec![peer("libuv, 4 threads", libuv)];
    for files in ["aio", "uring", "pool"] {
        peers.push(peer(&format!("windlass-web, {files}"), ours(files)));
    }
    Ok(peers)
}
