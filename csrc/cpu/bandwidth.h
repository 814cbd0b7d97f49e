#pragma once

#include <cstdint>

#include "thread_pool.h"

namespace forge::cpu {

// Bytes a second that the threads of a pool together read of memory, one piece after another: the
// best of several rounds over far more than caches hold.
uint64_t read_bandwidth(ThreadPool& pool);

}  // namespace forge::cpu
