#pragma once

// Numbers and vectors of the Metal Shading Language.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

template <class T, int n>
struct Vector;

// The index of a component of a vector of n.
inline uint component(uint i, uint n) {
  if (i >= n) emulator::fail("component %u of a vector of %u", i, n);
  return i;
}

template <class T>
struct alignas(2 * sizeof(T)) Vector<T, 2> {
  T x, y;
  Vector() = default;
  Vector(T all) : x(all), y(all) {}
  Vector(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit Vector(const Vector<U, 2>& v) : x(T(v.x)), y(T(v.y)) {}
  T& operator[](uint i) { return component(i, 2) == 0 ? x : y; }
  const T& operator[](uint i) const { return component(i, 2) == 0 ? x : y; }
};

template <class T>
struct alignas(4 * sizeof(T)) Vector<T, 3> {
  T x, y, z;
  Vector() = default;
  Vector(T a, T b, T c) : x(a), y(b), z(c) {}
};

template <class T>
struct alignas(4 * sizeof(T)) Vector<T, 4> {
  T x, y, z, w;
  Vector() = default;
  Vector(T all) : x(all), y(all), z(all), w(all) {}
  Vector(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  template <class U>
  explicit Vector(const Vector<U, 4>& v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  T& operator[](uint i) { return component(i, 4) == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
  const T& operator[](uint i) const {
    return component(i, 4) == 0 ? x : i == 1 ? y : i == 2 ? z : w;
  }
  Vector& operator*=(T by) { return *this = *this * by; }
};

template <class T>
Vector<T, 4> operator+(Vector<T, 4> a, Vector<T, 4> b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
template <class T>
Vector<T, 4> operator*(Vector<T, 4> a, Vector<T, 4> b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
inline Vector<float, 4> operator+(Vector<float, 4> a, float b) { return a + Vector<float, 4>(b); }
inline Vector<float, 4> operator-(Vector<float, 4> a, float b) { return a + Vector<float, 4>(-b); }
inline Vector<float, 4> operator*(Vector<float, 4> a, float b) { return a * Vector<float, 4>(b); }
inline Vector<uint, 4> operator<<(Vector<uint, 4> a, int by) {
  return {a.x << by, a.y << by, a.z << by, a.w << by};
}

// Each operation of half precision rounds its result.
inline Vector<half, 2> operator-(Vector<half, 2> a, Vector<half, 2> b) {
  return {half(a.x - b.x), half(a.y - b.y)};
}

typedef Vector<float, 2> float2;
typedef Vector<float, 4> float4;
typedef Vector<half, 2> half2;
typedef Vector<half, 4> half4;
typedef Vector<char, 4> char4;
typedef Vector<uchar, 4> uchar4;
typedef Vector<ushort, 2> ushort2;
typedef Vector<ushort, 4> ushort4;
typedef Vector<uint, 2> uint2;
typedef Vector<uint, 3> uint3;
typedef Vector<uint, 4> uint4;
typedef Vector<ulong, 2> ulong2;
