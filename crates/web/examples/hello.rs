//! The smallest server: `GET /`, `GET /plaintext`, `POST /echo`.

use windlass_web::App;

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or("8080".into());
    let app = App::new()
        .get("/", |_, _| "Hello, World!")
        .get("/plaintext", |_, _| "Hello, World!")
        .post("/echo", |_, q| q.body().map(<[u8]>::to_vec))
        .listen(format!("127.0.0.1:{port}"))?;
    app.run()?;
    Ok(())
}
