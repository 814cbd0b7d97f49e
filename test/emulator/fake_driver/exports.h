#pragma once

// The exports of the stand-in for libcuda: the functions of csrc/cuda/driver_api.h, declared from
// the same list, so that functions and parameters agree.

#include "../../../csrc/cuda/driver_api.h"
#include "state.h"

#define FORGE_FAKE_DECLARE(member, symbol, parameters) \
  extern "C" __attribute__((visibility("default"))) forge::cuda::Result symbol parameters;

using namespace forge::cuda;

FORGE_DRIVER_FUNCTIONS(FORGE_FAKE_DECLARE)
FORGE_OPTIONAL_DRIVER_FUNCTIONS(FORGE_FAKE_DECLARE)

#undef FORGE_FAKE_DECLARE
