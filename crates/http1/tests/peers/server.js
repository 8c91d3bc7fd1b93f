// Says what node has read: method, target and body of each request, in a field of the answer.
const http = require('http');

const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
        const body = Buffer.concat(parts).toString('hex');
        response.setHeader('X-Seen', `${request.method} ${request.url} ${body}`);
        response.end();
    });
});
// The client sends its end at once, and waits for the answers.
server.httpAllowHalfOpen = true;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
