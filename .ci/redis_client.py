"""A client library against the example serve_redis: `redis_client.py PORT`."""

import sys
import threading

import redis

port = int(sys.argv[1])
client = redis.Redis(port=port, protocol=2, socket_timeout=20)

assert client.ping() is True
assert client.echo("hello") == b"hello"
every_byte = bytes(range(256))
assert client.set("bytes", every_byte) is True
assert client.get("bytes") == every_byte
assert client.get("nothing") is None
large = b"0123456789abcdef" * (5 << 18)
client.set("large", large)
assert client.get("large") == large
assert client.delete("bytes", "large", "nothing") == 2

with client.pipeline(transaction=False) as pipeline:
    for i in range(5000):
        pipeline.set(f"key {i}", i)
        pipeline.get(f"key {i}")
    replies = pipeline.execute()
assert replies == [reply for i in range(5000) for reply in (True, str(i).encode())]

try:
    client.execute_command("SET", "key")
    sys.exit("a SET without a value is accepted")
except redis.ResponseError as error:
    assert "wrong number of arguments" in str(error), error


def count(name):
    own = redis.Redis(port=port, protocol=2, socket_timeout=20)
    for i in range(200):
        own.set(name, i)
        assert own.get(name) == str(i).encode()


threads = [threading.Thread(target=count, args=[f"thread {i}"]) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert [client.get(f"thread {i}") for i in range(8)] == [b"199"] * 8
assert client.execute_command("QUIT") in (True, b"OK")
print("redis_client.py: ok")
