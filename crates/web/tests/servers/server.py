# A server of HTTP/1.0 that the client of windlass-web asks: its first line is its port.
import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/until-close":
            self.send_response(200)
            self.end_headers()
            for part in range(100):
                self.wfile.write(b"part %d\n" % part)
        elif self.path == "/length":
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")
        elif self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "50")
            self.end_headers()
            self.wfile.write(b"hello")
        elif self.path == "/0.9":
            self.wfile.write(b"hello")
        else:
            self.send_error(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
