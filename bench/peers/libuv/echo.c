/* An echo server on libuv: echo PORT. All connections read into one buffer. A write that has to
 * wait owns a copy. */
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct connection {
    uv_tcp_t tcp;
};

static char space[65536];

struct answer {
    uv_write_t write;
    char bytes[];
};

static void on_closed(uv_handle_t *handle) { free(handle->data); }

static void end(struct connection *c) {
    if (!uv_is_closing((uv_handle_t *)&c->tcp)) uv_close((uv_handle_t *)&c->tcp, on_closed);
}

static void on_space(uv_handle_t *handle, size_t wanted, uv_buf_t *buf) {
    (void)handle, (void)wanted;
    *buf = uv_buf_init(space, sizeof space);
}

static void on_written(uv_write_t *write, int status) {
    if (status < 0) end(write->handle->data);
    free(write->data);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
    if (count < 0) {
        end(stream->data);
        return;
    }
    if (count == 0) return;
    /* What goes out at once needs no copy. */
    uv_buf_t out = uv_buf_init(buf->base, (unsigned)count);
    int sent = uv_try_write(stream, &out, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        end(stream->data);
        return;
    }
    size_t done = sent > 0 ? (size_t)sent : 0, left = (size_t)count - done;
    if (left == 0) return;
    struct answer *answer = malloc(sizeof *answer + left);
    if (!answer) abort();
    memcpy(answer->bytes, buf->base + done, left);
    answer->write.data = answer;
    out = uv_buf_init(answer->bytes, (unsigned)left);
    if (uv_write(&answer->write, stream, &out, 1, on_written) != 0) {
        free(answer);
        end(stream->data);
    }
}

static void on_connection(uv_stream_t *listener, int status) {
    if (status < 0) return;
    struct connection *c = malloc(sizeof *c);
    if (!c) abort();
    uv_tcp_init(listener->loop, &c->tcp);
    c->tcp.data = c;
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) != 0) {
        end(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    uv_read_start((uv_stream_t *)&c->tcp, on_space, on_read);
}

int main(int argc, char **argv) {
    uv_tcp_t listener;
    struct sockaddr_in address;
    if (argc != 2 || uv_ip4_addr("127.0.0.1", atoi(argv[1]), &address) != 0) return 2;
    uv_tcp_init(uv_default_loop(), &listener);
    if (uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0) != 0) return 1;
    if (uv_listen((uv_stream_t *)&listener, 4096, on_connection) != 0) return 1;
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
