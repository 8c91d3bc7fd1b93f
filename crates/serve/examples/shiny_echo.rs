//! shiny's echo server, with its banner and its two commands: `quit` and `shutdown`.
//!
//! ```text
//! cargo run --release -p windlass-serve --example shiny_echo -- [ADDRESS]
//! ```

use windlass::Buf;
use windlass_serve::serve;

const BANNER: &str = "Welcome to the echo server!
Enter 'quit' to close your connection or 'shutdown' to close the server.\n";

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "tcp://127.0.0.1:7007".into());
    println!("listening on {address}");
    let mut shutdown = false;
    let handle = |_id, data: Buf, shutdown: &mut bool| match data.trim_ascii() {
        b"quit" => (Buf::default(), false),
        b"shutdown" => {
            *shutdown = true;
            (Buf::default(), true)
        }
        _ => (data, true),
    };
    let report = serve(
        &address,
        handle,
        |id, address, _waker, _| {
            println!("{id} opened: {address:?}");
            (BANNER.into(), true)
        },
        |id, cause, _| println!("{id} closed: {cause:?}"),
        |shutdown| !*shutdown,
        &mut shutdown,
    )?;
    println!("{} connections", report.counters.accepted);
    Ok(())
}
