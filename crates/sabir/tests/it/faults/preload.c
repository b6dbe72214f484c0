/* Stands between a program and the C library, and has calls fail, be slow or short, and clocks be wrong, as the environment says:
 *
 * FAULTS_FAIL=CALL:ERROR:NTH  that call fails with that number, at its n-th time in the process
 * FAULTS_TOLD=FILE            the file that is made when it did
 * FAULTS_SHORT=BYTES          no write takes more, and every third one is interrupted first
 * FAULTS_SLOW=FILE            what writes to a journal takes as many milliseconds as the file says
 * FAULTS_WALL=FILE            the wall clock is so many seconds off as the file says, whenever it is read
 * FAULTS_STEADY=FILE          so is the clock that only goes forward
 * FAULTS_NO_STEADY=FILE       it cannot be read while the file has a number, which makes a Rust program panic
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(result, name, ...) ((result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static long read_number(const char *name) {
    const char *path = getenv(name);
    char text[32] = {0};
    int before = errno, file;
    if (!path || (file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)) < 0) {
        errno = before;
        return 0;
    }
    syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return atol(text);
}

/* The error that this call is to have, or 0. */
static int fault(const char *call) {
    static int count;
    const char *wish = getenv("FAULTS_FAIL");
    size_t length = strlen(call);
    if (!wish || strncmp(wish, call, length) || wish[length] != ':') return 0;
    int error = atoi(wish + length + 1);
    const char *nth = strchr(wish + length + 1, ':');
    if (!nth || __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) != atoi(nth + 1)) return 0;
    const char *told = getenv("FAULTS_TOLD");
    if (told) {
        int file = syscall(SYS_openat, AT_FDCWD, told, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (file >= 0) syscall(SYS_close, file);
    }
    return error;
}

static void slow(void) {
    long time = read_number("FAULTS_SLOW");
    struct timespec rest = {time / 1000, (time % 1000) * 1000000L};
    if (time) syscall(SYS_nanosleep, &rest, NULL);
}

/* How much a write takes; 0: it is interrupted. */
static size_t share(size_t bytes) {
    static int count;
    const char *wish = getenv("FAULTS_SHORT");
    size_t most = wish ? atoi(wish) : 0;
    /* So few bytes are the number that wakes somebody, which comes whole. */
    if (!most || bytes <= 8) return bytes ? bytes : 1;
    if (__atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) % 3 == 0) return 0;
    return bytes < most ? bytes : most;
}

#define FAIL(call)                  \
    do {                            \
        int error_ = fault(call);   \
        if (error_) {               \
            errno = error_;         \
            return -1;              \
        }                           \
    } while (0)

#define SHORT(bytes)                        \
    size_t share_ = share(bytes);           \
    if (!share_) {                          \
        errno = EINTR;                      \
        return -1;                          \
    }                                       \
    if (bytes > share_) bytes = share_

ssize_t write(int file, const void *from, size_t bytes) {
    FAIL("write");
    SHORT(bytes);
    return REAL(ssize_t, "write", int, const void *, size_t)(file, from, bytes);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at) {
    FAIL("pwrite64");
    slow();
    SHORT(bytes);
    return REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t)(file, from, bytes, at);
}

int fsync(int file) {
    FAIL("fsync");
    slow();
    return REAL(int, "fsync", int)(file);
}

int fdatasync(int file) {
    FAIL("fdatasync");
    slow();
    return REAL(int, "fdatasync", int)(file);
}

int ftruncate64(int file, off_t length) {
    FAIL("ftruncate64");
    return REAL(int, "ftruncate64", int, off_t)(file, length);
}

int pipe2(int ends[2], int flags) {
    FAIL("pipe2");
    return REAL(int, "pipe2", int *, int)(ends, flags);
}

pid_t fork(void) {
    FAIL("fork");
    return REAL(pid_t, "fork", void)();
}

int posix_spawnp(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const arguments[], char *const environment[]) {
    int error = fault("posix_spawnp");
    if (error) return error;
    return REAL(int, "posix_spawnp", pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                char *const[], char *const[])(child, program, actions, how, arguments, environment);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *with) {
    int error = fault("pthread_create");
    if (error) return error;
    return REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)(thread, how, work, with);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock == CLOCK_MONOTONIC && read_number("FAULTS_NO_STEADY")) {
        errno = EINVAL;
        return -1;
    }
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && clock == CLOCK_REALTIME) now->tv_sec += read_number("FAULTS_WALL");
    if (!result && clock == CLOCK_MONOTONIC) now->tv_sec += read_number("FAULTS_STEADY");
    return result;
}
