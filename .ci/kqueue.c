/* kqueue(2) on Linux, for the tests of the kqueue selector: as much of it as windlass uses, with
 * macOS' structure and rules, on epoll(7). Every filter is a registration of its own, on a duplicate
 * of its descriptor: a filter that is not deleted before its descriptor is closed keeps the file
 * open, so that the tests of closing fail. Built by .ci/run:
 *
 *     cc -shared -fPIC -O2 -Wall -Werror -o libkqueue.so .ci/kqueue.c -lpthread
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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

enum { READ = -1, WRITE = -2, USER = -10 };
enum { ADD = 1, DELETE = 2, ONESHOT = 0x10, CLEAR = 0x20, RECEIPT = 0x40, OOBAND = 0x2000,
       ERROR = 0x4000, END = 0x8000 };
static const uint32_t TRIGGER = 0x01000000;

/* A knote; its duplicate (of a user event: its eventfd) is registered. */
struct note {
    int queue, fd;
    struct kevent event;
    struct note *next;
};

enum { LISTS = 1 << 14 };
static struct note *lists[LISTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A queue that had the number before has been closed without a word to us. */
int kqueue(void)
{
    int queue = epoll_create1(0);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LISTS; i++)
        for (struct note **at = &lists[i], *note; (note = *at);)
            if (note->queue == queue) {
                close(note->fd);
                *at = note->next;
                free(note);
            } else
                at = &note->next;
    pthread_mutex_unlock(&lock);
    return queue;
}

static uint32_t bits(const struct kevent *event)
{
    uint32_t mode = (event->flags & CLEAR ? EPOLLET : 0) | (event->flags & ONESHOT ? EPOLLONESHOT : 0);
    if (event->filter == WRITE)
        return EPOLLOUT | mode;
    return EPOLLIN | EPOLLPRI | EPOLLRDHUP | mode;
}

static int apply(int queue, const struct kevent *change)
{
    struct note **list = &lists[(change->ident * 31 + queue) % LISTS], **at = list, *note;
    while ((note = *at) && !(note->queue == queue && note->event.ident == change->ident
                             && note->event.filter == change->filter))
        at = &note->next;
    if (change->flags & DELETE) {
        if (!note)
            return ENOENT;
        epoll_ctl(queue, EPOLL_CTL_DEL, note->fd, NULL);
        close(note->fd);
        *at = note->next;
        free(note);
        return 0;
    }
    if (!note) {
        if (!(change->flags & ADD))
            return ENOENT;
        int user = change->filter == USER;
        int fd = user ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
                      : fcntl((int)change->ident, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return errno;
        note = malloc(sizeof *note);
        *note = (struct note){queue, fd, *change, *list};
        struct epoll_event event = {bits(change), {.ptr = note}};
        if (epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event)) {
            int error = errno;
            close(fd);
            free(note);
            return error;
        }
        *list = note;
    } else {
        /* Its flags stay; its condition is looked at again. */
        note->event.udata = change->udata;
        struct epoll_event event = {bits(&note->event), {.ptr = note}};
        if (change->filter != USER && epoll_ctl(queue, EPOLL_CTL_MOD, note->fd, &event))
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
    if (event.filter == READ && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        event.flags |= END;
    if (event.filter == WRITE && events & (EPOLLHUP | EPOLLERR))
        event.flags |= END;
    if (events & EPOLLERR)
        event.fflags = ECONNRESET;
    if (events & EPOLLPRI)
        event.flags |= OOBAND;
    return event;
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
        if (note->event.flags & ONESHOT) {
            struct kevent delete = note->event;
            delete.flags = DELETE;
            apply(queue, &delete);
        }
    }
    pthread_mutex_unlock(&lock);
    return count;
}
