// A client with node:http: what it hears is checked here. Arguments: the port.
import assert from "node:assert";
import http from "node:http";

const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
const ports = new Set();

function ask(method, path, parts = []) {
  return new Promise((resolve, reject) => {
    const options = { agent, host: "127.0.0.1", port: process.argv[2], method, path };
    const request = http.request(options, (answer) => {
      const heard = [];
      answer.on("data", (data) => heard.push(data));
      answer.on("end", () => resolve([answer.statusCode, Buffer.concat(heard).toString()]));
      answer.on("error", reject);
    });
    request.on("socket", (socket) => socket.on("connect", () => ports.add(socket.localPort)));
    request.on("error", reject);
    request.setTimeout(20_000, () => request.destroy(new Error("no answer")));
    // Several parts without a length are chunks.
    for (const part of parts) request.write(part);
    request.end();
  });
}

for (let turn = 0; turn < 20; turn++) {
  const answers = await Promise.all([
    ask("GET", "/"),
    ask("HEAD", "/"),
    ask("POST", "/echo", ["a".repeat(70_000), "b", "c".repeat(70_000)]),
    ask("GET", "/stream"),
    ask("GET", "/job"),
    ask("PUT", "/"),
  ]);
  assert.deepStrictEqual(answers, [
    [200, "Hello"],
    [200, ""],
    [200, "a".repeat(70_000) + "b" + "c".repeat(70_000)],
    [200, "y".repeat(1_000_000)],
    [200, "done"],
    [405, "Method Not Allowed"],
  ]);
}
assert.ok(ports.size <= 4, `${ports.size} connections`);
agent.destroy();
console.log("ok");
