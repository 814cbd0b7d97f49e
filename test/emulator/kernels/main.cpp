// Runs the tests of kernels. --list prints their names, --kernels the kernels' names and symbols,
// and --prepare compiles all kernels first. Otherwise runs the named tests (or all), and prints "ok
// NAME" or "not ok NAME: reason" for each.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "operations.h"

namespace kernel_test {

std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

void fail_test(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw std::runtime_error(text);
}

namespace {

u64 fresh_seed = 0;

// Tests have the same numbers in any company.
void start_known_run() { fresh_seed = 0; }

}  // namespace

u64 run_seed() { return fresh_seed; }

void start_fresh_run() {
  const char* const wanted = std::getenv("FORGE_TEST_SEED");
  fresh_seed = wanted ? std::strtoull(wanted, nullptr, 10) : std::random_device()();
}

u64 Random::next() {
  u64 z = state_ += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

float Random::number(float scale) {
  return static_cast<float>((static_cast<double>(next() >> 11) * 0x1p-52 - 1.0) * scale);
}

float Random::normal(float deviation) {
  float sum = 0;
  for (int i = 0; i < 6; ++i) sum += number();
  return sum * 0.7071f * deviation;  // six uniform numbers have the variance 2
}

Buffer<float> random_floats(Random& random, size_t n, float scale) {
  Buffer<float> buffer(n);
  for (float& x : buffer) x = random.normal(scale);
  return buffer;
}

void expect_near(const char* what, const float* actual, const double* expected, size_t n,
                 double absolute, double relative) {
  for (size_t i = 0; i < n; ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (!(error <= absolute + relative * std::abs(expected[i]))) {
      fail_test("%s[%zu] is %.9g, expected %.9g", what, i, static_cast<double>(actual[i]),
                expected[i]);
    }
  }
}

double plain_activation(u32 activation, double x) {
  switch (activation) {
    case 1: return x / (1 + std::exp(-x));
    case 2: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case 3: return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    default: return x;
  }
}

}  // namespace kernel_test

namespace {

bool run(const Test& test) {
  bool passed = true;
  start_known_run();
  try {
    test.run();
    std::printf("ok %s\n", test.name);
  } catch (const std::exception& error) {
    std::printf("not ok %s: %s\n", test.name, error.what());
    if (run_seed() != 0) std::printf("with FORGE_TEST_SEED=%llu\n", run_seed());
    passed = false;
  }
  std::fflush(stdout);
  return passed;
}

bool run_all(int argc, char** argv) {
  bool passed = true;
  for (const Test& test : tests()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::string(argv[i]) == test.name;
    if (wanted) passed = run(test) && passed;
  }
  return passed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  bool passed = true;
  if (first == "--kernels") {
    for (const auto& [name, symbol] : kernel_names()) {
      std::printf("%s\t%s\n", name.c_str(), symbol.c_str());
    }
  } else if (first == "--list") {
    for (const Test& test : tests()) std::printf("%s\n", test.name);
  } else if (first == "--prepare") {
    passed = run({"prepare", prepare_kernels});
  } else {
    passed = run_all(argc, argv);
  }
  std::fflush(stdout);
  // Static buffers are not freed, since the driver may be unloaded before them.
  std::_Exit(passed ? 0 : 1);
}
