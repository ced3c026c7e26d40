/* Each fsync, fdatasync and msync takes SLOW_SYNC_MS longer: a slow disk, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <sys/types.h>

static void slow(void) {
    const char *text = getenv("SLOW_SYNC_MS");
    long ms = text ? atol(text) : 0;
    struct timespec pause = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    slow();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    slow();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int msync(void *at, size_t length, int flags) {
    slow();
    return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync"))(at, length, flags);
}
