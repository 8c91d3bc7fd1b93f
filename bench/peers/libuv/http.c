/* An HTTP server of one file that reads through libuv's pool: http PORT FILE DIRECT. It answers
 * each GET with the range of its field Range, whose blocks are aligned. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

enum { BLOCK = 4096, HEAD = 2048 };

struct client {
    uv_tcp_t socket;
    uv_fs_t read;
    uv_write_t write;
    char head[HEAD];
    size_t filled;
    char answer[256];
    char *space;
    long long first, last;
    int is_reading, is_closed;
};

static uv_file file;
static long long bytes;

static void closed(uv_handle_t *handle) {
    struct client *client = handle->data;
    client->is_closed = 1;
    if (client->is_reading) return; /* a thread writes into its memory */
    free(client->space);
    free(client);
}

static void end(struct client *client) {
    uv_handle_t *socket = (uv_handle_t *)&client->socket;
    if (!uv_is_closing(socket)) uv_close(socket, closed);
}

static void on_written(uv_write_t *request, int status) {
    if (status < 0) end(request->data);
}

static void on_file(uv_fs_t *request) {
    struct client *client = request->data;
    long long len = client->last - client->first + 1;
    uv_fs_req_cleanup(request);
    client->is_reading = 0;
    if (client->is_closed) {
        closed((uv_handle_t *)&client->socket);
        return;
    }
    if (request->result != len || uv_is_closing((uv_handle_t *)&client->socket)) {
        end(client);
        return;
    }
    int head = snprintf(client->answer, sizeof client->answer,
                        "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\n"
                        "Content-Length: %lld\r\nContent-Range: bytes %lld-%lld/%lld\r\n\r\n",
                        len, client->first, client->last, bytes);
    uv_buf_t bufs[2] = {uv_buf_init(client->answer, (unsigned)head),
                        uv_buf_init(client->space, (unsigned)len)};
    /* The socket takes it whole, as a rule; the rest is written when there is room. */
    int sent = uv_try_write((uv_stream_t *)&client->socket, bufs, 2);
    if (sent == head + len) return;
    if (sent < 0 && sent != UV_EAGAIN) {
        end(client);
        return;
    }
    size_t skip = sent > 0 ? (size_t)sent : 0;
    for (int i = 0; i < 2; i++) {
        size_t part = skip < bufs[i].len ? skip : bufs[i].len;
        bufs[i].base += part;
        bufs[i].len -= part;
        skip -= part;
    }
    client->write.data = client;
    uv_stream_t *socket = (uv_stream_t *)&client->socket;
    if (uv_write(&client->write, socket, bufs, 2, on_written) != 0) end(client);
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct client *client = handle->data;
    (void)suggested;
    *buf = uv_buf_init(client->head + client->filled, (unsigned)(HEAD - 1 - client->filled));
}

static void on_data(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
    struct client *client = stream->data;
    (void)buf;
    if (count == 0) return;
    if (count < 0) {
        end(client);
        return;
    }
    client->filled += (size_t)count;
    client->head[client->filled] = 0;
    if (strstr(client->head, "\r\n\r\n") == NULL) {
        if (client->filled == HEAD - 1) end(client);
        return;
    }
    client->filled = 0;
    char *range = strcasestr(client->head, "\r\nRange: bytes=");
    if (strncmp(client->head, "GET ", 4) != 0 || range == NULL ||
        sscanf(range + 15, "%lld-%lld", &client->first, &client->last) != 2 ||
        client->first % BLOCK != 0 || client->last - client->first != BLOCK - 1) {
        end(client);
        return;
    }
    uv_buf_t space = uv_buf_init(client->space, BLOCK);
    client->read.data = client;
    if (uv_fs_read(stream->loop, &client->read, file, &space, 1, client->first, on_file) != 0) {
        end(client);
        return;
    }
    client->is_reading = 1;
}

static void on_client(uv_stream_t *listener, int status) {
    if (status < 0) return;
    struct client *client = calloc(1, sizeof *client);
    if (!client || posix_memalign((void **)&client->space, BLOCK, BLOCK) != 0) exit(1);
    uv_tcp_init(listener->loop, &client->socket);
    client->socket.data = client;
    if (uv_accept(listener, (uv_stream_t *)&client->socket) != 0) exit(1);
    uv_tcp_nodelay(&client->socket, 1);
    uv_read_start((uv_stream_t *)&client->socket, on_room, on_data);
}

int main(int argc, char **argv) {
    struct stat stat;
    struct sockaddr_in address;
    uv_tcp_t listener;
    if (argc != 4) return 2;
    file = open(argv[2], O_RDONLY | (atoi(argv[3]) ? O_DIRECT : 0));
    if (file < 0 || fstat(file, &stat) != 0) return 1;
    bytes = stat.st_size;
    uv_ip4_addr("127.0.0.1", atoi(argv[1]), &address);
    uv_tcp_init(uv_default_loop(), &listener);
    if (uv_tcp_bind(&listener, (struct sockaddr *)&address, 0) != 0) return 1;
    if (uv_listen((uv_stream_t *)&listener, 4096, on_client) != 0) return 1;
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
