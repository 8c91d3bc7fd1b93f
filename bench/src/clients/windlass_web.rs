//! windlass-web's client in a loop of its own.

use std::io;

use windlass::{Completions, DriverKind, Watcher};
use windlass_web::client::{Fetch, FetchEvent, FetchSettings};
use windlass_web::{Client, Status};

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
        while ended < count {
            client.flush(&mut watcher);
            watcher.wait(&mut done)?;
            let mut batch = done.visit();
            while let Some(event) = client.next_event_in(&mut watcher, &mut batch) {
                let FetchEvent::Fetched { result, .. } = event else { continue };
                let response = result.map_err(io::Error::other)?;
                if response.status() != Status::OK || response.body().len() != 13 {
                    return Err(io::Error::other("another response"));
                }
                ended += 1;
                if begun < count {
                    client.fetch(Fetch::get(url.clone()));
                    begun += 1;
                }
            }
        }
        Ok(())
    })
}
