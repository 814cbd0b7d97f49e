#pragma once

// A number that kernels (MSL) and host (C++) share.
#ifdef __METAL_VERSION__
#define METAL_ARGS_CONSTANT static constant constexpr uint32_t
#else
#include <cstdint>
#define METAL_ARGS_CONSTANT static constexpr uint32_t
#endif
