// The peer in Node.js, with OpenSSL below: see README.md.

import fs from "node:fs";
import tls from "node:tls";

const [role, ...rest] = process.argv.slice(2);
const [directory, version] = role === "client" ? rest.slice(1) : rest;
const read = (name) => fs.readFileSync(`${directory}/${name}`);
const hasClient = fs.existsSync(`${directory}/client.pem`);

const settings = {
  ca: read("root.pem"),
  minVersion: version,
  maxVersion: version,
  ALPNProtocols: ["h2", "http/1.1"],
};

function describe(conn) {
  const resumed = conn.isSessionReused() ? "resumed" : "new";
  return `${conn.getProtocol()} ${conn.alpnProtocol} ${resumed}`;
}

function talk(port, data, piece, session) {
  return new Promise((resolve, reject) => {
    const identity = hasClient ? { cert: read("client.pem"), key: read("client.key") } : {};
    const options = { ...settings, ...identity, session, port, servername: "localhost" };
    let kept, line, heard = 0;
    const conn = tls.connect({ host: "127.0.0.1", ...options }, () => {
      line = describe(conn);
      for (let at = 0; at < data.length; at += piece) {
        conn.write(data.subarray(at, at + piece));
      }
    });
    conn.setNoDelay(true);
    conn.setTimeout(60_000, () => conn.destroy(new Error("no byte for a minute")));
    conn.on("session", (session) => { kept = session; });
    conn.on("data", (part) => {
      if (!part.equals(data.subarray(heard, heard + part.length))) reject(new Error("other bytes"));
      heard += part.length;
      if (heard === data.length) conn.end();
    });
    conn.on("end", () => { if (heard < data.length) reject(new Error("an early end")); });
    conn.on("error", reject);
    conn.on("close", () => { console.log(line); resolve(kept); });
  });
}

async function client(port, size, piece, count) {
  const data = Buffer.alloc(size, Buffer.from(Array.from({ length: 251 }, (_, i) => i)));
  const session = await talk(port, data, piece);
  const others = Array.from({ length: count - 1 }, () => talk(port, data, piece, session));
  await Promise.all(others);
}

function serve() {
  const own = { cert: read("server.pem"), key: read("server.key"), requestCert: hasClient };
  const server = tls.createServer({ ...settings, ...own, rejectUnauthorized: hasClient });
  server.on("secureConnection", (conn) => {
    conn.setNoDelay(true);
    const name = conn.getPeerCertificate().subject?.CN ?? "-";
    const line = `${describe(conn)} ${conn.servername || "-"} ${name}`;
    conn.pipe(conn);
    let failure;
    conn.on("error", (error) => { failure = `failed: ${error.message}`; });
    conn.on("close", () => console.log(failure ?? line));
  });
  server.on("tlsClientError", (error) => console.log(`failed: ${error.message}`));
  server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
  process.stdin.on("end", () => process.exit()).resume();
}

if (role === "client") {
  const [port, , , size, piece, count] = rest;
  await client(Number(port), Number(size), Number(piece), Number(count));
} else {
  serve();
}
