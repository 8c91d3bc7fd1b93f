// Drives the page of the example ws_chat in headless Chromiums, through chromedriver, as several
// people: `node chat_page.mjs URL`. Says `ok`, or ends with what is wrong.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [page] = process.argv.slice(2);
const profiles = mkdtempSync(join(tmpdir(), "windlass-chat-"));
const driver = spawn("chromedriver", ["--port=0"], { stdio: ["ignore", "pipe", "inherit"] });

const port = await new Promise((found, failed) => {
  driver.on("exit", code => failed(new Error(`chromedriver ends with ${code}`)));
  createInterface({ input: driver.stdout }).on("line", line => {
    const said = line.match(/successfully on port (\d+)/);
    if (said) found(said[1]);
  });
});

async function call(method, path, body) {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    body: body && JSON.stringify(body),
  });
  const { value } = await answer.json();
  if (!answer.ok) throw new Error(`${path}: ${value.error}: ${value.message}`);
  return value;
}

// A browser at the page.
class Person {
  static async arrive(name) {
    const person = new Person();
    const args = [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
      "--disable-dev-shm-usage", `--user-data-dir=${join(profiles, name)}`,
    ];
    const chrome = { browserName: "chrome", "goog:chromeOptions": { args } };
    const made = await call("POST", "/session", { capabilities: { alwaysMatch: chrome } });
    person.at = `/session/${made.sessionId}`;
    await call("POST", `${person.at}/url`, { url: page });
    return person;
  }

  async element(css) {
    const found = await call("POST", `${this.at}/element`, { using: "css selector", value: css });
    return `${this.at}/element/${Object.values(found)[0]}`;
  }

  async type(css, text) {
    await call("POST", `${await this.element(css)}/value`, { text });
  }

  async click(css) {
    await call("POST", `${await this.element(css)}/click`, {});
  }

  async enter(room, name) {
    await this.type("#room", room);
    await this.type("#name", name);
    await this.click("#enter button");
  }

  // Waits until the page shows this text.
  async sees(text) {
    for (let tries = 0; tries < 400; tries++) {
      const shown = await call("GET", `${await this.element("body")}/text`);
      if (shown.includes(text)) return;
      await new Promise(soon => setTimeout(soon, 50));
    }
    throw new Error(`the page does not show ${JSON.stringify(text)}`);
  }

  async leave() {
    await call("DELETE", this.at);
  }
}

try {
  const ann = await Person.arrive("ann");
  await ann.enter("hall", "ann");
  await ann.sees("in hall");
  await ann.sees("here: ann");
  const bob = await Person.arrive("bob");
  await bob.enter("hall", "bob");
  await ann.sees("bob has come");
  await bob.type("#text", "good day, ä€😀");
  await bob.click("#say button");
  await ann.sees("bob: good day, ä€😀");
  // What is said is text, and no HTML.
  await ann.type("#text", "<b>so</b>");
  await ann.click("#say button");
  await bob.sees("ann: <b>so</b>");
  // The name is taken: the browser gets a 409.
  const second = await Person.arrive("second");
  await second.enter("hall", "ann");
  await second.sees("outside: 1006");
  await second.leave();
  await bob.leave();
  await ann.sees("bob has gone");
  await ann.leave();
  console.log("ok");
} finally {
  driver.removeAllListeners("exit");
  driver.kill();
  rmSync(profiles, { recursive: true, force: true, maxRetries: 5 });
}
