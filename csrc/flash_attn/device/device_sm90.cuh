// device.cuh plus the instructions of SM90.
#pragma once

#include "device/device.cuh"

#ifdef FLASH_ATTN_EMULATED
#include "flash_attn_twins_sm90.h"
#else
#include "device/ptx_barrier.cuh"
#include "device/ptx_tma.cuh"
#include "device/ptx_wgmma.cuh"
#endif
