/* Random reads of 4 KiB through libuv's pool: files PATH DEPTH SECONDS DIRECT. Prints operations
 * and seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <uv.h>

enum { BLOCK = 4096 };

struct slot {
    uv_fs_t request;
    char *space;
};

static uv_file file;
static uint64_t blocks, done, random_state = 88172645463325252u, end_ns;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void start(struct slot *slot);

static void on_read(uv_fs_t *request) {
    struct slot *slot = request->data;
    if (request->result != BLOCK) exit(1);
    uv_fs_req_cleanup(request);
    done++;
    if (uv_hrtime() < end_ns) start(slot);
}

static void start(struct slot *slot) {
    uv_buf_t buf = uv_buf_init(slot->space, BLOCK);
    int64_t offset = (int64_t)(next_random() % blocks) * BLOCK;
    slot->request.data = slot;
    if (uv_fs_read(uv_default_loop(), &slot->request, file, &buf, 1, offset, on_read) != 0) exit(1);
}

int main(int argc, char **argv) {
    struct stat stat;
    if (argc != 5) return 2;
    file = open(argv[1], O_RDONLY | (atoi(argv[4]) ? O_DIRECT : 0));
    if (file < 0 || fstat(file, &stat) != 0) return 1;
    blocks = (uint64_t)stat.st_size / BLOCK;
    uint64_t begin = uv_hrtime();
    end_ns = begin + (uint64_t)(atof(argv[3]) * 1e9);
    int depth = atoi(argv[2]);
    for (int i = 0; i < depth; i++) {
        struct slot *slot = calloc(1, sizeof *slot);
        if (!slot || posix_memalign((void **)&slot->space, BLOCK, BLOCK) != 0) return 1;
        start(slot);
    }
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    printf("%llu %f\n", (unsigned long long)done, (double)(uv_hrtime() - begin) / 1e9);
    return 0;
}
