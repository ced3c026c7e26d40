/* While the file that BROKEN_DISK names exists, each pwrite fails with the error number in it: a disk that the system
 * has made read-only, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>

static int broken(void) {
    const char *path = getenv("BROKEN_DISK");
    FILE *file = path ? fopen(path, "r") : NULL;
    int number = 0;
    if (file) {
        if (fscanf(file, "%d", &number) != 1) number = 0;
        fclose(file);
    }
    return number;
}

#define BREAKABLE(name, at, type, size)                                                     \
    ssize_t name(int fd, type bytes, size count, at offset) {                               \
        int number = broken();                                                              \
        if (number) {                                                                       \
            errno = number;                                                                 \
            return -1;                                                                      \
        }                                                                                   \
        return ((ssize_t (*)(int, type, size, at))dlsym(RTLD_NEXT, #name))(fd, bytes, count, offset); \
    }

BREAKABLE(pwrite, off_t, const void *, size_t)
BREAKABLE(pwrite64, off64_t, const void *, size_t)
BREAKABLE(pwritev, off_t, const struct iovec *, int)
BREAKABLE(pwritev64, off64_t, const struct iovec *, int)
