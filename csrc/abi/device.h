/* The library, its devices, and the error text and release of all handles. */
#ifndef FORGE_ABI_DEVICE_H
#define FORGE_ABI_DEVICE_H

#include "base.h"

/* JSON: {"backend", "version", "compiler", "types": [weight type names]}. */
FORGE_API forge_status forge_library_info(char *text, uint64_t capacity);

/*
 * JSON array of the devices of the backend on this machine: [{"selector", "name", ...}]. Opens no
 * device.
 */
FORGE_API forge_status forge_list_devices(char *text, uint64_t capacity);

/*
 * Opens a device. `selector` names a device or an instruction set of the backend ("" = the best).
 * `n_threads` is the number of host threads that compute (0 = one per core). Writes the reason of a
 * failure to `message`.
 */
FORGE_API forge_status forge_device_open(const char *selector, uint32_t n_threads, uint32_t *device,
                                         char *message, uint64_t capacity);

/* The kernels that compute attention. */
enum {
  FORGE_ATTENTION_AUTO = 0,  /* the fastest for the device and the shapes of the caches */
  FORGE_ATTENTION_FLASH = 1, /* libflash_attn */
  FORGE_ATTENTION_TILED = 2, /* kernels of the backend, on tensor cores */
  FORGE_ATTENTION_NAIVE = 3  /* kernels of the backend, for any shape */
};

/*
 * Chooses the kernels that compute attention, for steps whose recording ends after this call.
 * FORGE_UNSUPPORTED if the device has no such choice. forge_step_end fails if the kernels do not
 * support the shapes of the step.
 */
FORGE_API forge_status forge_set_attention(uint32_t device, uint32_t attention);

/* The numbers that products with weights in 16-bit floats multiply. */
enum {
  FORGE_PRODUCTS_AUTO = 0, /* BF16 weights: activations rounded to BF16 where that is faster */
  FORGE_PRODUCTS_F32 = 1,  /* float32 */
  FORGE_PRODUCTS_BF16 = 2  /* as AUTO, also for F16 weights, which are rounded to BF16 */
};

/*
 * Chooses the products of a device, before its first step. FORGE_UNSUPPORTED if the device has no
 * such products.
 */
FORGE_API forge_status forge_set_products(uint32_t device, uint32_t products);

/*
 * Chooses among how many NUMA nodes a processor divides its threads and the rows of weights, before
 * the first step of the device: 0 = those of the machine, with threads that stay on their nodes, as
 * after opening; 1 = not at all; n = n nodes of equally many threads, which stay nowhere.
 * FORGE_UNSUPPORTED if the device is no processor with kernels of its own.
 */
FORGE_API forge_status forge_set_nodes(uint32_t device, uint32_t nodes);

/* JSON: {"name", "threads", "features": [...], "kernels", "memory_bytes", "details": [...]}. */
FORGE_API forge_status forge_device_info(uint32_t device, char *text, uint64_t capacity);

/* A group of devices, and the part of it that lies in this process. */
typedef struct {
  uint32_t n_devices; /* of all processes */
  uint32_t n_stages;
  uint32_t first; /* number in the group of the first device of this process */
} forge_group;

/*
 * Makes devices of one library a group, before their first steps: stages of as many ranks each,
 * stage after stage. All devices run the same steps at the same time, each on its part of the
 * weights: `all_reduce` adds up the values of the ranks of a stage, and a rank sends values to the
 * rank of the same number in the next stage. If a run of a device fails, the caller stops the runs
 * of the others. FORGE_UNSUPPORTED if the devices have no way to exchange values.
 *
 * If other processes have the other devices of the group, `keys` are those that one of the
 * processes made by forge_group_keys, and the call returns when all processes have made it. Else
 * `keys` is null.
 */
FORGE_API forge_status forge_devices_join(const uint32_t *devices, uint32_t n_devices,
                                          const forge_group *group, const void *keys,
                                          uint64_t key_bytes);

/* Bytes of a key. */
enum { FORGE_GROUP_KEY_BYTES = 128 };

/*
 * Makes the keys by which processes find each other for a group: one for each stage, then one for
 * the group. `bytes` is that of all of them.
 */
FORGE_API forge_status forge_group_keys(uint32_t device, void *keys, uint64_t bytes);

/*
 * Ends the exchanges of the devices of this process, which would wait for one of another process
 * that failed. Their group fails from then on, for the given reason.
 */
FORGE_API forge_status forge_group_abort(uint32_t device, const char *reason);

/*
 * The memory bandwidth of the device for reads, in bytes a second, measured in a fraction of a
 * second: an upper bound for decoding. 0 if the backend does not measure it.
 */
FORGE_API forge_status forge_read_bandwidth(uint32_t device, uint64_t *bytes_per_second);

/*
 * The operations a second of the device's products of small matrices, two for each product of
 * numbers, measured in a fraction of a second: an upper bound for prompts. 0 if the backend does
 * not measure it.
 */
FORGE_API forge_status forge_matrix_rate(uint32_t device, uint64_t *operations_per_second);

/*
 * The peak resident memory of this process in bytes; 0 if the system does not report it.
 */
FORGE_API forge_status forge_peak_memory(uint64_t *bytes);

/*
 * The total and free bytes of device memory, as the driver of a GPU reports them. A processor
 * reports the memory that the host and its control groups grant as both: weights and caches take
 * pages of it when they are first touched. 0 and 0 if the system does not report it.
 */
FORGE_API forge_status forge_device_memory(uint32_t device, uint64_t *total, uint64_t *free);

/*
 * Bounds the memory that weights, caches and workspaces of a device take together, before its first
 * step. 0: what the host and its control groups have free. Writes the bound; 0 if the system does
 * not report its memory, which leaves the device without one. Weights that do not fit stay in their
 * files, and runs read them from there. FORGE_UNSUPPORTED if the device keeps all weights.
 */
FORGE_API forge_status forge_set_memory(uint32_t device, uint64_t bytes, uint64_t *bound);

/*
 * The bytes of weights that the steps of a device read from their files because of its bound, and
 * the bytes of them that a token reads, about.
 */
FORGE_API forge_status forge_streamed_bytes(uint32_t device, uint64_t *all, uint64_t *per_token);

/* The text of the last failure of a call on `handle`; empty without one. */
FORGE_API forge_status forge_error_text(uint32_t handle, char *text, uint64_t capacity);

/* Releases any handle. An object that others use (a step uses its weights) lives until they do
   not. */
FORGE_API forge_status forge_release(uint32_t handle);

#endif
