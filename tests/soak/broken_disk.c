/* While the file that BROKEN_DISK names exists, each pwrite fails with the error number in it, or where a second number
 * follows only one of fewer bytes than that: a disk that the system has made read-only, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>

static int broken(size_t bytes) {
    const char *path = getenv("BROKEN_DISK");
    FILE *file = path ? fopen(path, "r") : NULL;
    int number = 0;
    size_t below = 0;
    if (file) {
        int found = fscanf(file, "%d %zu", &number, &below);
        if (found < 1 || (found == 2 && bytes >= below)) number = 0;
        fclose(file);
    }
    return number;
}

#define BREAKABLE(name, at, type, size, bytes_of)                                                     \
    ssize_t name(int fd, type bytes, size count, at offset) {                               \
        int number = broken(bytes_of);                                                             \
        if (number) {                                                                       \
            errno = number;                                                                 \
            return -1;                                                                      \
        }                                                                                   \
        return ((ssize_t (*)(int, type, size, at))dlsym(RTLD_NEXT, #name))(fd, bytes, count, offset); \
    }

BREAKABLE(pwrite, off_t, const void *, size_t, count)
BREAKABLE(pwrite64, off64_t, const void *, size_t, count)
BREAKABLE(pwritev, off_t, const struct iovec *, int, 4096)
BREAKABLE(pwritev64, off64_t, const struct iovec *, int, 4096)
