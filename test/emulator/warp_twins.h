#pragma once

// Warp operations, implemented as meetings of lanes. Included by device.h.

namespace emulator {

struct ShuffleArgument {
  uint64_t value;
  uint64_t result;
  uint32_t source;
};

// The value of a lane outside the mask is undefined.
inline void perform_shuffle(void* const* arguments, uint32_t mask) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    auto& own = *static_cast<ShuffleArgument*>(arguments[lane]);
    const bool defined = own.source < 32 && (mask >> own.source & 1) != 0;
    own.result = defined ? static_cast<ShuffleArgument*>(arguments[own.source])->value : ~0ull;
  }
}

template <class T>
T shuffle(uint32_t mask, T value, uint32_t source, const char* file, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  ShuffleArgument argument = {0, 0, source};
  std::memcpy(&argument.value, &value, sizeof value);
  collective(mask, WarpOp::shuffle, &argument, perform_shuffle, file, line);
  std::memcpy(&value, &argument.result, sizeof value);
  return value;
}

inline void perform_ballot(void* const* arguments, uint32_t mask) {
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && *static_cast<uint32_t*>(arguments[lane]) != 0) {
      votes |= 1u << lane;
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0) *static_cast<uint32_t*>(arguments[lane]) = votes;
  }
}

inline uint32_t ballot(uint32_t mask, bool vote, const char* file, int line) {
  uint32_t argument = vote ? 1 : 0;
  collective(mask, WarpOp::ballot, &argument, perform_ballot, file, line);
  return argument;
}

inline void perform_match(void* const* arguments, uint32_t mask) {
  uint32_t results[32] = {};
  const auto value = [&](uint32_t lane) { return *static_cast<uint32_t*>(arguments[lane]); };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t other = 0; other < 32 && (mask >> lane & 1) != 0; ++other) {
      const bool is_alike = (mask >> other & 1) != 0 && value(other) == value(lane);
      results[lane] |= uint32_t{is_alike} << other;
    }
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0) *static_cast<uint32_t*>(arguments[lane]) = results[lane];
  }
}

inline uint32_t match_any(uint32_t mask, uint32_t value, const char* file, int line) {
  uint32_t argument = value;
  collective(mask, WarpOp::match, &argument, perform_match, file, line);
  return argument;
}

}  // namespace emulator

#define __shfl_sync(mask, value, source) \
  emulator::shuffle(mask, value, (source) & 31, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
  emulator::shuffle(mask, value, emulator::position().lane ^ (bits), __FILE__, __LINE__)
#define __shfl_down_sync(mask, value, by)                                              \
  emulator::shuffle(mask, value,                                                       \
                    emulator::position().lane + (by) < 32 ? emulator::position().lane + (by) \
                                                          : emulator::position().lane, \
                    __FILE__, __LINE__)
#define __shfl_up_sync(mask, value, by)                                                 \
  emulator::shuffle(mask, value,                                                        \
                    emulator::position().lane >= (by) ? emulator::position().lane - (by) \
                                                      : emulator::position().lane,      \
                    __FILE__, __LINE__)
#define __ballot_sync(mask, vote) emulator::ballot(mask, vote, __FILE__, __LINE__)
#define __match_any_sync(mask, value) emulator::match_any(mask, value, __FILE__, __LINE__)
#define __syncwarp(...)                                                                           \
  emulator::collective(0xffffffffu, emulator::WarpOp::sync, nullptr, nullptr, __FILE__, __LINE__, \
                       true)
