/* Time, threads, files and memory; included by libc.h. */
#ifndef FORGE_MACOS_LIBC_SYSTEM_H
#define FORGE_MACOS_LIBC_SYSTEM_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- time ---- */

struct tm {
  int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_wday, tm_yday, tm_isdst;
  long tm_gmtoff;
  char *tm_zone;
};
struct timespec {
  time_t tv_sec;
  long tv_nsec;
};
struct timeval {
  time_t tv_sec;
  int tv_usec;
};
typedef int clockid_t;
#define CLOCKS_PER_SEC 1000000
#define TIME_UTC 1
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC_RAW 4
#define CLOCK_MONOTONIC 6
clock_t clock(void);
time_t time(time_t *time);
double difftime(time_t end, time_t begin);
time_t mktime(struct tm *time);
char *asctime(const struct tm *time);
char *ctime(const time_t *time);
struct tm *gmtime(const time_t *time);
struct tm *localtime(const time_t *time);
size_t strftime(char *text, size_t n, const char *format, const struct tm *time);
size_t strftime_l(char *text, size_t n, const char *format, const struct tm *time,
                  locale_t locale);
int timespec_get(struct timespec *time, int base);
int clock_gettime(clockid_t clock, struct timespec *time);
int nanosleep(const struct timespec *time, struct timespec *rest);

/* ---- errors ---- */

int *__error(void);
#define errno (*__error())

/* ---- threads ---- */

typedef struct _opaque_pthread_t *pthread_t;
typedef unsigned long pthread_key_t;
typedef struct {
  long sig;
  char opaque[56];
} pthread_mutex_t, pthread_attr_t;
typedef struct {
  long sig;
  char opaque[40];
} pthread_cond_t;
typedef struct {
  long sig;
  char opaque[8];
} pthread_mutexattr_t, pthread_condattr_t, pthread_once_t;
#define PTHREAD_MUTEX_INITIALIZER {0x32AAABA7, {0}}
#define PTHREAD_COND_INITIALIZER {0x3CB0B1BB, {0}}
#define PTHREAD_ONCE_INIT {0x30B1BCBA, {0}}
#define PTHREAD_MUTEX_RECURSIVE 2
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument);
int pthread_join(pthread_t thread, void **result);
int pthread_detach(pthread_t thread);
pthread_t pthread_self(void);
int pthread_equal(pthread_t a, pthread_t b);
int pthread_once(pthread_once_t *once, void (*function)(void));
int pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
void *pthread_getspecific(pthread_key_t key);
int pthread_setspecific(pthread_key_t key, const void *value);
int pthread_mutexattr_init(pthread_mutexattr_t *attributes);
int pthread_mutexattr_settype(pthread_mutexattr_t *attributes, int type);
int pthread_mutexattr_destroy(pthread_mutexattr_t *attributes);
int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int pthread_mutex_destroy(pthread_mutex_t *mutex);
int pthread_mutex_lock(pthread_mutex_t *mutex);
int pthread_mutex_trylock(pthread_mutex_t *mutex);
int pthread_mutex_unlock(pthread_mutex_t *mutex);
int pthread_cond_destroy(pthread_cond_t *condition);
int pthread_cond_signal(pthread_cond_t *condition);
int pthread_cond_broadcast(pthread_cond_t *condition);
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until);
int sched_yield(void);

/* ---- files, memory, the system ---- */

struct stat {
  dev_t st_dev;
  mode_t st_mode;
  nlink_t st_nlink;
  uint64_t st_ino;
  uid_t st_uid;
  gid_t st_gid;
  dev_t st_rdev;
  struct timespec st_atimespec, st_mtimespec, st_ctimespec, st_birthtimespec;
  off_t st_size;
  int64_t st_blocks;
  int32_t st_blksize;
  uint32_t st_flags, st_gen;
  int32_t st_lspare;
  int64_t st_qspare[2];
};
#define S_ISREG(mode) (((mode) & 0170000) == 0100000)
#define O_RDONLY 0
#define O_CLOEXEC 0x01000000
int open(const char *path, int flags, ...);
int close(int file);
ssize_t read(int file, void *to, size_t bytes);
int fstat(int file, struct stat *status);
#define _SC_PAGESIZE 29
long sysconf(int name);

#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_FIXED 0x10
#define MAP_ANON 0x1000
#define MAP_ANONYMOUS MAP_ANON
#define MAP_FAILED ((void *)-1)
#define MADV_WILLNEED 3
#define MADV_DONTNEED 4
int mprotect(void *at, size_t bytes, int protection);
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int munmap(void *at, size_t bytes);
int madvise(void *at, size_t bytes, int advice);

typedef uint32_t sigset_t;
union sigval {
  int sival_int;
  void *sival_ptr;
};
typedef struct {
  int si_signo, si_errno, si_code;
  pid_t si_pid;
  uid_t si_uid;
  int si_status;
  void *si_addr;
  union sigval si_value;
  long si_band;
  unsigned long si_padding[7];
} siginfo_t;
struct sigaction {
  union {
    void (*__sa_handler)(int signal);
    void (*__sa_sigaction)(int signal, siginfo_t *info, void *context);
  } __sigaction_u;
  sigset_t sa_mask;
  int sa_flags;
};
#define sa_handler __sigaction_u.__sa_handler
#define sa_sigaction __sigaction_u.__sa_sigaction
#define SA_ONSTACK 0x0001
#define SA_SIGINFO 0x0040
#define SIG_DFL ((void (*)(int))0)
#define SIG_IGN ((void (*)(int))1)
#define SIGBUS 10
int sigemptyset(sigset_t *signals);
int sigaction(int signal, const struct sigaction *action, struct sigaction *previous);

#define RTLD_NOW 0x2
#define RTLD_NOLOAD 0x10
#define RTLD_NODELETE 0x80
typedef struct {
  const char *dli_fname;
  void *dli_fbase;
  const char *dli_sname;
  void *dli_saddr;
} Dl_info;
int dladdr(const void *address, Dl_info *info);
void *dlopen(const char *path, int mode);

struct rusage {
  struct timeval ru_utime, ru_stime;
  long ru_maxrss, ru_ixrss, ru_idrss, ru_isrss, ru_minflt, ru_majflt, ru_nswap, ru_inblock,
      ru_oublock, ru_msgsnd, ru_msgrcv, ru_nsignals, ru_nvcsw, ru_nivcsw;
};
#define RUSAGE_SELF 0
int getrusage(int who, struct rusage *usage);
int sysctlbyname(const char *name, void *value, size_t *bytes, void *from, size_t from_bytes);

#ifdef __cplusplus
}
#endif

#endif
