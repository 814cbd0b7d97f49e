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

inline void convert(float x, device float& out) { out = x; }
inline void convert(float x, device half& out) { out = half(x); }
// Rounds to nearest, ties to even; NaN stays NaN.
inline void convert(float x, device bf16& out) {
  const uint bits = as_type<uint>(x);
  const bool is_nan = !(x == x);
  out.bits = ushort(is_nan ? (bits >> 16 | 64) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Four signed or unsigned bytes of a word.
inline float4 unsigned_bytes(uint word) { return float4(as_type<uchar4>(word)); }
inline float4 signed_bytes(uint word) { return float4(as_type<char4>(word)); }
