// What WebSocket clients in JavaScript say, and how they check what they hear.
import assert from "node:assert";
import { webcrypto } from "node:crypto";

export const SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20];

// What a client hears, in order, for those who wait. Its `ws` has `send`.
export class Client {
  heard = [];
  waiting = [];

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

  send(message) {
    this.ws.send(message);
  }

  // The next event is this message, text or bytes.
  async expect(message) {
    const [what, data] = await this.next();
    assert.strictEqual(what, "message", String(data));
    if (typeof message === "string") {
      assert.ok(data === message, `${message.length} and ${data.length}`);
    } else {
      const bytes = new Uint8Array(data);
      const same = bytes.length === message.length && bytes.every((b, at) => b === message[at]);
      assert.ok(same, `${message.length} and ${bytes.length} bytes`);
    }
  }

  async say(message, options) {
    this.send(message, options);
    await this.expect(message);
  }
}

// So many bytes of text, with characters of all lengths.
export function letters(size) {
  const whole = "aé€😀 ".repeat(size / 11);
  return whole + ".".repeat(size - new TextEncoder().encode(whole).length);
}

// Bytes that do not get smaller.
function random(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) {
    webcrypto.getRandomValues(bytes.subarray(at, Math.min(at + 65536, size)));
  }
  return bytes;
}

// Messages of these sizes, and behind those of each what `more` says; then many short ones.
export async function speak(client, sizes, more = async () => {}) {
  for (const size of sizes) {
    for (const message of [letters(size), new Uint8Array(size), random(size)]) {
      await client.say(message);
    }
    await more(size);
  }
  // Messages that resemble each other, compressed and not, between others.
  for (let turn = 0; turn < 60; turn++) {
    const text = `{"turn": ${turn}, "text": "${"the same text ".repeat(turn % 9)}"}`;
    await client.say(text, { compress: turn % 3 !== 1 });
    if (turn % 5 === 0) await client.say(random(turn * 700));
  }
  // Many messages that nobody waits for.
  for (let turn = 0; turn < 300; turn++) client.send(`${turn}`.repeat(40));
  for (let turn = 0; turn < 300; turn++) await client.expect(`${turn}`.repeat(40));
}

// Closes, and expects the server to say the code again, and the reason if it likes.
export async function close(client) {
  client.ws.close(4000, "good bye");
  const [what, code, reason] = await client.next();
  assert.deepStrictEqual([what, code], ["close", 4000]);
  assert.ok(reason === "" || reason === "good bye", reason);
}
