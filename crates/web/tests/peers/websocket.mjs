// A WebSocket client with the package ws: what it hears is checked here.
//
// Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover),
// the file of the package, and whom to trust, where the URL is wss.
import assert from "node:assert";
import crypto from "node:crypto";
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [url, policy, home, trust] = process.argv.slice(2);
const { default: WebSocket } = await import(pathToFileURL(home));
const SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20];

// What it hears, in order, for those who wait.
class Client {
  heard = [];
  waiting = [];

  constructor(path, options) {
    const ca = trust ? { ca: fs.readFileSync(trust) } : {};
    this.ws = new WebSocket(url + path, { perMessageDeflate: false, ...ca, ...options });
    this.ws.on("upgrade", (response) => {
      this.extensions = response.headers["sec-websocket-extensions"];
    });
    this.ws.on("message", (data, binary) => this.tell(["message", binary, data]));
    this.ws.on("pong", (data) => this.tell(["pong", data.toString()]));
    this.ws.on("close", (code, reason) => this.tell(["close", code, reason.toString()]));
    this.ws.on("error", (error) => this.tell(["error", error.message]));
    this.ws.on("open", () => this.tell(["open"]));
  }

  tell(event) {
    const first = this.waiting.shift();
    if (first) first(event);
    else this.heard.push(event);
  }

  next() {
    if (this.heard.length > 0) return Promise.resolve(this.heard.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("nothing for 20 s")), 20_000);
      this.waiting.push((event) => {
        clearTimeout(timer);
        resolve(event);
      });
    });
  }

  async expect(message) {
    const [what, binary, data] = await this.next();
    assert.strictEqual(what, "message", String(binary));
    assert.strictEqual(binary, typeof message !== "string");
    assert.ok(Buffer.from(message).equals(data), `${message.length} and ${data.length}`);
  }

  async say(message, options = {}) {
    this.ws.send(message, options);
    await this.expect(message);
  }

  async close(code, reason) {
    this.ws.close(code, reason);
    const [what, heard, why] = await this.next();
    // The server says the code again, and the reason if it likes.
    assert.deepStrictEqual([what, heard], ["close", code]);
    assert.ok(why === "" || why === reason, why);
  }
}

async function opened(path, options = {}) {
  const client = new Client(path, options);
  assert.deepStrictEqual(await client.next(), ["open"]);
  return client;
}

// So many bytes of text, with characters of all lengths.
function letters(size) {
  const whole = "aé€😀 ".repeat(size / 11);
  return whole + ".".repeat(size - Buffer.byteLength(whole));
}

async function speak(client, sizes) {
  for (const size of sizes) {
    const random = crypto.randomBytes(size);
    for (const message of [letters(size), Buffer.alloc(size), random]) await client.say(message);
    // Fragments that cut characters, and a ping between them.
    const bytes = Buffer.from(letters(size));
    const third = Math.floor(size / 3);
    client.ws.send(bytes.subarray(0, third), { binary: false, fin: false });
    client.ws.ping(`${size}`);
    client.ws.send(Buffer.alloc(0), { fin: false });
    client.ws.send(bytes.subarray(third), { fin: true });
    assert.deepStrictEqual(await client.next(), ["pong", `${size}`]);
    await client.expect(letters(size));
  }
  // Messages that resemble each other, compressed and not, between others.
  for (let turn = 0; turn < 60; turn++) {
    const text = `{"turn": ${turn}, "text": "${"the same text ".repeat(turn % 9)}"}`;
    await client.say(text, { compress: turn % 3 !== 1 });
    if (turn % 5 === 0) await client.say(crypto.randomBytes(turn * 700));
  }
  // Many messages that nobody waits for.
  for (let turn = 0; turn < 300; turn++) client.ws.send(`${turn}`.repeat(40));
  for (let turn = 0; turn < 300; turn++) await client.expect(`${turn}`.repeat(40));
}

const plain = await opened("/echo");
assert.strictEqual(plain.extensions, undefined);
await speak(plain, SIZES);
await plain.close(4000, "good bye");

// The server closes, and says why.
const closed = await opened("/close");
closed.ws.send("it is over");
assert.deepStrictEqual(await closed.next(), ["close", 4001, "it is over"]);

let sizes = SIZES;
for (const offer of [
  {},
  { serverNoContextTakeover: true },
  { clientNoContextTakeover: true },
  { serverNoContextTakeover: true, clientNoContextTakeover: true },
  { serverMaxWindowBits: 9, clientMaxWindowBits: 9 },
  { serverMaxWindowBits: 11, clientMaxWindowBits: 13 },
  { serverMaxWindowBits: 15, clientMaxWindowBits: 15 },
]) {
  const client = await opened("/echo", { perMessageDeflate: { threshold: 0, ...offer } });
  if (policy === "off") {
    assert.strictEqual(client.extensions, undefined);
  } else {
    assert.match(client.extensions, /^permessage-deflate/);
    const fresh = policy === "fresh" || offer.serverNoContextTakeover === true;
    assert.strictEqual(client.extensions.includes("server_no_context_takeover"), fresh);
  }
  await speak(client, sizes);
  await client.close(4000, "good bye");
  // A mebibyte takes its time in a build without optimisations.
  sizes = SIZES.slice(0, -1);
}
console.log("ok");
