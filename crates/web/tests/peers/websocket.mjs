// A WebSocket client with the package ws: what it hears is checked here.
//
// Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover),
// the file of the package, and whom to trust, where the URL is wss.
import assert from "node:assert";
import fs from "node:fs";
import { pathToFileURL } from "node:url";
import { Client, SIZES, close, letters, speak } from "./websocket_speech.mjs";

const [url, policy, home, trust] = process.argv.slice(2);
const { default: WebSocket } = await import(pathToFileURL(home));

class PackageClient extends Client {
  constructor(path, options) {
    super();
    const ca = trust ? { ca: fs.readFileSync(trust) } : {};
    this.ws = new WebSocket(url + path, { perMessageDeflate: false, ...ca, ...options });
    this.ws.on("upgrade", (response) => {
      this.extensions = response.headers["sec-websocket-extensions"];
    });
    this.ws.on("message", (data, binary) => {
      this.tell(["message", binary ? data : data.toString()]);
    });
    this.ws.on("pong", (data) => this.tell(["pong", data.toString()]));
    this.ws.on("close", (code, reason) => this.tell(["close", code, reason.toString()]));
    this.ws.on("error", (error) => this.tell(["error", error.message]));
    this.ws.on("open", () => this.tell(["open"]));
  }

  send(message, options = {}) {
    this.ws.send(message, options);
  }
}

async function opened(path, options = {}) {
  const client = new PackageClient(path, options);
  assert.deepStrictEqual(await client.next(), ["open"]);
  return client;
}

function speakInFragments(client, sizes) {
  return speak(client, sizes, async (size) => {
    // Fragments that cut characters, and a ping between them.
    const bytes = Buffer.from(letters(size));
    const third = Math.floor(size / 3);
    client.ws.send(bytes.subarray(0, third), { binary: false, fin: false });
    client.ws.ping(`${size}`);
    client.ws.send(Buffer.alloc(0), { fin: false });
    client.ws.send(bytes.subarray(third), { fin: true });
    assert.deepStrictEqual(await client.next(), ["pong", `${size}`]);
    await client.expect(letters(size));
  });
}

const plain = await opened("/echo");
assert.strictEqual(plain.extensions, undefined);
await speakInFragments(plain, SIZES);
await close(plain);

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
  await speakInFragments(client, sizes);
  await close(client);
  // A mebibyte takes its time in a build without optimisations.
  sizes = SIZES.slice(0, -1);
}
console.log("ok");
