// Matrix products of SM90, by the four warps of a warpgroup: 64 rows, wgmma.mma_async.
//
// A product is asynchronous. Its accumulators and register operands must not be accessed until its
// group has been waited for. A fence is required between the last ordinary access to them and the
// first product.
#pragma once

#include "threads.cuh"

namespace flash_attn {

FA_DEVICE void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FA_DEVICE void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kPending groups of products are in flight.
template <int kPending>
FA_DEVICE void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Stores four 8x8 matrices of 16-bit elements, as load_matrices loads them: lane l passes row
// l % 8 of matrix l / 8, and has elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of each.
FA_DEVICE void store_matrices(void *row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                   shared_address(row)),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// Products of 64 rows and kColumns columns over 16 elements of depth, or pairs of E4M3.
template <class T, int kColumns>
struct WarpgroupProduct;

// Accumulator registers as operands: names in the instruction, and bindings for two column tiles.
#define FA_NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FA_NAMES_1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define FA_NAMES_2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define FA_NAMES_3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define FA_NAMES_4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define FA_NAMES_5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define FA_NAMES_6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define FA_NAMES_7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define FA_NAMES_8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define FA_NAMES_9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define FA_NAMES_10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define FA_NAMES_11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define FA_NAMES_12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define FA_NAMES_13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define FA_NAMES_14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define FA_NAMES_15 ",%120,%121,%122,%123,%124,%125,%126,%127"

#define FA_NAMES_64 FA_NAMES_0 FA_NAMES_1 FA_NAMES_2 FA_NAMES_3
#define FA_NAMES_80 FA_NAMES_64 FA_NAMES_4
#define FA_NAMES_96 FA_NAMES_80 FA_NAMES_5
#define FA_NAMES_112 FA_NAMES_96 FA_NAMES_6
#define FA_NAMES_128 FA_NAMES_112 FA_NAMES_7
#define FA_NAMES_192 FA_NAMES_128 FA_NAMES_8 FA_NAMES_9 FA_NAMES_10 FA_NAMES_11
#define FA_NAMES_256 FA_NAMES_192 FA_NAMES_12 FA_NAMES_13 FA_NAMES_14 FA_NAMES_15

#define FA_BIND_TILE(n) "+f"(c[0][n][0]), "+f"(c[0][n][1]), "+f"(c[0][n][2]), "+f"(c[0][n][3])
#define FA_BIND(n) FA_BIND_TILE(n), FA_BIND_TILE(n + 1)
#define FA_BIND_64 FA_BIND(0), FA_BIND(2), FA_BIND(4), FA_BIND(6)
#define FA_BIND_80 FA_BIND_64, FA_BIND(8)
#define FA_BIND_96 FA_BIND_80, FA_BIND(10)
#define FA_BIND_112 FA_BIND_96, FA_BIND(12)
#define FA_BIND_128 FA_BIND_112, FA_BIND(14)
#define FA_BIND_192 FA_BIND_128, FA_BIND(16), FA_BIND(18), FA_BIND(20), FA_BIND(22)
#define FA_BIND_256 FA_BIND_192, FA_BIND(24), FA_BIND(26), FA_BIND(28), FA_BIND(30)

// from_shared: c = a b^T, or c += a b^T, both in shared memory with depth contiguous.
// from_registers: c += a b, a in registers, b in shared memory with columns contiguous, or depth
// for E4M3. from_registers_by_depth: c += a b^T, b in shared memory with depth contiguous.
// `shared`, `registers` and `by_depth` are the constants that end the instruction: c is added (for
// registers), the signs of a and b, and, for 16-bit numbers, which operands in shared memory are
// transposed. i0 to i4 are the indices of the operands after the accumulators.
#define FA_PRODUCT_OF_REGISTERS(name, shape, registers, n, i0, i1, i2, i3, i4)                 \
  FA_DEVICE static void name(float (&c)[1][n / 8][4], const uint32_t (&a)[4], uint64_t b) {    \
    asm volatile(                                                                              \
        "wgmma.mma_async.sync.aligned.m64n" #n shape " {" FA_NAMES_##n                         \
        "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", " registers ";"                   \
        : FA_BIND_##n                                                                          \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                 \
  }
#define FA_PRODUCT(T, shape, shared, registers, by_depth, n, i0, i1, i2, i3, i4)               \
  template <>                                                                                  \
  struct WarpgroupProduct<T, n> {                                                              \
    FA_DEVICE static void from_shared(float (&c)[1][n / 8][4], uint64_t a, uint64_t b,         \
                                      bool accumulate) {                                       \
      asm volatile(                                                                            \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\n"                                    \
          "wgmma.mma_async.sync.aligned.m64n" #n shape " {" FA_NAMES_##n                       \
          "}, %" #i0 ", %" #i1 ", p, " shared ";\n}"                                           \
          : FA_BIND_##n                                                                        \
          : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                \
    }                                                                                          \
    FA_PRODUCT_OF_REGISTERS(from_registers, shape, registers, n, i0, i1, i2, i3, i4)           \
    FA_PRODUCT_OF_REGISTERS(from_registers_by_depth, shape, by_depth, n, i0, i1, i2, i3, i4)   \
  };

#define FA_PRODUCT_16(T, type, ...) \
  FA_PRODUCT(T, "k16.f32." type "." type, "1, 1, 0, 0", "1, 1, 1, 1", \
             "1, 1, 1, 0", __VA_ARGS__)
#define FA_PRODUCT_E4M3(...) \
  FA_PRODUCT(e4m3_pair, "k32.f32.e4m3.e4m3", "1, 1", "1, 1, 1", "1, 1, 1", __VA_ARGS__)

#define FA_PRODUCTS(T, type)                                       \
  FA_PRODUCT_16(T, type, 64, 32, 33, 34, 35, 36)                   \
  FA_PRODUCT_16(T, type, 80, 40, 41, 42, 43, 44)                   \
  FA_PRODUCT_16(T, type, 96, 48, 49, 50, 51, 52)                   \
  FA_PRODUCT_16(T, type, 112, 56, 57, 58, 59, 60)                  \
  FA_PRODUCT_16(T, type, 128, 64, 65, 66, 67, 68)                  \
  FA_PRODUCT_16(T, type, 192, 96, 97, 98, 99, 100)                 \
  FA_PRODUCT_16(T, type, 256, 128, 129, 130, 131, 132)

FA_PRODUCTS(f16, "f16")
FA_PRODUCTS(bf16, "bf16")
FA_PRODUCT_E4M3(64, 32, 33, 34, 35, 36)
FA_PRODUCT_E4M3(128, 64, 65, 66, 67, 68)
FA_PRODUCT_E4M3(192, 96, 97, 98, 99, 100)
FA_PRODUCT_E4M3(256, 128, 129, 130, 131, 132)

}  // namespace flash_attn
