#pragma once

// Helpers of the kernel tests: registration, random data, buffers with guarded ends, launches and
// comparison. A test function throws (through `expect`) if the kernel is wrong.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kernel_device.h"

namespace kernel_test {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;
using i32 = int;

struct Test {
  const char* name;
  void (*run)();
};
std::vector<Test>& tests();

struct RegisterTest {
  RegisterTest(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

// Ends the test as failed.
[[noreturn]] void fail_test(const char* format, ...) __attribute__((format(printf, 1, 2)));

#define TEST(function)                                                                \
  static void function();                                                             \
  static const kernel_test::RegisterTest register_##function(#function, function);    \
  static void function()

// A test that calls function(random) `times` times with new numbers, different in every run.
#define TEST_RANDOM(name, function, times)                    \
  TEST(name) {                                                \
    kernel_test::start_fresh_run();                           \
    kernel_test::Random random(0);                            \
    for (int time = 0; time < (times); ++time) function(random); \
  }

#define EXPECT(condition)                                                              \
  do {                                                                                 \
    if (!(condition)) kernel_test::fail_test("%s:%d: %s", __FILE__, __LINE__, #condition); \
  } while (0)

// Offset of the random numbers of a test: 0 until it asks for new ones, or for those of the
// variable FORGE_TEST_SEED. A failing test reports it.
u64 run_seed();
void start_fresh_run();

// Repeatable random numbers (SplitMix64).
class Random {
 public:
  explicit Random(u64 seed) : state_(seed + run_seed()) {}
  u64 next();
  u32 below(u32 n) { return static_cast<u32>(next() % n); }
  // From `least` to `most`.
  u32 between(u32 least, u32 most) { return least + below(most - least + 1); }
  template <class T, size_t n>
  T one_of(const T (&list)[n]) {
    return list[below(n)];
  }
  // Uniform in [-scale, scale].
  float number(float scale = 1);
  // Roughly normal.
  float normal(float deviation = 1);

 private:
  u64 state_;
};

// Device memory filled with 0xff (NaN), so that missing writes spoil a comparison.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : data_(static_cast<T*>(allocate(n * sizeof(T)))), size_(n) {
    std::memset(static_cast<void*>(data_), 0xff, n * sizeof(T));
  }
  Buffer(std::initializer_list<T> values) : Buffer(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  // Memory of reserve(); empty if not supported.
  static Buffer sparse(size_t n) {
    Buffer buffer(0);
    release(buffer.data_);
    buffer.data_ = static_cast<T*>(reserve(n * sizeof(T)));
    buffer.size_ = buffer.data_ ? n : 0;
    return buffer;
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  ~Buffer() {
    if (data_) release(data_);
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  T* data_;
  size_t size_;
};

Buffer<float> random_floats(Random& random, size_t n, float scale = 1);

// Launches a kernel by its name; the arguments must have the sizes of its parameters.
template <class... Arguments>
void launch(const std::string& name, const emulator::Launch& shape, Arguments... arguments) {
  void* params[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  run_kernel(name, shape, {sizeof(Arguments)...}, params);
}

// Fails unless |actual - expected| <= absolute + relative * |expected| for every element; NaN
// fails.
void expect_near(const char* what, const float* actual, const double* expected, size_t n,
                 double absolute, double relative);
inline void expect_near(const char* what, const Buffer<float>& actual,
                        const std::vector<double>& expected, double absolute,
                        double relative = 0) {
  if (actual.size() < expected.size()) fail_test("%s is too short", what);
  expect_near(what, actual.data(), expected.data(), expected.size(), absolute, relative);
}

inline u32 blocks_for(u64 n, u64 each) { return static_cast<u32>((n + each - 1) / each); }

}  // namespace kernel_test

using namespace kernel_test;
