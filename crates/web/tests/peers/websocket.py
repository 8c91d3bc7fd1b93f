"""A WebSocket client with the package websockets: what it hears is checked here.

Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover), and
whom to trust, where the URL is wss."""

import asyncio
import random
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

URL, POLICY = sys.argv[1:3]
SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20]
TRUST = {"ssl": ssl.create_default_context(cafile=sys.argv[3])} if len(sys.argv) > 3 else {}


LOOP = asyncio.new_event_loop()


def run(step):
    return LOOP.run_until_complete(asyncio.wait_for(step, 20))


class Opened:
    """A connection, with calls that wait.

    The package has such connections itself, in websockets.sync. They use one ssl.SSLSocket in two
    threads, and now and then one never hears the answer to its handshake, also from the package's
    own server."""

    def __init__(self, path, **options):
        options = {"compression": None, "max_size": 4 << 20, "open_timeout": 20, **options}
        self.ws = run(connected(URL + path, **TRUST, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        run(self.ws.close())

    def send(self, message):
        run(self.ws.send(message))

    def recv(self):
        return run(self.ws.recv())

    def ping(self, data):
        async def pinged():
            await (await self.ws.ping(data))

        run(pinged())

    def close(self, code, reason):
        run(self.ws.close(code, reason))


async def connected(url, **options):
    return await connect(url, **options)


def letters(size):
    """So many bytes of text with characters of all lengths."""
    text = "aé€😀 " * (size // 11 + 1)
    cut = text.encode()[:size].decode(errors="ignore")
    return cut + "." * (size - len(cut.encode()))


def say(ws, message):
    ws.send(message)
    heard = ws.recv()
    assert heard == message, (len(message), len(heard))


def speak(ws, sizes):
    chance = random.Random(7)
    for size in sizes:
        for message in letters(size), bytes(size), chance.randbytes(size):
            say(ws, message)
        # Fragments, with empty ones.
        text = letters(size)
        ws.send(part for part in (text[: size // 3], "", text[size // 3 :], ""))
        assert ws.recv() == text
        ws.ping(b"%d" % size)
    # Messages that resemble each other, between others.
    for turn in range(60):
        say(ws, '{"turn": %d, "text": "%s"}' % (turn, "the same text " * (turn % 9)))
        if turn % 5 == 0:
            say(ws, chance.randbytes(turn * 700))
    # Many messages that nobody waits for.
    for turn in range(300):
        ws.send(str(turn) * 40)
    for turn in range(300):
        assert ws.recv() == str(turn) * 40, turn


def close(ws):
    ws.close(4000, "good bye")
    told = ws.ws.protocol.close_rcvd
    # The server says the code again, and the reason if it likes.
    assert told.code == 4000 and told.reason in ("", "good bye"), told


def terms(ws):
    """What the server has accepted, by name; None without the extension."""
    field = ws.ws.response.headers.get("Sec-WebSocket-Extensions")
    if field is None:
        return None
    name, *pairs = (part.strip() for part in field.split(";"))
    assert name == "permessage-deflate", field
    parted = (pair.partition("=") for pair in pairs)
    return {key: int(value) if value else True for key, _, value in parted}


with Opened("/echo") as ws:
    assert terms(ws) is None
    speak(ws, SIZES)
    close(ws)

# The server closes, and says why.
with Opened("/close") as ws:
    ws.send("it is over")
    try:
        heard = ws.recv()
        raise AssertionError(heard)
    except ConnectionClosed as end:
        assert (end.rcvd.code, end.rcvd.reason) == (4001, "it is over"), end

FIELDS = (
    "server_no_context_takeover",
    "client_no_context_takeover",
    "server_max_window_bits",
    "client_max_window_bits",
)
OFFERS = [
    (False, False, None, None),
    (False, False, None, True),
    (True, False, None, True),
    (False, True, None, True),
    (True, True, 9, 9),
    (False, False, 9, 9),
    (False, False, 10, 15),
    (False, False, 12, 12),
    (False, False, 15, 15),
]
for at, offer in enumerate(OFFERS):
    asked = dict(zip(FIELDS, offer))
    with Opened("/echo", extensions=[ClientPerMessageDeflateFactory(**asked)]) as ws:
        accepted = terms(ws)
        if POLICY == "off":
            assert accepted is None, accepted
            close(ws)
            continue
        assert accepted is not None, asked
        for name in FIELDS[:2]:
            wanted = asked[name] or POLICY == "fresh"
            if name.startswith("server") or asked[name]:
                assert accepted.get(name, False) == wanted, (name, asked, accepted)
        if asked["server_max_window_bits"]:
            assert accepted["server_max_window_bits"] <= asked["server_max_window_bits"], accepted
        # A mebibyte takes its time in a build without optimisations.
        speak(ws, SIZES if at == 0 else SIZES[:-1])
        close(ws)
print("ok")
