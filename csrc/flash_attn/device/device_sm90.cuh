// The instructions of SM90.
#pragma once

#ifdef FLASH_ATTN_EMULATED
#include "flash_attn_twins_sm90.h"
#else
#include "ptx_barrier.cuh"
#include "ptx_tma.cuh"
#include "ptx_wgmma.cuh"
#endif
