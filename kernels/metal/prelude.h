#pragma once

// What every kernel is written in: the Metal Shading Language (Metal 3, C++14) for Apple7 GPUs and
// later, whose SIMD groups have 32 lanes. No lambdas, no inheritance, no recursion, no double.

#include <metal_stdlib>
#include "arguments.h"

using namespace metal;
using namespace metal_args;

// An instance of a kernel template, to be found under the name as it is written here. The library
// adds such lines to a file's text for what a model needs.
#define INSTANTIATE(...) template [[host_name(#__VA_ARGS__)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
// An instance that the library may ask for: the emulator and the gates (test/emulator/metal) take
// all that are listed.
#ifndef INSTANCE
#define INSTANCE(...)
#endif

// A constant of the program or of a class.
#define CONSTANT static constant constexpr const

typedef uchar u8;
typedef char i8;
typedef ushort u16;
typedef half f16;
// A float's upper half: bfloat of Metal 3.1, without asking for it.
struct bf16 {
  ushort bits;
};

CONSTANT uint kLanes = 32;

inline float to_float(float x) { return x; }
inline float to_float(half x) { return float(x); }
inline float to_float(bf16 x) { return as_type<float>(uint(x.bits) << 16); }

inline void convert(float x, device float& out) { out = x; }
