/* kqueue(2) on Linux, for the tests of the kqueue selector: as much of it as windlass uses, with
 * macOS' structure and rules, on epoll(7). Every filter is a registration of its own, on a
 * duplicate of its descriptor. Where epoll differs from what filt_soread, filt_sowrite and
 * pipe_kqfilter do in XNU and FreeBSD, they are followed:
 *
 *   - closing a descriptor ends its filters, even if another descriptor has the file open: so this
 *     file has a close(2) of its own;
 *   - a socket that can send no more, also by its own shutdown(2), is at its end for EVFILT_WRITE;
 *   - each acknowledgement wakes EVFILT_WRITE of a TCP socket that has room (EV_CLEAR does not keep
 *     it from that): here, where data has come, an acknowledgement has;
 *   - a process that has ended refuses EVFILT_PROC with ESRCH, though it was not reaped;
 *   - a pipe without a reader refuses EVFILT_WRITE with EPIPE; the filter of a direction that an
 *     end of a pipe does not have is accepted, and never tells anything.
 *
 * Built by .ci/run:
 *
 *     cc -shared -fPIC -O2 -Wall -Werror -o libkqueue.so .ci/kqueue.c -lpthread
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct kevent {
    uintptr_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};
_Static_assert(sizeof(struct kevent) == 32, "the layout of macOS");

enum { READ = -1, WRITE = -2, PROC = -5, USER = -10 };
enum { ADD = 1, DELETE = 2, ONESHOT = 0x10, CLEAR = 0x20, RECEIPT = 0x40, OOBAND = 0x2000,
       ERROR = 0x4000, END = 0x8000 };
static const uint32_t TRIGGER = 0x01000000, EXIT = 0x80000000;

/* A knote; its duplicate (of a user event: its eventfd, of a process: its pidfd) is registered,
 * unless it is mute: -1. */
struct note {
    int queue, fd;
    /* A forked child has the numbers, but no queue. */
    pid_t owner;
    enum { OTHER, STREAM, TCP } kind;
    struct kevent event;
    struct note *next;
};

