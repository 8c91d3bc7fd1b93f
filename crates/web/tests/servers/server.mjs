// A server of node that the client of windlass-web asks: its first line is its port.
import http from 'node:http';

let connections = 0;

const handlers = {
    '/connections': (request, response) => response.end(String(connections)),
    '/parts': (request, response) => {
        let left = 100;
        const next = () => {
            left -= 1;
            if (left === 0) return response.end('last\n');
            response.write(`part ${left}\n`);
            setImmediate(next);
        };
        next();
    },
    '/trailers': (request, response) => {
        response.setHeader('Trailer', 'X-Sum');
        response.write('with trailers');
        response.addTrailers({ 'X-Sum': '13' });
        response.end();
    },
    '/hints': (request, response) => {
        response.writeEarlyHints({ link: '</style.css>; rel=preload' });
        response.end('behind hints');
    },
    '/echo': (request, response) => request.pipe(response),
    '/half': (request, response) => {
        response.setHeader('Content-Length', 100);
        response.write('half', () => request.socket.destroy());
    },
    '/reset': (request) => request.socket.resetAndDestroy(),
    '/last': (request, response) => {
        response.setHeader('Connection', 'close');
        response.end('the last one');
    },
    '/until-close': (request, response) => {
        response.useChunkedEncodingByDefault = false;
        response.removeHeader('Transfer-Encoding');
        response.setHeader('Connection', 'close');
        response.write('all that ');
        response.end('follows');
    },
};

function serve(request, response) {
    const handler = handlers[request.url];
    if (handler) return handler(request, response);
    response.statusCode = 404;
    response.end('nothing here');
}

const server = http.createServer(serve);
server.on('connection', () => { connections += 1; });
// Its connections end while the next request is on its way.
const impatient = http.createServer({ keepAliveTimeout: 1, keepAliveTimeoutBuffer: 0 }, serve);
server.listen(0, '127.0.0.1', () => {
    impatient.listen(0, '127.0.0.1', () => {
        handlers['/impatient'] = (request, response) =>
            response.end(`127.0.0.1:${impatient.address().port}`);
        console.log(server.address().port);
    });
});
