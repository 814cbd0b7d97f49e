/* Versions, statuses, and the declaration of exported functions. */
#ifndef FORGE_ABI_BASE_H
#define FORGE_ABI_BASE_H

#include <stdint.h>

#if defined(_WIN32)
#define FORGE_EXPORT __declspec(dllexport)
#else
#define FORGE_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define FORGE_API extern "C" FORGE_EXPORT
#else
#define FORGE_API FORGE_EXPORT
#endif

#define FORGE_ABI_VERSION 14
#define FORGE_VERSION "0.1.0"

/* Returns FORGE_ABI_VERSION of the library. Call it first: it is the same in every version. */
FORGE_API uint32_t forge_abi_version(void);

typedef int32_t forge_status;

enum {
  FORGE_OK = 0,
  FORGE_INVALID_ARGUMENT = 1, /* an argument contradicts the contract or another argument */
  FORGE_BAD_HANDLE = 2,       /* not a live handle of the expected kind */
  FORGE_OUT_OF_MEMORY = 3,
  FORGE_IO = 4,               /* a file cannot be opened, mapped or read */
  FORGE_UNSUPPORTED = 5,      /* well-formed, but this backend or device cannot do it */
  FORGE_CANCELLED = 6,        /* the stop flag was raised */
  FORGE_DEVICE_FAILED = 7,    /* the device or its driver reported a failure */
  FORGE_INTERNAL = 8          /* a bug in the library */
};

#endif
