//! ureq: a thread for each connection, and one pool.

use std::{io, thread};

use ureq::Agent;

use super::PATH;

pub fn run(port: u16, connections: usize) -> io::Result<()> {
    let url = format!("http://127.0.0.1:{port}{PATH}");
    let config = Agent::config_builder()
        .max_idle_connections(connections)
        .max_idle_connections_per_host(connections);
    let agent = Agent::new_with_config(config.build());
    super::measured(connections, |count| {
        thread::scope(|scope| {
            let start = |index: usize| {
                let (agent, url) = (&agent, &url);
                scope.spawn(move || requests(agent, url, (count + index) / connections))
            };
            let threads: Vec<_> = (0..connections).map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
                thread.join().map_err(|_| io::Error::other("a client has panicked"))?
            };
            threads.into_iter().try_for_each(join)
        })
    })
}

fn requests(agent: &Agent, url: &str, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let mut response = agent.get(url).call().map_err(io::Error::other)?;
        let body = response.body_mut().read_to_vec().map_err(io::Error::other)?;
        if body.len() != 13 {
            return Err(io::Error::other("another response"));
        }
    }
    Ok(())
}
