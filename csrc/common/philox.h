#pragma once

// Philox4x32-10: a counter-based random number generator. J. K. Salmon, M. A. Moraes, R. O. Dror
// and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.

#include <array>
#include <cstdint>

#include "../forge.h"

namespace forge {

// Returns four random words for a counter and a key.
inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * counter[0];
    const uint64_t b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Returns the uniform number in (0, 1) of one draw, from 32 random bits.
inline double philox_uniform(const forge_sampling& s) {
  const auto random = philox4x32({s.position, s.stream, 0, 0}, {s.seed_low, s.seed_high});
  return (random[0] + 0.5) * 0x1p-32;
}

}  // namespace forge
