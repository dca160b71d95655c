/* Counts what a process writes to files, syncs and renames, and kills it (SIGKILL) before the call that it is armed for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long armed = -1, made = 0;

void arm(long number) { made = 0; armed = number; }
long calls(void) { return made; }

static void point(void) {
    if (armed >= 0 && __sync_add_and_fetch(&made, 1) == armed) kill(getpid(), SIGKILL);
}

static void point_of(int fd) {
    struct stat found;
    if (armed >= 0 && !fstat(fd, &found) && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) point();
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) { REAL(write); point_of(fd); return real(fd, data, size); }
ssize_t writev(int fd, const struct iovec *data, int count) { REAL(writev); point_of(fd); return real(fd, data, count); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { REAL(pwrite64); point_of(fd); return real(fd, data, size, at); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); point_of(fd); return real(fd, size); }
int fsync(int fd) { REAL(fsync); point_of(fd); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); point_of(fd); return real(fd); }
int rename(const char *from, const char *to) { REAL(rename); point(); return real(from, to); }
