//! windlass-web's client in a loop of its own.

use std::io;

use windlass::{Completions, DriverKind, Watcher};
use windlass_web::Client;
use windlass_web::client::{Fetch, FetchEvent, FetchSettings};

use super::PATH;

pub fn run(port: u16, connections: usize, driver: DriverKind) -> io::Result<()> {
    let url = format!("http://127.0.0.1:{port}{PATH}");
    let mut watcher = Watcher::builder().driver(driver).build()?;
    let mut client = Client::new(FetchSettings::new().connections(connections, connections));
    let mut done = Completions::new();
    super::measured(connections, |count| {
        let (mut begun, mut ended) = (0, 0);
        while begun < count.min(connections) {
            client.fetch(Fetch::get(url.clone()));
            begun += 1;
        }
        client.flush(&mut watcher);
        while ended < count {
            watcher.wait(&mut done)?;
            for completion in done.drain(..) {
                client.complete(&mut watcher, completion);
            }
            while let Some(event) = client.next_event(&mut watcher) {
                let FetchEvent::Fetched { result, .. } = event else { continue };
                let response = result.map_err(io::Error::other)?;
                if response.status() != 200 || response.body().len() != 13 {
                    return Err(io::Error::other("another response"));
                }
                ended += 1;
                if begun < count {
                    client.fetch(Fetch::get(url.clone()));
                    begun += 1;
                }
            }
            client.flush(&mut watcher);
        }
        Ok(())
    })
}
