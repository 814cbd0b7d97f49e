/*
 * The forge ABI: what every backend library exports and all that TypeScript knows of native code.
 *
 * A step is recorded once and run many times. Recording names the operations of a model's forward
 * pass over *values*: matrices of float activations whose row count is either the step's tokens or
 * its outputs, and is only known when the step runs. What changes from run to run (token ids,
 * positions, page tables, sampling parameters) arrives in one packed input block, so nothing is
 * recorded again for its sake, and one call executes the whole step.
 *
 * Conventions
 *   - Handles are integers; 0 is never a handle and stands for "none" where a parameter is optional.
 *     A released or foreign handle is an error, not a crash.
 *   - Every function but forge_abi_version returns a forge_status. Text about the last failure on a
 *     handle is read with forge_error_text, on that handle; nothing is kept per thread.
 *   - Text goes to a caller's buffer as UTF-8, truncated to capacity and always NUL-terminated.
 *   - Matrices are row-major. A weight has the shape [rows, cols] = [out_features, in_features].
 *   - Functions may be called from any thread. Two runs of one step must not overlap, nor may a run
 *     overlap another run that touches the same KV pages or states.
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
