/* The library, its devices, and what all handles have: an error text and an end. */
#ifndef FORGE_ABI_DEVICE_H
#define FORGE_ABI_DEVICE_H

#include "base.h"

/* JSON: {"backend", "version", "compiler", "types": [weight type names]}. */
FORGE_API forge_status forge_library_info(char *text, uint64_t capacity);

/*
 * JSON array of the devices this machine has for the backend: [{"selector", "name", ...}]. Opens
 * none.
 */
FORGE_API forge_status forge_list_devices(char *text, uint64_t capacity);

/*
 * Opens a device. `selector` is a backend's own name for one of its devices or of its instruction
 * sets ("" = the best). `n_threads` is the number of host threads that compute (0 = one per core).
 * Without a handle to ask, the reason of a failure is written to `message`.
 */
FORGE_API forge_status forge_device_open(const char *selector, uint32_t n_threads, uint32_t *device,
                                         char *message, uint64_t capacity);

/* Which kernels compute attention. */
enum {
  FORGE_ATTENTION_AUTO = 0,  /* the fastest that the device and the caches' shapes allow */
  FORGE_ATTENTION_FLASH = 1, /* those of libflash_attn */
  FORGE_ATTENTION_TILED = 2, /* the device's own, on tensor cores */
  FORGE_ATTENTION_NAIVE = 3  /* the device's own for any shape */
};

/*
 * Chooses the kernels that compute attention in steps that end recording from now on.
 * FORGE_UNSUPPORTED where the device has no such choice; a choice that a step's shapes cannot meet
 * fails its forge_step_end.
 */
FORGE_API forge_status forge_set_attention(uint32_t device, uint32_t attention);

/* JSON: {"name", "threads", "features": [...], "kernels", "memory_bytes", "details": [...]}. */
FORGE_API forge_status forge_device_info(uint32_t device, char *text, uint64_t capacity);

/*
 * Bytes a second that the device reads of its memory at most, measured now in a fraction of a
 * second: what decoding can be compared with. 0 where the backend does not measure it.
 */
FORGE_API forge_status forge_read_bandwidth(uint32_t device, uint64_t *bytes_per_second);

/*
 * The most memory that this process has held resident so far, in bytes; 0 where the system does not
 * tell.
 */
FORGE_API forge_status forge_peak_memory(uint64_t *bytes);

/*
 * Bytes of memory that the device has, and how many of them are free. A GPU's driver reports both.
 * A processor reports the memory that the host and its control groups grant as total and as free:
 * weights and caches take pages of it as they are first touched. 0 and 0 where the system does not
 * tell.
 */
FORGE_API forge_status forge_device_memory(uint32_t device, uint64_t *total, uint64_t *free);

/* The text of the last failure of a call on `handle`; empty when there was none. */
FORGE_API forge_status forge_error_text(uint32_t handle, char *text, uint64_t capacity);

/* Releases any handle. What still needs the object (a step needs its weights) keeps it alive. */
FORGE_API forge_status forge_release(uint32_t handle);

#endif
