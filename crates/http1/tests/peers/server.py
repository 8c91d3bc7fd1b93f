# Says what h11 has read: method, target and body of each request, in a field of the answer.
import socketserver

import h11


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        connection = h11.Connection(h11.SERVER)
        request, body = None, b""
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            if event is h11.NEED_DATA:
                connection.receive_data(self.request.recv(65536))
            elif type(event) is h11.Request:
                request, body = event, b""
            elif type(event) is h11.Data:
                body += bytes(event.data)
            elif type(event) is h11.EndOfMessage:
                seen = request.method + b" " + request.target + b" " + body.hex().encode()
                seen = seen.strip()
                fields = [("X-Seen", seen), ("Content-Length", "0")]
                answer = h11.Response(status_code=200, headers=fields)
                self.request.sendall(connection.send(answer))
                self.request.sendall(connection.send(h11.EndOfMessage()) or b"")
                try:
                    connection.start_next_cycle()
                except h11.LocalProtocolError:
                    return
            else:
                return


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


with Server(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
