// Results of instructions.cu compared with plain C++, on the emulator and on a GPU.

#include <algorithm>
#include <bit>

#include "../../../../csrc/common/float16.h"
#include "../support.h"

namespace {

struct Half {
  u16 bits;
};
struct Pair {
  u32 word[2];
};
struct Words {
  u32 word[4];
};
struct Floats {
  float number[4];
};

// True if both are the same number, or both NaN.
bool same_number(float a, float b) {
  return std::bit_cast<u32>(a) == std::bit_cast<u32>(b) || (std::isnan(a) && std::isnan(b));
}
bool same_f16(u16 a, u16 b) { return same_number(forge::f16_to_f32(a), forge::f16_to_f32(b)); }
bool same_bf16(u16 a, u16 b) { return same_number(forge::bf16_to_f32(a), forge::bf16_to_f32(b)); }

// Numbers of every magnitude, and numbers half-way between two 16-bit ones.
std::vector<float> awkward_numbers() {
  std::vector<float> list = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, 1e10f, 3.4e38f, -3.4e38f,
                             5.96e-8f, 2.98e-8f, 2.99e-8f, 1e-40f, INFINITY, -INFINITY, NAN};
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    list.push_back(std::ldexp(random.number(), int(random.below(60)) - 40));
  }
  for (u32 bits = 1; bits < 31000; bits += 97) {
    const float a = forge::f16_to_f32(static_cast<u16>(bits));
    const float b = forge::f16_to_f32(static_cast<u16>(bits + 1));
    list.push_back((a + b) / 2);
    list.push_back(std::nextafter((a + b) / 2, b));
  }
  for (u32 bits = 0x3f800000; bits < 0x40800000; bits += 0x13570) {
    list.push_back(std::bit_cast<float>(bits | 0x8000));  // between two BF16
  }
  return list;
}

}  // namespace

TEST(instructions_widen_every_16_bit_number) {
  Buffer<float> widened(2 * 65536);
  launch("widen_numbers", {{256}, {256}}, widened.data());
  for (u32 i = 0; i < 65536; ++i) {
    EXPECT(same_number(widened[i], forge::f16_to_f32(static_cast<u16>(i))));
    EXPECT(same_number(widened[65536 + i], forge::bf16_to_f32(static_cast<u16>(i))));
  }
}

TEST(instructions_round_to_nearest_even) {
  const Buffer<float> x(awkward_numbers());
  const auto n = static_cast<u32>(x.size());
  Buffer<u32> narrowed(n), packed(2 * n);
  launch("narrow_numbers", {{blocks_for(n, 128)}, {128}}, narrowed.data(), packed.data(), x.data(),
         n);
  for (u32 i = 0; i < n; ++i) {
    const u16 half = forge::f32_to_f16(x[i]), brain = forge::f32_to_bf16(x[i]);
    const float next = x[(i + 1) % n];
    EXPECT(same_f16(static_cast<u16>(narrowed[i]), half));
    EXPECT(same_bf16(static_cast<u16>(narrowed[i] >> 16), brain));
    EXPECT(same_f16(static_cast<u16>(packed[2 * i]), half));
    EXPECT(same_f16(static_cast<u16>(packed[2 * i] >> 16), forge::f32_to_f16(next)));
    EXPECT(same_bf16(static_cast<u16>(packed[2 * i + 1]), brain));
    EXPECT(same_bf16(static_cast<u16>(packed[2 * i + 1] >> 16), forge::f32_to_bf16(next)));
  }
}

TEST(instructions_spread_bytes) {
  Random random(1);
  Buffer<u32> words(64);
  for (u32& word : words) word = static_cast<u32>(random.next());
  for (const float bias : {0.0f, 8.0f, 128.0f}) {
    Buffer<Floats> out(64);
    launch("spread_bytes", {{1}, {64}}, out.data(), words.data(), bias);
    for (u32 i = 0; i < 64; ++i) {
      for (u32 k = 0; k < 4; ++k) {
        EXPECT(out[i].number[k] == static_cast<float>(words[i] >> (8 * k) & 0xff) - bias);
      }
    }
  }
}

