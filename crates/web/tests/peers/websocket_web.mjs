// A WebSocket client with the interface of browsers, for bun, deno and Node.js: what it hears is
// checked here.
//
// Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover).
const [url, policy] = (globalThis.Deno?.args ?? process.argv.slice(2));
const SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20];

function check(holds, what) {
  if (!holds) throw new Error(what);
}

class Client {
  heard = [];
  waiting = [];

  constructor(path) {
    this.ws = new WebSocket(url + path);
    this.ws.binaryType = "arraybuffer";
    this.ws.onopen = () => this.tell(["open"]);
    this.ws.onmessage = (event) => this.tell(["message", event.data]);
    this.ws.onclose = (event) => this.tell(["close", event.code, event.reason, event.wasClean]);
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
    const [what, data] = await this.next();
    check(what === "message", `${what} ${data}`);
    if (typeof message === "string") {
      check(data === message, `${message.length} and ${data.length}`);
    } else {
      const bytes = new Uint8Array(data);
      const same = bytes.length === message.length && bytes.every((b, at) => b === message[at]);
      check(same, `${message.length} and ${bytes.length} bytes`);
    }
  }

  async say(message) {
    this.ws.send(message);
    await this.expect(message);
  }
}

async function opened(path) {
  const client = new Client(path);
  check((await client.next())[0] === "open", "it has not opened");
  return client;
}

// So many bytes of text, with characters of all lengths.
function letters(size) {
  const whole = "aé€😀 ".repeat(size / 11);
  return whole + ".".repeat(size - new TextEncoder().encode(whole).length);
}

// Bytes that do not get smaller.
function random(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) {
    crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65536, size)));
  }
  return bytes;
}

const client = await opened("/echo");
const extensions = client.ws.extensions;
check(policy !== "off" || extensions === "", extensions);
for (const size of SIZES) {
  for (const message of [letters(size), new Uint8Array(size), random(size)]) {
    await client.say(message);
  }
}
for (let turn = 0; turn < 60; turn++) {
  await client.say(`{"turn": ${turn}, "text": "${"the same text ".repeat(turn % 9)}"}`);
  if (turn % 5 === 0) await client.say(random(turn * 700));
}
for (let turn = 0; turn < 300; turn++) client.ws.send(`${turn}`.repeat(40));
for (let turn = 0; turn < 300; turn++) await client.expect(`${turn}`.repeat(40));
client.ws.close(4000, "good bye");
// The server says the code again, and the reason if it likes.
const [what, code, reason, clean] = await client.next();
check(what === "close" && code === 4000 && clean, `${what} ${code} ${clean}`);
check(reason === "" || reason === "good bye", reason);

// The server closes, and says why.
const closed = await opened("/close");
closed.ws.send("it is over");
const why = (await closed.next()).join();
check(why === "close,4001,it is over,true", why);
console.log(extensions === "" ? "ok" : `ok with ${extensions}`);