enum { LISTS = 1 << 14 };
/* By their descriptor. */
static struct note *lists[LISTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Descriptors that are queues: close(2) removes the notes in them. */
static char is_queue[LISTS];

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* A fork waits for the thread that has the lock: in the child that thread does not exist. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

static int really_close(int fd)
{
    return syscall(SYS_close, fd);
}

/* Ends the note that stands at `at`. */
static void end(struct note **at)
{
    struct note *note = *at;
    if (note->fd >= 0) {
        epoll_ctl(note->queue, EPOLL_CTL_DEL, note->fd, NULL);
        really_close(note->fd);
    }
    *at = note->next;
    free(note);
}

/* Ends everything in a queue of ours. */
static void empty(int queue, pid_t self)
{
    for (int i = 0; i < LISTS; i++)
        for (struct note **at = &lists[i], *note; (note = *at);)
            if (note->queue == queue && note->owner == self)
                end(at);
            else
                at = &note->next;
}

/* Ends the filters of a descriptor, in every queue. (The number of a process may be the same.) */
int close(int fd)
{
    if (fd >= 0 && is_queue[fd % LISTS]) {
        pthread_mutex_lock(&lock);
        empty(fd, getpid());
        is_queue[fd % LISTS] = 0;
        pthread_mutex_unlock(&lock);
    }
    if (fd >= 0 && lists[fd % LISTS]) {
        pid_t self = getpid();
        pthread_mutex_lock(&lock);
        for (struct note **at = &lists[fd % LISTS], *note; (note = *at);)
            if (note->event.filter != USER && note->event.filter != PROC
                && note->event.ident == (uintptr_t)fd && note->owner == self)
                end(at);
            else
                at = &note->next;
        pthread_mutex_unlock(&lock);
    }
    return really_close(fd);
}

/* What a queue that had the number before has left is gone with it. */
int kqueue(void)
{
    int queue = epoll_create1(0);
    pid_t self = getpid();
    pthread_mutex_lock(&lock);
    empty(queue, self);
    if (queue >= 0)
        is_queue[queue % LISTS] = 1;
    pthread_mutex_unlock(&lock);
    return queue;
}

/* A descriptor that is readable when the process has ended; -1 and ESRCH if it has already. */
static int process(pid_t pid)
{
    int fd = syscall(SYS_pidfd_open, pid, 0);
    struct pollfd asked = {fd, POLLIN, 0};
    if (fd >= 0 && poll(&asked, 1, 0) > 0) {
        really_close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

static int kind_of(int fd)
{
    int type = 0, domain = 0;
    socklen_t len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_STREAM)
        return OTHER;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    return domain == AF_INET || domain == AF_INET6 ? TCP : STREAM;
}

/* A pipe's filter: an error, or whether it is mute. */
static int look_at_pipe(int fd, int16_t filter, int *mute)
{
    struct stat stat;
    if (fstat(fd, &stat) || !S_ISFIFO(stat.st_mode))
        return 0;
    int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
    *mute = mode == (filter == READ ? O_WRONLY : O_RDONLY);
    struct pollfd asked = {fd, POLLOUT, 0};
    if (filter == WRITE && !*mute && poll(&asked, 1, 0) > 0 && asked.revents & POLLERR)
        return EPIPE;
    return 0;
}

/* Whether the socket can send no more. An attempt to send nothing tells, and does nothing else. */
static int is_shut(const struct note *note)
{
    return note->kind != OTHER && send(note->fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL) < 0
           && errno == EPIPE;
}

static uint32_t bits(const struct kevent *event)
{
    uint32_t mode = event->flags & CLEAR ? EPOLLET : 0;
    if (event->flags & ONESHOT)
        mode |= EPOLLONESHOT;
    if (event->filter == WRITE)
        return EPOLLOUT | mode;
    return EPOLLIN | EPOLLPRI | EPOLLRDHUP | mode;
}

static int apply(int queue, const struct kevent *change)
{
    struct note **list = &lists[change->ident % LISTS], **at = list, *note;
    while ((note = *at) && !(note->queue == queue && note->event.ident == change->ident
                             && note->event.filter == change->filter))
        at = &note->next;
    if (change->flags & DELETE) {
        if (!note)
            return ENOENT;
        end(at);
        return 0;
    }
    if (!note) {
        if (!(change->flags & ADD))
            return ENOENT;
        int user = change->filter == USER, proc = change->filter == PROC, mute = 0;
        int error = user || proc ? 0 : look_at_pipe((int)change->ident, change->filter, &mute);
        if (error)
            return error;
        int fd = mute   ? -1
                 : user ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
                 : proc ? process((pid_t)change->ident)
                        : fcntl((int)change->ident, F_DUPFD_CLOEXEC, 0);
        if (fd < 0 && !mute)
            return errno;
        note = malloc(sizeof *note);
        *note = (struct note){.queue = queue,
                              .fd = fd,
                              .owner = getpid(),
                              .kind = user || proc ? OTHER : kind_of(fd),
                              .event = *change,
                              .next = *list};
        struct epoll_event event = {bits(change), {.ptr = note}};
        if (!mute && epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event)) {
            error = errno;
            really_close(fd);
            free(note);
            return error;
        }
        *list = note;
    } else {
        /* Its flags stay; its condition is looked at again. */
        note->event.udata = change->udata;
        struct epoll_event event = {bits(&note->event), {.ptr = note}};
        if (change->filter != USER && note->fd >= 0
            && epoll_ctl(queue, EPOLL_CTL_MOD, note->fd, &event))
            return errno;
    }
    if (change->filter == USER && change->fflags & TRIGGER)
        eventfd_write(note->fd, 1);
    return 0;
}

/* What an event of epoll is to a filter. */
static struct kevent told(struct note *note, uint32_t events)
{
    struct kevent event = note->event;
    event.flags &= CLEAR | ONESHOT;
    event.fflags = 0;
    event.data = 1;
    if (event.filter == PROC) {
        event.flags |= END;
        event.fflags = EXIT;
        return event;
    }
    if (event.filter == READ && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        event.flags |= END;
    if (event.filter == WRITE && (events & (EPOLLHUP | EPOLLERR) || is_shut(note)))
        event.flags |= END;
    if (events & EPOLLERR && note->kind != OTHER)
        event.fflags = ECONNRESET;
    if (events & EPOLLPRI)
        event.flags |= OOBAND;
    return event;
}

/* Data has arrived on a TCP socket. An acknowledgement of sent data arrives with it or right behind
 * it, so the filter for writes reports the room once more. */
static void acknowledge(const struct note *note)
{
    if (note->kind != TCP || note->event.filter != READ)
        return;
    struct note *writes = lists[note->event.ident % LISTS];
    while (writes && !(writes->queue == note->queue && writes->event.ident == note->event.ident
                       && writes->event.filter == WRITE))
        writes = writes->next;
    if (writes && writes->event.flags & CLEAR) {
        struct epoll_event event = {bits(&writes->event), {.ptr = writes}};
        epoll_ctl(note->queue, EPOLL_CTL_MOD, writes->fd, &event);
    }
}

int kevent(int queue, const struct kevent *changes, int change_count, struct kevent *events,
           int event_count, const struct timespec *timeout)
{
    int answers = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < change_count; i++) {
        struct kevent change = changes[i];
        int error = apply(queue, &change);
        if (!error && !(change.flags & RECEIPT))
            continue;
        if (answers == event_count) {
            if (!error)
                continue;
            pthread_mutex_unlock(&lock);
            errno = error;
            return -1;
        }
        events[answers] = change;
        events[answers].flags |= ERROR;
        events[answers++].data = error;
    }
    pthread_mutex_unlock(&lock);
    /* Receipts and errors come back at once. */
    if (answers || !event_count)
        return answers;
    struct epoll_event found[256];
    int most = event_count < 256 ? event_count : 256;
    int count = epoll_pwait2(queue, found, most, timeout, NULL);
    if (count < 0)
        return -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        struct note *note = found[i].data.ptr;
        events[i] = told(note, found[i].events);
        acknowledge(note);
        if (note->event.flags & ONESHOT) {
            struct kevent delete = note->event;
            delete.flags = DELETE;
            apply(queue, &delete);
        }
    }
    pthread_mutex_unlock(&lock);
    return count;
}
