// A WebSocket client with the interface of browsers, for bun, deno and Node.js: what it hears is
// checked here.
//
// Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover).
import assert from "node:assert";
import { Client, SIZES, close, speak } from "./websocket_speech.mjs";

const [url, policy] = globalThis.Deno?.args ?? process.argv.slice(2);

class WebClient extends Client {
  constructor(path) {
    super();
    this.ws = new WebSocket(url + path);
    this.ws.binaryType = "arraybuffer";
    this.ws.onopen = () => this.tell(["open"]);
    this.ws.onmessage = (event) => this.tell(["message", event.data]);
    this.ws.onclose = ({ code, reason, wasClean }) => {
      this.tell(["close", code, wasClean ? reason : `not clean: ${reason}`]);
    };
  }
}

async function opened(path) {
  const client = new WebClient(path);
  assert.deepStrictEqual(await client.next(), ["open"]);
  return client;
}

const client = await opened("/echo");
const extensions = client.ws.extensions;
assert.ok(policy !== "off" || extensions === "", extensions);
await speak(client, SIZES);
await close(client);

// The server closes, and says why.
const closed = await opened("/close");
closed.ws.send("it is over");
assert.deepStrictEqual(await closed.next(), ["close", 4001, "it is over"]);
console.log(extensions === "" ? "ok" : `ok with ${extensions}`);
