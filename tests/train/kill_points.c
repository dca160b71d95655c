/* Counts what a process changes on a disk: writes, syncs, renames, new and removed entries. Before the one that it is
 * armed for it kills the process (SIGKILL), or from there on says that the disk is full. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long armed = -1, made = 0;
static int full = 0;

void arm(long number, int says_full) { made = 0; full = says_full; armed = number; }
long calls(void) { return made; }

/* Whether the call may be made; what makes no room less is made even on a full disk. */
static int point(int takes_room) {
    if (armed < 0) return 1;
    long number = __sync_add_and_fetch(&made, 1);
    if (!full && number == armed) kill(getpid(), SIGKILL);
    if (!full || armed == 0 || number < armed || !takes_room) return 1;
    errno = ENOSPC;
    return 0;
}

static int point_of(int fd) {
    struct stat found;
    if (armed < 0 || fd <= 2 || fstat(fd, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 1;
    return point(1);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE mode_t mode = 0; if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

ssize_t write(int fd, const void *data, size_t size) { REAL(write); return point_of(fd) ? real(fd, data, size) : -1; }
ssize_t writev(int fd, const struct iovec *data, int count) { REAL(writev); return point_of(fd) ? real(fd, data, count) : -1; }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { REAL(pwrite64); return point_of(fd) ? real(fd, data, size, at) : -1; }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return point_of(fd) ? real(fd, size) : -1; }
int fsync(int fd) { REAL(fsync); return point_of(fd) ? real(fd) : -1; }
int fdatasync(int fd) { REAL(fdatasync); return point_of(fd) ? real(fd) : -1; }
int rename(const char *from, const char *to) { REAL(rename); return point(0) ? real(from, to) : -1; }
int link(const char *from, const char *to) { REAL(link); return point(1) ? real(from, to) : -1; }
int linkat(int a, const char *from, int b, const char *to, int flags) { REAL(linkat); return point(1) ? real(a, from, b, to, flags) : -1; }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return point(1) ? real(path, mode) : -1; }
int rmdir(const char *path) { REAL(rmdir); return point(0) ? real(path) : -1; }
int unlink(const char *path) { REAL(unlink); return point(0) ? real(path) : -1; }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); return point(0) ? real(at, path, flags) : -1; }
int open64(const char *path, int flags, ...) { REAL(open64); MODE; return !(flags & O_CREAT) || point(1) ? real(path, flags, mode) : -1; }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); MODE; return !(flags & O_CREAT) || point(1) ? real(at, path, flags, mode) : -1; }
