"""The peer in Python, with OpenSSL below: see README.md."""

import os
import socket
import ssl
import sys
import threading

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
WINDOW = 65536


def tell(line):
    sys.stdout.write(line + "\n")  # at once: other threads write, too
    sys.stdout.flush()


def settings(purpose, directory, version):
    context = ssl.create_default_context(purpose, cafile=directory + "/root.pem")
    context.minimum_version = context.maximum_version = VERSIONS[version]
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def has_client(directory):
    return os.path.exists(directory + "/client.pem")


def describe(conn):
    resumed = "resumed" if conn.session_reused else "new"
    return f"{conn.version()} {conn.selected_alpn_protocol()} {resumed}"


def talk(context, port, data, piece, session):
    tcp = socket.create_connection(("127.0.0.1", port), timeout=60)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn = context.wrap_socket(
        tcp, server_hostname="localhost", session=session, suppress_ragged_eofs=False
    )
    for at in range(0, len(data), WINDOW):
        window = data[at : at + WINDOW]
        for begin in range(0, len(window), piece):
            conn.sendall(window[begin : begin + piece])
        heard = bytearray()
        while len(heard) < len(window):
            more = conn.recv(WINDOW)
            assert more, "an early end"
            heard += more
        assert heard == window, "other bytes"
    session, line = conn.session, describe(conn)
    conn.unwrap()
    tcp.close()
    tell(line)
    return session


def client(port, directory, version, size, piece, count):
    context = settings(ssl.Purpose.SERVER_AUTH, directory, version)
    if has_client(directory):
        context.load_cert_chain(directory + "/client.pem", directory + "/client.key")
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    session = talk(context, port, data, piece, None)
    failures = []

    def run():
        try:
            talk(context, port, data, piece, session)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def serve(context, tcp, names):
    try:
        conn = context.wrap_socket(tcp, server_side=True, suppress_ragged_eofs=False)
        while data := conn.recv(WINDOW):
            conn.sendall(data)
        subject = dict(part[0] for part in (conn.getpeercert() or {}).get("subject", ()))
        line = f"{describe(conn)} {names.get(conn, '-')} {subject.get('commonName', '-')}"
        conn.unwrap()
        tcp.close()
    except Exception as error:
        line = f"failed: {error}"
    tell(line)


def server(directory, version):
    names = {}
    context = settings(ssl.Purpose.CLIENT_AUTH, directory, version)
    context.load_cert_chain(directory + "/server.pem", directory + "/server.key")
    context.sni_callback = lambda conn, name, _: names.update({conn: name})
    if has_client(directory):
        context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    tell(f"port {listener.getsockname()[1]}")

    def accept():
        while True:
            tcp, _ = listener.accept()
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(context, tcp, names), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if sys.argv[1] == "client":
    client(int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:8]))
else:
    server(sys.argv[2], sys.argv[3])