TEST(instructions_fuse_words) {
  Random random(5);
  constexpr u32 kWords = 1024;
  Buffer<u32> a(kWords), b(kWords), c(kWords);
  for (Buffer<u32>* words : {&a, &b, &c}) {
    for (u32& word : *words) word = static_cast<u32>(random.next());
  }
  Buffer<u32> out(2 * kWords);
  launch("fuse_words", {{kWords / 256}, {256}}, out.data(), a.data(), b.data(), c.data());
  for (u32 i = 0; i < kWords; ++i) {
    EXPECT(out[2 * i + 1] == ((a[i] & b[i]) | c[i]));
    for (int half = 0; half < 2; ++half) {
      const auto number = [&](u32 word) {
        return double(forge::f16_to_f32(static_cast<u16>(word >> (16 * half))));
      };
      const double sum = number(a[i]) * number(b[i]) + number(c[i]);
      const double rounded = number(out[2 * i]);
      if (std::isnan(sum) || std::abs(sum) > 65504) continue;
      // Half of the last place: 11 bits, or 2^-24 below 2^-14.
      EXPECT(std::abs(rounded - sum) <= std::max(std::abs(sum) / 2048, 0x1p-25));
    }
  }
}

TEST(instructions_combine_halves) {
  Random random(4);
  Buffer<u32> a(256), b(256);
  for (u32 i = 0; i < 256; ++i) {
    a[i] = static_cast<u32>(random.next());
    // Also neighbours, whose differences are small.
    b[i] = i % 2 ? a[i] ^ 0x00030001u : static_cast<u32>(random.next());
  }
  Buffer<Pair> out(256), bytes(256);
  launch("combine_halves", {{1}, {256}}, out.data(), bytes.data(), a.data(), b.data());
  for (u32 i = 0; i < 256; ++i) {
    for (u32 k = 0; k < 2; ++k) {
      const float x = forge::f16_to_f32(static_cast<u16>(a[i] >> (16 * k)));
      const float y = forge::f16_to_f32(static_cast<u16>(b[i] >> (16 * k)));
      EXPECT(same_f16(static_cast<u16>(out[i].word[0] >> (16 * k)), forge::f32_to_f16(x - y)));
      EXPECT(same_f16(static_cast<u16>(out[i].word[1] >> (16 * k)), forge::f32_to_f16(x * y)));
    }
    for (u32 k = 0; k < 4; ++k) {
      const float byte = static_cast<float>(a[i] >> (8 * k) & 0xff) - 128;
      EXPECT(forge::f16_to_f32(static_cast<u16>(bytes[i].word[k / 2] >> (16 * (k % 2)))) == byte);
    }
  }
}

TEST(instructions_raise_two) {
  Random random(5);
  Buffer<float> x(512), out(512);
  for (float& exponent : x) exponent = random.number(150);
  x[0] = -INFINITY;
  x[1] = 0;
  x[2] = -200;
  launch("raise_two", {{1}, {512}}, out.data(), x.data());
  for (u32 i = 0; i < 512; ++i) {
    const float expected = std::exp2(x[i]);
    const bool is_close = std::abs(out[i] - expected) <= expected * 3e-7f;
    EXPECT(out[i] == expected || is_close || (expected < 1.2e-38f && out[i] == 0));
  }
  EXPECT(out[1] == 1);
}

TEST(instructions_load_16_bytes) {
  Random random(2);
  const u32 n = 301;
  Buffer<Words> in(n), out(n);
  for (Words& words : in) {
    for (u32& word : words.word) word = static_cast<u32>(random.next());
  }
  launch("stream_words", {{3}, {128}}, out.data(), in.data(), n);
  EXPECT(std::memcmp(in.data(), out.data(), n * sizeof(Words)) == 0);
}

