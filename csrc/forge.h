/*
 * The forge ABI, exported by every backend library: the whole interface to TypeScript.
 *
 * A step is recorded once and run many times. Recording lists the operations of a forward pass over
 * *values*: matrices of float activations whose row count is the number of tokens or of outputs of
 * a run, unknown until then. Everything that changes from run to run (token ids, positions, page
 * tables, sampling parameters) is in one packed input block, and one call executes the whole step.
 *
 * Conventions
 *   - Handles are integers. 0 is never a handle; an optional parameter takes it for "none". A
 *     released or unknown handle is an error, not a crash.
 *   - Every function except forge_abi_version returns a forge_status. forge_error_text returns the
 *     text of the last failure on a handle; there is no state per thread.
 *   - Text is written to a buffer of the caller as UTF-8, truncated to its capacity and always
 *     NUL-terminated.
 *   - Matrices are row-major. A weight has the shape [rows, cols] = [out_features, in_features].
 *   - Functions may be called from any thread. Two runs of one step must not overlap, nor two runs
 *     that use the same KV pages or states.
 */
#ifndef FORGE_H
#define FORGE_H

#include "abi/base.h"       /* versions, statuses */
#include "abi/device.h"     /* libraries, devices, handles */
#include "abi/weights.h"    /* weights and their types */
#include "abi/caches.h"     /* KV pages, recurrent state */
#include "abi/operations.h" /* recording a step */
#include "abi/run.h"        /* running it: inputs, sampling, results */

#endif
