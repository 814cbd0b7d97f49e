// The instructions that kernels use, each wrapped in a small function. Kernels include only this
// file: an emulator that defines the same functions in plain C++ runs the kernels unchanged on a
// CPU.
#pragma once

#ifdef FLASH_ATTN_EMULATED
#include "flash_attn_twins.h"
#else
#include "device/arithmetic.cuh"
#include "device/ptx_sm80.cuh"
#include "device/threads.cuh"
#endif