TEST(instructions_copy_asynchronously) {
  Random random(4);
  Buffer<Words> in(192), out(192);
  Buffer<u32> valid(192);
  for (u32 i = 0; i < 192; ++i) {
    for (u32& word : in[i].word) word = static_cast<u32>(random.next());
    valid[i] = random.below(3) == 0 ? 0 : 1;
  }
  launch("copy_in_groups", {{1}, {64}}, out.data(), in.data(), valid.data());
  for (u32 i = 0; i < 192; ++i) {
    for (u32 k = 0; k < 4; ++k) EXPECT(out[i].word[k] == (valid[i] ? in[i].word[k] : 0));
  }
}

TEST(instructions_load_matrices) {
  Buffer<u16> in(32 * 8);
  for (u32 i = 0; i < in.size(); ++i) in[i] = static_cast<u16>(i * 257);
  Buffer<u32> out(32 * 8);
  launch("load_four_matrices", {{1}, {32}}, out.data(), in.data());
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 m = 0; m < 4; ++m) {
      const u16* matrix = in.data() + m * 64;
      const u32 i = lane / 4, j = lane % 4 * 2;
      EXPECT(out[lane * 8 + m] == (matrix[i * 8 + j] | u32{matrix[i * 8 + j + 1]} << 16));
      EXPECT(out[lane * 8 + 4 + m] == (matrix[j * 8 + i] | u32{matrix[(j + 1) * 8 + i]} << 16));
    }
  }
}

static void check_products(const char* kernel, u16 (*narrow)(float), float (*widen)(u16)) {
  Random random(5);
  Buffer<Half> a(16 * 16), b(16 * 8);
  for (Half& x : a) x.bits = narrow(random.normal());
  for (Half& x : b) x.bits = narrow(random.normal());
  Buffer<float> c(16 * 8);
  std::vector<double> expected;
  for (u32 i = 0; i < 16 * 8; ++i) {
    c[i] = random.normal();
    double sum = c[i];
    for (u32 k = 0; k < 16; ++k) {
      sum += double(widen(a[i / 8 * 16 + k].bits)) * widen(b[k * 8 + i % 8].bits);
    }
    expected.push_back(sum);
  }
  launch(kernel, {{1}, {32}}, c.data(), a.data(), b.data());
  // Tensor cores truncate every product to the last digits of the largest of nine terms.
  expect_near(kernel, c, expected, 5e-5, 1e-5);
}

TEST(instructions_multiply_f16_matrices) {
  check_products("multiply_matrices<f16>", forge::f32_to_f16, forge::f16_to_f32);
}
TEST(instructions_multiply_bf16_matrices) {
  check_products("multiply_matrices<bf16>", forge::f32_to_bf16, forge::bf16_to_f32);
}

TEST(instructions_reduce) {
  Random random(6);
  auto x = random_floats(random, 256);
  x[70] = NAN;  // ignored by maxima, and in the sum of one warp only
  Buffer<double> sums(9);
  Buffer<float> largest(9);
  Buffer<u64> counts(256);
  launch("reduce_numbers", {{1}, {256}}, sums.data(), largest.data(), counts.data(), x.data());
  float most_of_all = -INFINITY;
  for (u32 warp = 0; warp < 8; ++warp) {
    double sum = 0;
    float most = -INFINITY;
    for (u32 i = warp * 32; i < warp * 32 + 32; ++i) {
      sum += x[i];
      most = std::fmax(most, x[i]);
    }
    EXPECT(warp == 2 ? std::isnan(sums[warp]) : std::abs(sums[warp] - sum) < 1e-12);
    EXPECT(largest[warp] == most);
    most_of_all = std::fmax(most_of_all, most);
  }
  EXPECT(std::isnan(sums[8]) && largest[8] == most_of_all);
  for (const u64 count : counts) EXPECT(count == u64{255 * 128} << 33);
}

