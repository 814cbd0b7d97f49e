// Makes a library run with glibc 2.28 and newer, whichever version it was built with. glibc 2.29 to
// 2.34 gave functions new versions: the linker would choose these, and an older system refuses to
// load the library. The definitions here replace glibc's for the library alone, since they are not
// exported, and call the first version of each function, which every later glibc still has.
#if defined(__linux__)
#include <features.h>
#endif

#if defined(__has_feature)
#define FORGE_CLANG_SANITIZES \
  (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define FORGE_CLANG_SANITIZES 0
#endif

// Sanitizers replace the same functions. glibc 2.28 and others' C libraries need nothing.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !FORGE_CLANG_SANITIZES
#if __GLIBC_PREREQ(2, 29)

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define FORGE_FIRST_VERSION "GLIBC_2.2.5"
constexpr int kStatVersion = 1;
#else
#define FORGE_FIRST_VERSION "GLIBC_2.17"
constexpr int kStatVersion = 0;
#endif

#define FORGE_FIRST(name) asm(".symver forge_first_" #name "," #name "@" FORGE_FIRST_VERSION)

extern "C" {

#define FORGE_FIRST_OF_ONE(name)       \
  FORGE_FIRST(name);                   \
  double forge_first_##name(double x); \
  double name(double x) noexcept { return forge_first_##name(x); }

FORGE_FIRST_OF_ONE(exp)
FORGE_FIRST_OF_ONE(exp2)
FORGE_FIRST_OF_ONE(log)
FORGE_FIRST_OF_ONE(log2)

FORGE_FIRST(pow);
double forge_first_pow(double x, double y);
double pow(double x, double y) noexcept { return forge_first_pow(x, y); }

FORGE_FIRST(pthread_create);
int forge_first_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  return forge_first_pthread_create(thread, attributes, run, argument);
}

FORGE_FIRST(pthread_join);
int forge_first_pthread_join(pthread_t, void**);
int pthread_join(pthread_t thread, void** result) {
  return forge_first_pthread_join(thread, result);
}

FORGE_FIRST(pthread_once);
int forge_first_pthread_once(pthread_once_t*, void (*)());
int pthread_once(pthread_once_t* control, void (*run)()) {
  return forge_first_pthread_once(control, run);
}

FORGE_FIRST(dlopen);
void* forge_first_dlopen(const char*, int);
void* dlopen(const char* name, int flags) noexcept { return forge_first_dlopen(name, flags); }

FORGE_FIRST(dlsym);
void* forge_first_dlsym(void*, const char*);
void* dlsym(void* library, const char* name) noexcept { return forge_first_dlsym(library, name); }

FORGE_FIRST(dladdr);
int forge_first_dladdr(const void*, Dl_info*);
int dladdr(const void* address, Dl_info* info) noexcept {
  return forge_first_dladdr(address, info);
}

FORGE_FIRST(dlclose);
int forge_first_dlclose(void*);
int dlclose(void* library) noexcept { return forge_first_dlclose(library); }

FORGE_FIRST(dlerror);
char* forge_first_dlerror();
char* dlerror() noexcept { return forge_first_dlerror(); }

int __fxstat(int version, int file, struct stat* status) noexcept;
int fstat(int file, struct stat* status) noexcept { return __fxstat(kStatVersion, file, status); }

int __fxstat64(int version, int file, struct stat64* status) noexcept;
int fstat64(int file, struct stat64* status) noexcept {
  return __fxstat64(kStatVersion, file, status);
}

int __xstat(int version, const char* path, struct stat* status) noexcept;
int stat(const char* path, struct stat* status) noexcept {
  return __xstat(kStatVersion, path, status);
}

// Nonzero would let reference counts omit atomic operations.
char __libc_single_threaded = 0;

}  // extern "C"

#endif
#endif
