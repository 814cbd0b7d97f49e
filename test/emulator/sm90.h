#pragma once

// SM90's additional features: barriers that count bytes, the copy engine, and products of a
// warpgroup. All of them finish as late as possible: a copy when no thread can run, a product when
// its warp waits for it. Until then, a copy's destination is poisoned and sums lack the product.

#include <cstddef>
#include <cstdint>

namespace emulator::sm90 {

// Records a store. Stores to shared memory are visible to the copy engine and to products only
// after the same thread has passed a fence of the asynchronous proxy; initialized barriers only
// after their own fence. Stores to other memory are ignored.
void note_store(const void* to, size_t bytes);
void async_proxy_fence();
void barrier_init_fence();

// An mbarrier in shared memory; see PTX ISA, "mbarrier".
void barrier_init(uint64_t* barrier, int arrivals);
// Arrives once, after adding `bytes` to the bytes expected in the phase.
void barrier_arrive(uint64_t* barrier, int bytes);
void barrier_wait(uint64_t* barrier, int parity);

// One of the sixteen named barriers; `waits` distinguishes bar.sync from bar.arrive.
void named_barrier(int number, int threads, bool waits);

// A tensor of 16-bit elements with four dimensions, the innermost contiguous, and a box of the two
// inner dimensions. 16-byte chunks of the box are swizzled within `swizzle_bytes`, 128 or 64.
struct TensorBox {
  const char* data;
  int64_t size[4];
  int64_t stride[4];  // bytes
  int32_t box[2];
  int32_t swizzle_bytes;
};

// Describes a tensor and a box of it if cuTensorMapEncodeTiled would: sizes from 1 to 2^32, strides
// that are multiples of 16 below 2^40, data aligned to 16 bytes, and a box of at most 256 rows of
// one swizzle's width. Drivers accept a stride of zero, but the function's documentation requires
// rows that do not overlap.
bool describe_box(TensorBox& box, const void* data, const uint64_t (&sizes)[4],
                  const uint64_t (&strides)[3], int32_t columns, int32_t rows);

void copy_box(void* shared, const TensorBox& tensor, uint64_t* barrier, const int (&at)[4]);

// wgmma.mma_async of m64nNk16, or k32 with numbers of eight bits: c (of this thread) += or = a b.
// `a` is in registers, or null and in shared memory at `a_descriptor`. b is in shared memory at
// `b_descriptor`, with contiguous depth, or contiguous columns if `b_transposed`.
struct Product {
  float* c;
  int columns;
  bool accumulate;
  const uint32_t* a;
  uint64_t a_descriptor;
  uint64_t b_descriptor;
  bool b_transposed;
  float (*value_of)(uint32_t word, int element);
  int each = 1;  // numbers in 16 bits
};

// Registers that products use may be changed by the thread only before a fence (wgmma.fence): a
// product fails if its registers differ from those at the thread's last fence, or if the thread has
// waited for products since, after which it may have changed any.
void product_fence();
void issue_product(const Product& product);
void commit_products();
void wait_products(size_t groups_left);

// The address of dynamic shared memory as used in descriptors and copies.
uint32_t shared_address(const void* pointer);

}  // namespace emulator::sm90