TEST(instructions_exchange_between_lanes) {
  Random random(7);
  Buffer<u64> in(32), out(32 * 9);
  for (u64& x : in) x = random.next();
  in[3] &= ~u64{0xffffffff};  // no bit to find
  launch("exchange_lanes", {{1}, {32}}, out.data(), in.data());
  u64 votes = 0;
  for (u32 lane = 0; lane < 32; ++lane) votes |= (in[lane] & 1) << lane;
  for (u32 lane = 0; lane < 32; ++lane) {
    const u64* got = out.data() + lane * 9;
    const u32 low = static_cast<u32>(in[lane]), high = static_cast<u32>(in[lane] >> 32);
    EXPECT(got[0] == in[7]);
    EXPECT(got[1] == in[(lane * 5 + 3) % 32]);
    EXPECT(got[2] == in[lane ^ 9]);
    EXPECT(got[3] == in[lane >= 4 ? lane - 4 : lane]);
    EXPECT(got[4] == in[lane + 6 < 32 ? lane + 6 : lane]);
    EXPECT(got[5] == votes);
    EXPECT(got[6] >> 32 == static_cast<u32>(std::countl_zero(low)));
    EXPECT((got[6] & 0xffffffff) == (low == 0 ? 0 : static_cast<u32>(std::countr_zero(low)) + 1));
    // Bytes 0, 4, 2 and 6 of the eight.
    EXPECT(got[7] >> 32 == ((low & 0xff) | (high & 0xff) << 8 | (low & 0xff0000) |
                            (high & 0xff0000) << 8));
    EXPECT((got[7] & 0xffffffff) == static_cast<u32>(std::popcount(low)));
    u64 alike = 0;
    for (u32 other = 0; other < 32; ++other) {
      alike |= u64{in[other] % 5 == in[lane] % 5} << other;
    }
    EXPECT(got[8] == alike);
  }
}

TEST(instructions_count_atomically) {
  Buffer<u32> shared_sum(1), global_sum = {0}, lowest = {5000}, taken = {0, 0};
  Buffer<float> float_sum = {0};
  launch("count_atomically", {{1}, {256}}, shared_sum.data(), global_sum.data(), float_sum.data(),
         lowest.data(), taken.data());
  EXPECT(shared_sum[0] == 255u * 128 << 16);
  EXPECT(global_sum[0] == 255 * 128);
  EXPECT(float_sum[0] == 128.0f);
  EXPECT(lowest[0] == 1000 - 255);
  // Only the first thread found 0, and its result must not have been overwritten.
  EXPECT(taken[0] == 1 && taken[1] == 1);
}

TEST(instructions_compute_functions) {
  Random random(8);
  std::vector<float> numbers;
  for (u32 i = 0; i < 500; ++i) numbers.push_back(std::abs(random.normal(3)) + 1e-3f);
  for (u32 i = 0; i < 500; ++i) numbers.push_back(static_cast<float>(random.below(131072)) + 0.25f);
  const Buffer<float> x(numbers);
  const auto n = static_cast<u32>(x.size());
  Buffer<float> out(10 * n);
  launch("compute_functions", {{blocks_for(n, 128)}, {128}}, out.data(), x.data(), n);
  double (*const functions[10])(double) = {
      [](double v) { return std::exp(-std::min(v, 80.0)); },
      [](double v) { return std::exp2(-std::min(v, 80.0)); },
      [](double v) { return std::tanh(std::min(v, 80.0)); },
      [](double v) { return std::cos(v); },
      [](double v) { return std::sin(v); },
      [](double v) { return std::sqrt(v); },
      [](double v) { return 1 / v; },
      [](double v) { return std::erf(std::min(v, 80.0)); },
      [](double v) { return std::rint(v); },
      [](double v) { return std::log1p(v); },
  };
  for (u32 f = 0; f < 10; ++f) {
    std::vector<double> expected;
    for (u32 i = 0; i < n; ++i) expected.push_back(functions[f](x[i]));
    // A few units in the last place, including angles of the largest positions.
    expect_near("function", out.data() + f * n, expected.data(), n, 3e-7, 5e-7);
  }
}

TEST(instructions_keep_subnormal_numbers) {
  const Buffer<float> x = {3e-38f, 1.2e-38f, 1e-40f, -2.8e-45f};
  Buffer<float> out(4);
  launch("halve_numbers", {{1}, {4}}, out.data(), x.data());
  for (u32 i = 0; i < 4; ++i) EXPECT(out[i] == x[i] / 2 && out[i] != 0);
}
