//! hyper-util's client with its pool, on tokio's runtime of one thread: a task for each connection.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::PATH;

type Pooled = Client<HttpConnector, Empty<Bytes>>;

pub fn run(port: u16, connections: usize) -> io::Result<()> {
    let uri: Uri = format!("http://127.0.0.1:{port}{PATH}").parse().map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Pooled = Client::builder(TokioExecutor::new()).build(connector);
    super::measured(connections, |count| {
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for index in 0..connections {
                let share = (count + index) / connections;
                tasks.spawn(requests(client.clone(), uri.clone(), share));
            }
            while let Some(ended) = tasks.join_next().await {
                ended.map_err(io::Error::other)??;
            }
            Ok(())
        })
    })
}

async fn requests(client: Pooled, uri: Uri, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let response = client.get(uri.clone()).await.map_err(io::Error::other)?;
        let is_ok = response.status() == 200;
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if !is_ok || body.len() != 13 {
            return Err(io::Error::other("another response"));
        }
    }
    Ok(())
}
