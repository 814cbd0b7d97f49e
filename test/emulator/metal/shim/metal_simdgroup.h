#pragma once

// Operations of the lanes of a SIMD group and of the threads of a threadgroup. All lanes must take
// part; a lane that the kernel ended early is missing, which is reported.

#define METAL_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

// True if a barrier orders accesses to the memory that is checked for races.
inline bool orders(mem_flags flags) {
  static_assert(unsigned(mem_flags::mem_device) == emulator::races::kDevice &&
                unsigned(mem_flags::mem_threadgroup) == emulator::races::kShared, "the same flags");
  return (unsigned(flags) & emulator::races::watched()) != 0;
}
inline void threadgroup_barrier(mem_flags flags, METAL_PLACE) {
  emulator::wait_for_block(file, line, orders(flags));
}
inline void simdgroup_barrier(mem_flags flags, METAL_PLACE) {
  emulator::collective(~0u, emulator::WarpOp::sync, nullptr, nullptr, file, line, orders(flags));
}

inline uint own_lane() { return emulator::position().lane; }

template <class T>
T simd_shuffle(T x, ushort lane, METAL_PLACE) {
  return emulator::shuffle(~0u, x, lane % 32, file, line);
}
template <class T>
T simd_shuffle_xor(T x, ushort bits, METAL_PLACE) {
  return emulator::shuffle(~0u, x, own_lane() ^ bits, file, line);
}
// Without such a lane, the result is the lane's own value.
template <class T>
T simd_shuffle_up(T x, ushort by, METAL_PLACE) {
  return emulator::shuffle(~0u, x, own_lane() >= by ? own_lane() - by : own_lane(), file, line);
}

struct simd_vote {
  typedef uint64_t vote_t;
  explicit operator vote_t() const { return votes; }
  vote_t votes;
};
inline simd_vote simd_ballot(bool vote, METAL_PLACE) {
  return {emulator::ballot(~0u, vote, file, line)};
}

// Runs `combine` on the 32 values of the lanes, in place.
template <class T, void (*combine)(T (&values)[32])>
T together(T x, const char* file, int line) {
  T own = x;
  emulator::collective(
      ~0u, emulator::WarpOp::reduce, &own,
      [](void* const* arguments, uint32_t) {
        T values[32];
        for (int i = 0; i < 32; ++i) values[i] = *static_cast<T*>(arguments[i]);
        combine(values);
        for (int i = 0; i < 32; ++i) *static_cast<T*>(arguments[i]) = values[i];
      },
      file, line);
  return own;
}

template <class T>
void add_lanes(T (&values)[32]) {
  for (int width = 16; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) values[i] += values[i + width];
  }
  for (T& value : values) value = values[0];
}
template <class T>
void least_lane(T (&values)[32]) {
  for (T value : values) values[0] = min(values[0], value);
  for (T& value : values) value = values[0];
}
template <class T>
void sum_lanes_before(T (&values)[32]) {
  T sum = 0;
  for (T& value : values) {
    const T own = value;
    value = sum;
    sum += own;
  }
}

template <class T>
T simd_sum(T x, METAL_PLACE) {
  return together<T, add_lanes<T>>(x, file, line);
}
template <class T>
T simd_min(T x, METAL_PLACE) {
  return together<T, least_lane<T>>(x, file, line);
}
template <class T>
T simd_prefix_exclusive_sum(T x, METAL_PLACE) {
  return together<T, sum_lanes_before<T>>(x, file, line);
}

// Lane l holds two numbers of row (l / 16) * 4 + l / 2 % 4, starting at column
// l / 8 % 2 * 4 + l % 2 * 2; in the other layout, the lanes hold the matrix in row-major order.
inline uint matrix_row(uint lane) {
  return emulator::has_other_matrix_places() ? lane / 4 : lane / 16 * 4 + lane / 2 % 4;
}
inline uint matrix_col(uint lane) {
  return emulator::has_other_matrix_places() ? lane % 4 * 2 : lane / 8 % 2 * 4 + lane % 2 * 2;
}

template <class T, int cols, int rows>
struct simdgroup_matrix {
  static_assert(cols == 8 && rows == 8, "matrices are 8 x 8");
  Vector<T, 2>& thread_elements() { return elements; }
  Vector<T, 2> elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;

template <class T, int cols, int rows>
simdgroup_matrix<T, cols, rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, cols, rows> matrix;
  matrix.elements = Vector<T, 2>(value);
  return matrix;
}

inline ulong matrix_place(uint i, ulong stride, ulong2 origin, bool transposed) {
  const uint row = matrix_row(own_lane()), col = matrix_col(own_lane()) + i;
  return transposed ? (origin.x + col) * stride + origin.y + row
                    : (origin.y + row) * stride + origin.x + col;
}

template <class T>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& to, const T* from, ulong stride = 8,
                    ulong2 origin = 0, bool transposed = false, METAL_PLACE) {
  emulator::collective(~0u, emulator::WarpOp::ldmatrix, nullptr, nullptr, file, line);
  for (uint i = 0; i < 2; ++i) to.elements[i] = from[matrix_place(i, stride, origin, transposed)];
}
template <class T>
void simdgroup_store(simdgroup_matrix<T, 8, 8> from, T* to, ulong stride = 8, ulong2 origin = 0,
                     bool transposed = false, METAL_PLACE) {
  emulator::collective(~0u, emulator::WarpOp::ldmatrix_trans, nullptr, nullptr, file, line);
  for (uint i = 0; i < 2; ++i) to[matrix_place(i, stride, origin, transposed)] = from.elements[i];
}

template <class A, class B>
struct MatrixProduct {
  simdgroup_matrix<A, 8, 8> a;
  simdgroup_matrix<B, 8, 8> b;
  simdgroup_matrix<float, 8, 8> sum;

  static void perform(void* const* arguments, uint32_t) {
    float a[8][8], b[8][8];
    for (uint lane = 0; lane < 32; ++lane) {
      const MatrixProduct& own = *static_cast<MatrixProduct*>(arguments[lane]);
      for (uint i = 0; i < 2; ++i) {
        a[matrix_row(lane)][matrix_col(lane) + i] = float(own.a.elements[i]);
        b[matrix_row(lane)][matrix_col(lane) + i] = float(own.b.elements[i]);
      }
    }
    for (uint lane = 0; lane < 32; ++lane) {
      MatrixProduct& own = *static_cast<MatrixProduct*>(arguments[lane]);
      for (uint i = 0; i < 2; ++i) {
        for (int k = 0; k < 8; ++k) {
          own.sum.elements[i] += a[matrix_row(lane)][k] * b[k][matrix_col(lane) + i];
        }
      }
    }
  }
};

template <class A, class B>
void simdgroup_multiply_accumulate(simdgroup_matrix<float, 8, 8>& to, simdgroup_matrix<A, 8, 8> a,
                                   simdgroup_matrix<B, 8, 8> b,
                                   simdgroup_matrix<float, 8, 8> plus, METAL_PLACE) {
  MatrixProduct<A, B> product = {a, b, plus};
  emulator::collective(~0u, emulator::WarpOp::mma, &product, MatrixProduct<A, B>::perform, file,
                       line);
  to = product.sum;
}

}  // namespace metal
