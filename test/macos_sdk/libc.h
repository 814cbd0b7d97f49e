/*
 * The part of macOS's C library that libc++ and forge's sources name, for compiling where there is no
 * SDK: types, constants and prototypes as on arm64, from the POSIX and Darwin manuals. Every header
 * of the SDK that sdk.ts makes includes this one file.
 */
#ifndef FORGE_MACOS_LIBC_H
#define FORGE_MACOS_LIBC_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

typedef unsigned int __uint32_t;
typedef long ssize_t;
typedef long long off_t;
typedef unsigned short mode_t;
typedef int dev_t;
typedef unsigned short nlink_t;
typedef unsigned int uid_t;
typedef unsigned int gid_t;
typedef int pid_t;
typedef long time_t;
typedef unsigned long clock_t;
typedef int wint_t;
typedef unsigned int wctype_t;
typedef int wctrans_t;
typedef union {
  char bytes[128];
  long long align;
} __mbstate_t;
typedef __mbstate_t mbstate_t;

#define WEOF ((wint_t)-1)

/* ---- memory and strings ---- */

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *at, int value, size_t bytes);
void *memchr(const void *at, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
char *strcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t bytes);
char *strcat(char *to, const char *from);
char *strncat(char *to, const char *from, size_t bytes);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t bytes);
int strcoll(const char *a, const char *b);
size_t strxfrm(char *to, const char *from, size_t bytes);
char *strchr(const char *text, int c);
char *strrchr(const char *text, int c);
char *strstr(const char *text, const char *part);
char *strpbrk(const char *text, const char *set);
size_t strspn(const char *text, const char *set);
size_t strcspn(const char *text, const char *set);
char *strtok(char *text, const char *set);
size_t strlen(const char *text);
char *strerror(int code);
int strerror_r(int code, char *text, size_t bytes);
char *strdup(const char *text);

/* ---- stdlib ---- */

typedef struct {
  int quot, rem;
} div_t;
typedef struct {
  long quot, rem;
} ldiv_t;
typedef struct {
  long long quot, rem;
} lldiv_t;

#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 0x7fffffff
#define MB_CUR_MAX 4

void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *at, size_t bytes);
void free(void *at);
void *aligned_alloc(size_t alignment, size_t bytes);
int posix_memalign(void **at, size_t alignment, size_t bytes);
void abort(void) __attribute__((noreturn));
void exit(int code) __attribute__((noreturn));
void _Exit(int code) __attribute__((noreturn));
int atexit(void (*function)(void));
int at_quick_exit(void (*function)(void));
void quick_exit(int code) __attribute__((noreturn));
char *getenv(const char *name);
int system(const char *command);
double atof(const char *text);
int atoi(const char *text);
long atol(const char *text);
long long atoll(const char *text);
double strtod(const char *text, char **end);
float strtof(const char *text, char **end);
long double strtold(const char *text, char **end);
long strtol(const char *text, char **end, int base);
long long strtoll(const char *text, char **end, int base);
unsigned long strtoul(const char *text, char **end, int base);
unsigned long long strtoull(const char *text, char **end, int base);
int rand(void);
void srand(unsigned seed);
void *bsearch(const void *key, const void *base, size_t n, size_t bytes,
              int (*compare)(const void *, const void *));
void qsort(void *base, size_t n, size_t bytes, int (*compare)(const void *, const void *));
int abs(int x);
long labs(long x);
long long llabs(long long x);
div_t div(int a, int b);
ldiv_t ldiv(long a, long b);
lldiv_t lldiv(long long a, long long b);
int mblen(const char *text, size_t bytes);
int mbtowc(wchar_t *to, const char *text, size_t bytes);
int wctomb(char *to, wchar_t c);
size_t mbstowcs(wchar_t *to, const char *text, size_t n);
size_t wcstombs(char *to, const wchar_t *text, size_t n);

/* ---- stdio ---- */

typedef struct __sFILE FILE;
typedef off_t fpos_t;
extern FILE *__stdinp, *__stdoutp, *__stderrp;
#define stdin __stdinp
#define stdout __stdoutp
#define stderr __stderrp
#define EOF (-1)
#define BUFSIZ 1024
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2

