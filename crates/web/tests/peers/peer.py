"""A client with http.client: what it hears is checked here. Arguments: the port."""

import http.client
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
local = None
for turn in range(3):
    for method, path, body, chunked, expected in [
        ("GET", "/", None, False, b"Hello"),
        ("HEAD", "/", None, False, b""),
        ("POST", "/echo", b"x" * 100_000, False, b"x" * 100_000),
        ("POST", "/echo", (b"part %d;" % n for n in range(3)), True, b"part 0;part 1;part 2;"),
        ("POST", "/echo", b"", False, b""),
        ("GET", "/stream", None, False, b"y" * 1_000_000),
        ("GET", "/job", None, False, b"done"),
    ]:
        connection.request(method, path, body, encode_chunked=chunked)
        answer = connection.getresponse()
        heard = answer.read()
        assert answer.status == 200, (method, path, answer.status)
        assert heard == expected, (method, path, heard[:100])
        # One connection for all of them.
        port = connection.sock.getsockname()
        assert local in (None, port), (method, path)
        local = port
    connection.request("GET", "/missing")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b"Not Found")
print("ok")
