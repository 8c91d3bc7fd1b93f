//! The page for those who come from nbio has every option, callback and method of its version
//! 1.6.8, and the defaults that the code has. (rustdoc checks that the items exist to which it
//! links.)

use std::time::Duration;

use windlass::Watcher;
use windlass_serve::{Limits, Server, modes::Loops};

const PAGE: &str = include_str!("../../docs/coming-from-nbio.md");

/// The fields of `Config` in nbio's engine.go.
const OPTIONS: &[&str] = &[
    "Name",
    "Network",
    "Addrs",
    "NPoller",
    "ReadBufferSize",
    "MaxWriteBufferSize",
    "MaxConnReadTimesPerEventLoop",
    "LockListener",
    "LockPoller",
    "EpollMod",
    "EPOLLONESHOT",
    "UDPReadTimeout",
    "Listen",
    "ListenUDP",
    "AsyncReadInPoller",
    "IOExecute",
    "BodyAllocator",
];

/// The methods of `Engine` that set a callback.
const CALLBACKS: &[&str] = &[
    "OnAcceptError",
    "OnUDPListen",
    "OnOpen",
    "OnClose",
    "OnRead",
    "OnData",
    "OnDataPtr",
    "OnWrittenSize",
    "OnReadBufferAlloc",
    "OnReadBufferFree",
    "OnStop",
];

/// Its other methods and those of its `Timer`, and the functions that make engines and connections.
const ENGINE: &[&str] = &[
    "SetETAsyncRead",
    "SetLTSyncRead",
    "Start",
    "Stop",
    "Shutdown",
    "AddConn",
    "PollerBuffer",
    "PollerBufferPtr",
    "DialAsync",
    "DialAsyncTimeout",
    "After",
    "AfterFunc",
    "Async",
    "IsTimerRunning",
    "NewEngine",
    "NewGopher",
    "NBConn",
    "Dial",
    "DialTimeout",
];

/// The methods of `Conn`.
const CONN: &[&str] = &[
    "AsyncRead",
    "Close",
    "CloseWithError",
    "DataHandler",
    "Execute",
    "ExecuteLen",
    "Hash",
    "IsClosed",
    "IsTCP",
    "IsUDP",
    "IsUnix",
    "LocalAddr",
    "Lock",
    "MustExecute",
    "OnData",
    "Read",
    "ReadAndGetConn",
    "RemoteAddr",
    "ResetPollerEvent",
    "Sendfile",
    "Session",
    "SetDeadline",
    "SetKeepAlive",
    "SetKeepAlivePeriod",
    "SetLinger",
    "SetNoDelay",
    "SetReadBuffer",
    "SetReadDeadline",
    "SetSession",
    "SetWriteBuffer",
    "SetWriteDeadline",
    "SyscallConn",
    "Type",
    "Unlock",
    "Write",
    "Writev",
];

/// The cells of the rows below a heading.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, text) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let text = text.split("\n## ").next().unwrap_or_default();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What stands in backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_has_every_name_once() {
    for (heading, expected, others) in [
        ("Options of `nbio.Config`", OPTIONS, 8),
        ("Callbacks of the engine", CALLBACKS, 0),
        ("Methods of the engine", ENGINE, 0),
        ("Methods of a connection", CONN, 0),
    ] {
        let rows = rows(heading);
        let here = if expected == OPTIONS { 2 } else { 1 };
        for row in &rows {
            let says = row[here].contains("](") || row[here].len() > "none: ".len();
            assert!(row.len() > here && says, "{heading}: {row:?}");
        }
        // A second table has what is no option of the engine.
        let of_nbio = &rows[..rows.len() - others];
        let mut found: Vec<&str> = of_nbio.iter().flat_map(|row| names(row[0])).collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{heading}");
    }
}

fn bytes(count: usize) -> String {
    match count {
        _ if count.is_multiple_of(1 << 20) => format!("{} MiB", count >> 20),
        _ => format!("{} KiB", count >> 10),
    }
}

fn seconds(span: Option<Duration>) -> String {
    format!("{} s", span.expect("there is a limit").as_secs())
}

#[test]
fn the_page_has_the_defaults_of_the_code() {
    let (limits, config) = (Limits::new(), Watcher::builder().config());
    let mebi = |count: usize| format!("{} Mi", count >> 20);
    let turns = [config.source_budget, config.turn_budget].map(bytes).join("; ");
    let expected = [
        ("`NPoller`", "1".to_owned()),
        ("`ReadBufferSize`", bytes(config.buffer_size as usize)),
        ("`MaxWriteBufferSize`", [limits.cap, limits.memory].map(bytes).join("; ")),
        ("`MaxConnReadTimesPerEventLoop`", turns),
        ("`UDPReadTimeout`", seconds(limits.session_idle)),
        ("`Name`", "empty".to_owned()),
        ("`MaxOpenFiles`", [limits.connections, config.max_sources as usize].map(mebi).join("; ")),
        ("`nbhttp.Config`: `MaxLoad`", mebi(limits.connections)),
        ("`nbhttp.Config`: `KeepaliveTime`", seconds(limits.idle)),
        ("`nbhttp.Config`: `BlockingReadBufferSize`", bytes(config.buffer_size as usize)),
    ];
    let rows = rows("Options of `nbio.Config`");
    for (option, default) in expected {
        let row = rows.iter().find(|row| row[0] == option).expect("its row");
        assert_eq!(row[3], default, "{option}");
    }
    assert_eq!((Loops::default(), windlass_serve::Config::new().name), (Loops::One, ""));
}

/// The settings that the page names, all of them in one server.
#[test]
fn a_server_has_all_of_them_at_once() {
    use windlass_serve::{Action, Config, Context, Handler, jobs::Job, modes::IoMode};
    struct Ends;
    impl Handler for Ends {
        type State = ();
        fn serving(&mut self, _: &mut Context<'_, ()>, _: &[windlass::Address]) -> Action {
            Action::Shutdown
        }
    }
    let limits = Limits::new().cap(1 << 20).memory(8 << 20).connections(10);
    let limits = limits.session_idle(Duration::from_secs(5)).jobs(4).loop_jobs(8);
    let config = Config::new().name("all").limits(limits).udp_sessions(true).farewell(b"full\n");
    let builder = Watcher::builder().buffer_size(4096).source_budget(8192).turn_budget(8192);
    let server = Server::new(|_| Ends)
        .config(config)
        .watcher(builder.threads(2).max_sources(100))
        .loops(2)
        .pin_loops(true)
        .io_mode(IoMode::Mixed { threads: 2 })
        .executor(Job::run)
        .listeners(|_| std::net::UdpSocket::bind("127.0.0.1:0"))
        .listener(std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .listen("tcp://127.0.0.1:0")
        .unwrap();
    let report = server.run().unwrap();
    assert_eq!((report.panics, report.thread_errors, report.counters.accepted), (0, 0, 0));
}
