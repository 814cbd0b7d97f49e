/*
 * The part of macOS's C library that libc++ and forge's sources use, for compiling without an SDK:
 * types, constants and prototypes as on arm64, from the POSIX and Darwin manuals. Every header of
 * the SDK made by sdk.ts includes this file.
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

#ifdef __cplusplus
}
#endif

#include "libc_text.h"
#include "libc_system.h"
#include "libc_math.h"

#endif
