/* Fails the n-th call of one kind below a directory, once: LD_PRELOAD of a broker under attack.

   FAULT_BELOW=/data FAULT_CALL=fdatasync FAULT_NUMBER=3 FAULT_ERROR=5 FAULT_LOG=/tmp/log */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int count;

static int fails(const char *call, const char *path)
{
    const char *below = getenv("FAULT_BELOW"), *kind = getenv("FAULT_CALL");
    if (!below || !kind || strcmp(kind, call) || strncmp(path, below, strlen(below)))
        return 0;
    if (__sync_add_and_fetch(&count, 1) != atoi(getenv("FAULT_NUMBER")))
        return 0;
    FILE *log = fopen(getenv("FAULT_LOG"), "a");
    if (log) {
        fprintf(log, "%s %s\n", call, path);
        fclose(log);
    }
    errno = atoi(getenv("FAULT_ERROR"));
    return 1;
}

static int fails_at(const char *call, int descriptor)
{
    char link[64], path[PATH_MAX] = "";
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size < 0)
        return 0;
    path[size] = 0;
    return fails(call, path);
}

#define NEXT(name) ((typeof(name) *)dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size)
{ return fails_at("write", fd) ? -1 : NEXT(write)(fd, data, size); }

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{ return fails_at("write", fd) ? -1 : NEXT(pwrite)(fd, data, size, at); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{ return fails_at("write", fd) ? -1 : NEXT(pwrite64)(fd, data, size, at); }

int fsync(int fd)
{ return fails_at("fsync", fd) ? -1 : NEXT(fsync)(fd); }

int fdatasync(int fd)
{ return fails_at("fdatasync", fd) ? -1 : NEXT(fdatasync)(fd); }

int syncfs(int fd)
{ return fails_at("syncfs", fd) ? -1 : NEXT(syncfs)(fd); }

int ftruncate64(int fd, off64_t size)
{ return fails_at("ftruncate", fd) ? -1 : NEXT(ftruncate64)(fd, size); }

int ftruncate(int fd, off_t size)
{ return fails_at("ftruncate", fd) ? -1 : NEXT(ftruncate)(fd, size); }

int posix_fallocate64(int fd, off64_t at, off64_t size)
{ return fails_at("fallocate", fd) ? errno : NEXT(posix_fallocate64)(fd, at, size); }

int posix_fallocate(int fd, off_t at, off_t size)
{ return fails_at("fallocate", fd) ? errno : NEXT(posix_fallocate)(fd, at, size); }

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && flags & MAP_SHARED && fails_at("mmap", fd))
        return MAP_FAILED;
    return NEXT(mmap)(at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset)
{
    if (fd >= 0 && flags & MAP_SHARED && fails_at("mmap", fd))
        return MAP_FAILED;
    return NEXT(mmap64)(at, size, protection, flags, fd, offset);
}

int rename(const char *from, const char *to)
{ return fails("rename", to) ? -1 : NEXT(rename)(from, to); }

int unlink(const char *path)
{ return fails("unlink", path) ? -1 : NEXT(unlink)(path); }

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    return flags & O_CREAT && fails("open", path) ? -1 : NEXT(open64)(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    return flags & O_CREAT && fails("open", path) ? -1 : NEXT(open)(path, flags, mode);
}
