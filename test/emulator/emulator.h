#pragma once

// Runs CUDA kernels on the CPU, one block at a time, or blocks that wait for each other in turns,
// each thread a fiber. The kernels' sources are compiled as C++ (see device.h). The tests and the
// stand-in for NVIDIA's driver launch kernels through this interface.
//
// Errors are reported by a line on stderr and abort(): threads that wait for a barrier or a warp
// that others will never reach, warp operations whose lanes disagree about the participants,
// misaligned asynchronous copies, a thread that ends with copies in flight, and writes past the end
// of shared memory (reads are faults). Plain builds check the alignment of every access and the
// size of every shift (build.ts). Shared memory is filled with NaN or with the largest numbers
// before each block, so that reading uninitialized memory spoils the result. With ThreadSanitizer,
// missing barriers are reported as races; with AddressSanitizer, accesses beyond a buffer or an
// array of shared memory are reported.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "registration.h"

namespace emulator {

struct Kernel;

struct Launch {
  Dim3 grid;
  Dim3 block;
  size_t dynamic_shared = 0;  // bytes
  size_t most_shared = SIZE_MAX;  // maximum bytes per block; more is an error
  // The kernels that the blocks compute together, which run all at once; null: one after another.
  const std::vector<const Kernel*>* operations = nullptr;
  // True to run all blocks at once, in turns, so that some wait for others; ignored where races are
  // watched or accesses traced.
  bool at_once = false;
};

// Runs `thread` as every thread of every block. With seed 0, blocks run in order and each thread
// runs until its next barrier. Other seeds shuffle both and make some threads late: they run only
// when nothing else can. The seed is the variable FORGE_EMULATOR_SEED (default 0) until another is
// set.
void run_grid(const Launch& launch, const std::function<void()>& thread);
void set_order_seed(uint64_t order_seed);

// A kernel, or an instance of a kernel template.
struct Kernel {
  std::string name;    // as in its INSTANCE line: "gemm<FormatQ4_K, f16>"
  std::string symbol;  // its mangled name, the same as NVRTC's
  std::vector<size_t> param_bytes;
  std::function<void(void** params)> thread;  // params in the format of cuLaunchKernel

  void launch(const Launch& shape, void** params) const;
  // The addresses of parameters that lie next to each other, each aligned to 8 bytes.
  std::vector<void*> parameters_at(const void* arguments) const;
};

// Makes a function the previous kernel of the next one: it runs as late as it may, when the first
// thread waits for it, or here if none has.
void set_previous_kernel(std::function<void()> function);
void finish_previous_kernel();
// Runs a kernel that is launched while the previous one runs: fails unless all threads wait for it.
// `Kernel::launch` always does.
void run_dependent_grid(const Launch& launch, const std::string& name,
                        const std::function<void()>& thread);

// Finds a kernel by name or symbol; null if there is none.
const Kernel* find_kernel(const std::string& name_or_symbol);
const std::vector<Kernel>& kernels();

}  // namespace emulator
