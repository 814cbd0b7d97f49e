#pragma once

// Definitions for every kernel. Kernels are written in the Metal Shading Language (Metal 3, C++14)
// for Apple7 GPUs and later, whose SIMD groups have 32 lanes. No lambdas, no inheritance, no
// recursion, no double.

#include <metal_stdlib>
#include "arguments.h"

using namespace metal;
using namespace metal_args;

// An instance of a kernel template under `name`, a plain identifier. The library appends such lines
// to a file's text for the instances of a model.
#ifndef INSTANTIATE
#define INSTANTIATE(name, ...) \
  template [[host_name(#name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#endif
// An instance that the library may request; the emulator and the gates (test/emulator/metal) take
// every listed instance.
#ifndef INSTANCE
#define INSTANCE(...)
#endif

// For loops over arrays that must stay in registers, such as SIMD group matrices.
#define UNROLL _Pragma("clang loop unroll(full)")

// A constant of the program or of a class.
#define CONSTANT static constant constexpr

typedef uchar u8;
typedef char i8;
typedef half f16;
// The upper half of a float: Metal 3.1's bfloat, without requiring Metal 3.1.
struct bf16 {
  ushort bits;
};

CONSTANT uint kLanes = 32;

inline float to_float(float x) { return x; }
inline float to_float(half x) { return float(x); }
inline float to_float(bf16 x) { return as_type<float>(uint(x.bits) << 16); }

template <class T>
inline T rounded(float x);
template <>
inline float rounded<float>(float x) {
  return x;
}
template <>
inline half rounded<half>(float x) {
  return half(x);
}
// Rounds to nearest, ties to even; NaN stays NaN.
template <>
inline bf16 rounded<bf16>(float x) {
  const uint bits = as_type<uint>(x);
  const bool is_nan = !(x == x);
  return {ushort(is_nan ? (bits >> 16 | 64) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// Small integers in memory become floats without conversions, of which Apple's GPUs make a quarter
// as many a cycle as other operations (P. Turner, "metal-benchmarks"), like shifts and extractions
// of bytes. Both halves of `word` hold numbers of up to 10 bits; with the exponent of 1024 they are
// exact half-precision numbers 1024 + n, and subtracting `base` leaves n - (base - 1024). Operands
// in half precision cost a multiplication in float nothing.
inline half2 small_integers(uint word, float base) {
  return as_type<half2>(word | 0x64006400u) - half2(half(base), half(base));
}

// Four integers from the bytes of a word, each the bits of `mask` in its byte, plus 1024 - base.
inline float4 bytes_of(uint word, uint mask, float base) {
  const half2 even = small_integers(word & mask, base);
  const half2 odd = small_integers(word >> 8 & mask, base);
  return float4(float(even.x), float(odd.x), float(even.y), float(odd.y));
}
// Four signed bytes of a word.
inline float4 signed_bytes(uint word) {
  return bytes_of(word ^ 0x80808080u, 0x00ff00ffu, 1152.0f);
}
