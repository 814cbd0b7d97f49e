#pragma once

// A number shared by kernels (MSL) and host (C++).
#ifdef __METAL_VERSION__
#define METAL_ARGS_CONSTANT static constant constexpr uint32_t
#else
#include <cstdint>
#define METAL_ARGS_CONSTANT static constexpr uint32_t
#endif