FILE *fopen(const char *path, const char *mode);
FILE *freopen(const char *path, const char *mode, FILE *file);
FILE *fdopen(int file, const char *mode);
int fclose(FILE *file);
int fflush(FILE *file);
void setbuf(FILE *file, char *buffer);
int setvbuf(FILE *file, char *buffer, int mode, size_t bytes);
int fprintf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
int printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
int snprintf(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int sprintf(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int vfprintf(FILE *file, const char *format, va_list list);
int vprintf(const char *format, va_list list);
int vsnprintf(char *text, size_t bytes, const char *format, va_list list);
int vsprintf(char *text, const char *format, va_list list);
int vasprintf(char **text, const char *format, va_list list);
int fscanf(FILE *file, const char *format, ...);
int scanf(const char *format, ...);
int sscanf(const char *text, const char *format, ...);
int vfscanf(FILE *file, const char *format, va_list list);
int vscanf(const char *format, va_list list);
int vsscanf(const char *text, const char *format, va_list list);
int fgetc(FILE *file);
char *fgets(char *text, int n, FILE *file);
int fputc(int c, FILE *file);
int fputs(const char *text, FILE *file);
int getc(FILE *file);
int putc(int c, FILE *file);
int getchar(void);
int putchar(int c);
int puts(const char *text);
int ungetc(int c, FILE *file);
size_t fread(void *to, size_t bytes, size_t n, FILE *file);
size_t fwrite(const void *from, size_t bytes, size_t n, FILE *file);
int fgetpos(FILE *file, fpos_t *position);
int fsetpos(FILE *file, const fpos_t *position);
int fseek(FILE *file, long offset, int from);
long ftell(FILE *file);
int fseeko(FILE *file, off_t offset, int from);
off_t ftello(FILE *file);
void rewind(FILE *file);
void clearerr(FILE *file);
int feof(FILE *file);
int ferror(FILE *file);
void perror(const char *text);
int remove(const char *path);
int rename(const char *from, const char *to);
FILE *tmpfile(void);
char *tmpnam(char *name);

/* ---- characters ---- */

int isalnum(int c);
int isalpha(int c);
int isblank(int c);
int iscntrl(int c);
int isdigit(int c);
int isgraph(int c);
int islower(int c);
int isprint(int c);
int ispunct(int c);
int isspace(int c);
int isupper(int c);
int isxdigit(int c);
int tolower(int c);
int toupper(int c);
int isascii(int c);
#define _CTYPE_A 0x00000100L
#define _CTYPE_C 0x00000200L
#define _CTYPE_D 0x00000400L
#define _CTYPE_G 0x00000800L
#define _CTYPE_L 0x00001000L
#define _CTYPE_P 0x00002000L
#define _CTYPE_S 0x00004000L
#define _CTYPE_U 0x00008000L
#define _CTYPE_X 0x00010000L
#define _CTYPE_B 0x00020000L
#define _CTYPE_R 0x00040000L

/* ---- wide characters ---- */

struct tm;
int fwprintf(FILE *file, const wchar_t *format, ...);
int fwscanf(FILE *file, const wchar_t *format, ...);
int swprintf(wchar_t *text, size_t n, const wchar_t *format, ...);
int swscanf(const wchar_t *text, const wchar_t *format, ...);
int vfwprintf(FILE *file, const wchar_t *format, va_list list);
int vfwscanf(FILE *file, const wchar_t *format, va_list list);
int vswprintf(wchar_t *text, size_t n, const wchar_t *format, va_list list);
int vswscanf(const wchar_t *text, const wchar_t *format, va_list list);
int vwprintf(const wchar_t *format, va_list list);
int vwscanf(const wchar_t *format, va_list list);
int wprintf(const wchar_t *format, ...);
int wscanf(const wchar_t *format, ...);
wint_t fgetwc(FILE *file);
wchar_t *fgetws(wchar_t *text, int n, FILE *file);
wint_t fputwc(wchar_t c, FILE *file);
int fputws(const wchar_t *text, FILE *file);
int fwide(FILE *file, int mode);
wint_t getwc(FILE *file);
wint_t getwchar(void);
wint_t putwc(wchar_t c, FILE *file);
wint_t putwchar(wchar_t c);
wint_t ungetwc(wint_t c, FILE *file);
double wcstod(const wchar_t *text, wchar_t **end);
float wcstof(const wchar_t *text, wchar_t **end);
long double wcstold(const wchar_t *text, wchar_t **end);
long wcstol(const wchar_t *text, wchar_t **end, int base);
long long wcstoll(const wchar_t *text, wchar_t **end, int base);
unsigned long wcstoul(const wchar_t *text, wchar_t **end, int base);
unsigned long long wcstoull(const wchar_t *text, wchar_t **end, int base);
wchar_t *wcscpy(wchar_t *to, const wchar_t *from);
wchar_t *wcsncpy(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wcscat(wchar_t *to, const wchar_t *from);
wchar_t *wcsncat(wchar_t *to, const wchar_t *from, size_t n);
int wcscmp(const wchar_t *a, const wchar_t *b);
int wcscoll(const wchar_t *a, const wchar_t *b);
int wcsncmp(const wchar_t *a, const wchar_t *b, size_t n);
size_t wcsxfrm(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wcschr(const wchar_t *text, wchar_t c);
size_t wcscspn(const wchar_t *text, const wchar_t *set);
size_t wcslen(const wchar_t *text);
wchar_t *wcspbrk(const wchar_t *text, const wchar_t *set);
wchar_t *wcsrchr(const wchar_t *text, wchar_t c);
size_t wcsspn(const wchar_t *text, const wchar_t *set);
wchar_t *wcsstr(const wchar_t *text, const wchar_t *part);
wchar_t *wcstok(wchar_t *text, const wchar_t *set, wchar_t **state);
wchar_t *wmemchr(const wchar_t *at, wchar_t c, size_t n);
int wmemcmp(const wchar_t *a, const wchar_t *b, size_t n);
wchar_t *wmemcpy(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wmemmove(wchar_t *to, const wchar_t *from, size_t n);
wchar_t *wmemset(wchar_t *at, wchar_t c, size_t n);
size_t wcsftime(wchar_t *text, size_t n, const wchar_t *format, const struct tm *time);
wint_t btowc(int c);
int wctob(wint_t c);
int mbsinit(const mbstate_t *state);
size_t mbrlen(const char *text, size_t n, mbstate_t *state);
size_t mbrtowc(wchar_t *to, const char *text, size_t n, mbstate_t *state);
size_t wcrtomb(char *to, wchar_t c, mbstate_t *state);
size_t mbsrtowcs(wchar_t *to, const char **text, size_t n, mbstate_t *state);
size_t wcsrtombs(char *to, const wchar_t **text, size_t n, mbstate_t *state);
size_t mbsnrtowcs(wchar_t *to, const char **text, size_t bytes, size_t n, mbstate_t *state);
size_t wcsnrtombs(char *to, const wchar_t **text, size_t n, size_t bytes, mbstate_t *state);
int iswalnum(wint_t c);
int iswalpha(wint_t c);
int iswblank(wint_t c);
int iswcntrl(wint_t c);
int iswdigit(wint_t c);
int iswgraph(wint_t c);
int iswlower(wint_t c);
int iswprint(wint_t c);
int iswpunct(wint_t c);
int iswspace(wint_t c);
int iswupper(wint_t c);
int iswxdigit(wint_t c);
int iswctype(wint_t c, wctype_t type);
wctype_t wctype(const char *name);
wint_t towlower(wint_t c);
wint_t towupper(wint_t c);
wint_t towctrans(wint_t c, wctrans_t transformation);
wctrans_t wctrans(const char *name);

/* ---- locales ---- */

typedef struct _xlocale *locale_t;
struct lconv {
  char *decimal_point, *thousands_sep, *grouping, *int_curr_symbol, *currency_symbol,
      *mon_decimal_point, *mon_thousands_sep, *mon_grouping, *positive_sign, *negative_sign;
  char int_frac_digits, frac_digits, p_cs_precedes, p_sep_by_space, n_cs_precedes,
      n_sep_by_space, p_sign_posn, n_sign_posn, int_p_cs_precedes, int_n_cs_precedes,
      int_p_sep_by_space, int_n_sep_by_space, int_p_sign_posn, int_n_sign_posn;
};
#define LC_ALL 0
#define LC_COLLATE 1
#define LC_CTYPE 2
#define LC_MONETARY 3
#define LC_NUMERIC 4
#define LC_TIME 5
#define LC_MESSAGES 6
#define LC_COLLATE_MASK 1
#define LC_CTYPE_MASK 2
#define LC_MESSAGES_MASK 4
#define LC_MONETARY_MASK 8
#define LC_NUMERIC_MASK 16
#define LC_TIME_MASK 32
#define LC_ALL_MASK 63
#define LC_GLOBAL_LOCALE ((locale_t)-1)
#define NL_CAT_LOCALE 1
typedef struct __nl_cat_d *nl_catd;
nl_catd catopen(const char *name, int flag);
char *catgets(nl_catd catalogue, int set, int message, const char *otherwise);
int catclose(nl_catd catalogue);
struct lconv *localeconv(void);
struct lconv *localeconv_l(locale_t locale);
char *setlocale(int category, const char *name);
locale_t newlocale(int mask, const char *name, locale_t base);
locale_t uselocale(locale_t locale);
void freelocale(locale_t locale);
int ___mb_cur_max_l(locale_t locale);
#define MB_CUR_MAX_L(locale) (___mb_cur_max_l(locale))
int strcoll_l(const char *a, const char *b, locale_t locale);
size_t strxfrm_l(char *to, const char *from, size_t n, locale_t locale);
double strtod_l(const char *text, char **end, locale_t locale);
float strtof_l(const char *text, char **end, locale_t locale);
long double strtold_l(const char *text, char **end, locale_t locale);
long long strtoll_l(const char *text, char **end, int base, locale_t locale);
unsigned long long strtoull_l(const char *text, char **end, int base, locale_t locale);
int wcscoll_l(const wchar_t *a, const wchar_t *b, locale_t locale);
size_t wcsxfrm_l(wchar_t *to, const wchar_t *from, size_t n, locale_t locale);
wint_t btowc_l(int c, locale_t locale);
int wctob_l(wint_t c, locale_t locale);
size_t mbrlen_l(const char *text, size_t n, mbstate_t *state, locale_t locale);
size_t mbrtowc_l(wchar_t *to, const char *text, size_t n, mbstate_t *state, locale_t locale);
size_t wcrtomb_l(char *to, wchar_t c, mbstate_t *state, locale_t locale);
size_t mbsrtowcs_l(wchar_t *to, const char **text, size_t n, mbstate_t *state, locale_t locale);
size_t mbsnrtowcs_l(wchar_t *to, const char **text, size_t bytes, size_t n, mbstate_t *state,
                    locale_t locale);
size_t wcsnrtombs_l(char *to, const wchar_t **text, size_t n, size_t bytes, mbstate_t *state,
                    locale_t locale);
int mbtowc_l(wchar_t *to, const char *text, size_t n, locale_t locale);
int snprintf_l(char *text, size_t n, locale_t locale, const char *format, ...);
int asprintf_l(char **text, locale_t locale, const char *format, ...);
int sscanf_l(const char *text, locale_t locale, const char *format, ...);
int vsnprintf_l(char *text, size_t n, locale_t locale, const char *format, va_list list);
int vasprintf_l(char **text, locale_t locale, const char *format, va_list list);
int vsscanf_l(const char *text, locale_t locale, const char *format, va_list list);
int isalpha_l(int c, locale_t locale);
int isblank_l(int c, locale_t locale);
int iscntrl_l(int c, locale_t locale);
int isdigit_l(int c, locale_t locale);
int islower_l(int c, locale_t locale);
int isprint_l(int c, locale_t locale);
int ispunct_l(int c, locale_t locale);
int isspace_l(int c, locale_t locale);
int isupper_l(int c, locale_t locale);
int isxdigit_l(int c, locale_t locale);
int tolower_l(int c, locale_t locale);
int toupper_l(int c, locale_t locale);
int iswalpha_l(wint_t c, locale_t locale);
int iswblank_l(wint_t c, locale_t locale);
int iswcntrl_l(wint_t c, locale_t locale);
int iswdigit_l(wint_t c, locale_t locale);
int iswlower_l(wint_t c, locale_t locale);
int iswprint_l(wint_t c, locale_t locale);
int iswpunct_l(wint_t c, locale_t locale);
int iswspace_l(wint_t c, locale_t locale);
int iswupper_l(wint_t c, locale_t locale);
int iswxdigit_l(wint_t c, locale_t locale);
wint_t towlower_l(wint_t c, locale_t locale);
wint_t towupper_l(wint_t c, locale_t locale);

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

#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANON 0x1000
#define MAP_ANONYMOUS MAP_ANON
#define MAP_FAILED ((void *)-1)
#define MADV_WILLNEED 3
#define MADV_DONTNEED 4
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int munmap(void *at, size_t bytes);
int madvise(void *at, size_t bytes, int advice);

struct rusage {
  struct timeval ru_utime, ru_stime;
  long ru_maxrss, ru_ixrss, ru_idrss, ru_isrss, ru_minflt, ru_majflt, ru_nswap, ru_inblock,
      ru_oublock, ru_msgsnd, ru_msgrcv, ru_nsignals, ru_nvcsw, ru_nivcsw;
};
#define RUSAGE_SELF 0
int getrusage(int who, struct rusage *usage);
int sysctlbyname(const char *name, void *value, size_t *bytes, void *from, size_t from_bytes);

/* ---- mathematics ---- */

typedef float float_t;
typedef double double_t;
#define FP_NAN 1
#define FP_INFINITE 2
#define FP_ZERO 3
#define FP_NORMAL 4
#define FP_SUBNORMAL 5
#define HUGE_VAL __builtin_huge_val()
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN (-2147483647 - 1)

#define FORGE_MATH_1(name)        \
  double name(double x);          \
  float name##f(float x);         \
  long double name##l(long double x);
#define FORGE_MATH_2(name)              \
  double name(double x, double y);      \
  float name##f(float x, float y);      \
  long double name##l(long double x, long double y);
FORGE_MATH_1(acos)
FORGE_MATH_1(asin)
FORGE_MATH_1(atan)
FORGE_MATH_1(ceil)
FORGE_MATH_1(cos)
FORGE_MATH_1(cosh)
FORGE_MATH_1(exp)
FORGE_MATH_1(fabs)
FORGE_MATH_1(floor)
FORGE_MATH_1(log)
FORGE_MATH_1(log10)
FORGE_MATH_1(sin)
FORGE_MATH_1(sinh)
FORGE_MATH_1(sqrt)
FORGE_MATH_1(tan)
FORGE_MATH_1(tanh)
FORGE_MATH_1(acosh)
FORGE_MATH_1(asinh)
FORGE_MATH_1(atanh)
FORGE_MATH_1(cbrt)
FORGE_MATH_1(erf)
FORGE_MATH_1(erfc)
FORGE_MATH_1(exp2)
FORGE_MATH_1(expm1)
FORGE_MATH_1(lgamma)
FORGE_MATH_1(log1p)
FORGE_MATH_1(log2)
FORGE_MATH_1(logb)
FORGE_MATH_1(nearbyint)
FORGE_MATH_1(rint)
FORGE_MATH_1(round)
FORGE_MATH_1(tgamma)
FORGE_MATH_1(trunc)
FORGE_MATH_2(atan2)
FORGE_MATH_2(fmod)
FORGE_MATH_2(pow)
FORGE_MATH_2(copysign)
FORGE_MATH_2(fdim)
FORGE_MATH_2(fmax)
FORGE_MATH_2(fmin)
FORGE_MATH_2(hypot)
FORGE_MATH_2(nextafter)
FORGE_MATH_2(remainder)
double frexp(double x, int *exponent);
float frexpf(float x, int *exponent);
long double frexpl(long double x, int *exponent);
double ldexp(double x, int exponent);
float ldexpf(float x, int exponent);
long double ldexpl(long double x, int exponent);
double modf(double x, double *whole);
float modff(float x, float *whole);
long double modfl(long double x, long double *whole);
double fma(double x, double y, double z);
float fmaf(float x, float y, float z);
long double fmal(long double x, long double y, long double z);
int ilogb(double x);
int ilogbf(float x);
int ilogbl(long double x);
long lrint(double x);
long lrintf(float x);
long lrintl(long double x);
long lround(double x);
long lroundf(float x);
long lroundl(long double x);
long long llrint(double x);
long long llrintf(float x);
long long llrintl(long double x);
long long llround(double x);
long long llroundf(float x);
long long llroundl(long double x);
double nan(const char *tag);
float nanf(const char *tag);
long double nanl(const char *tag);
double nexttoward(double x, long double y);
float nexttowardf(float x, long double y);
long double nexttowardl(long double x, long double y);
double remquo(double x, double y, int *quotient);
float remquof(float x, float y, int *quotient);
long double remquol(long double x, long double y, int *quotient);
double scalbln(double x, long exponent);
float scalblnf(float x, long exponent);
long double scalblnl(long double x, long exponent);
double scalbn(double x, int exponent);
float scalbnf(float x, int exponent);
long double scalbnl(long double x, int exponent);
#undef FORGE_MATH_1
#undef FORGE_MATH_2

#ifdef __cplusplus
}
#endif

#endif
