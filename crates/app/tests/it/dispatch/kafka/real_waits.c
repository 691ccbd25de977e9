// Loaded beside libfaketime, which changes the time and every function that waits until a time but C11's `cnd_timedwait`. By
// that Kafka's client waits: on a clock that is ahead it would wait for too long, on one that is behind not at all.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <threads.h>

typedef int waits(cnd_t *, mtx_t *, const struct timespec *);

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    waits *next = (waits *)dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec really = *until;
    really.tv_sec -= atoi(getenv("FAKETIME"));
    return next(condition, mutex, &really);
}
