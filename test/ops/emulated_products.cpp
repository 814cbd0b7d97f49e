// Multiplies on a device of a library, for processors that only an emulator runs: see
// emulated_products_test.ts.
//
//   emulated_products LIBRARY SELECTOR < cases > products
//
// A case is 5 words (type, rows, columns, tokens, bytes of the weight), the weight and
// x[tokens][columns]; its products are out[tokens][rows].

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "../../csrc/forge.h"

namespace {

void* library;

// A function of the library.
template <class Function>
Function* symbol(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define CALL(name, ...) check(symbol(#name, &name)(__VA_ARGS__), #name)

void check(forge_status status, const char* what) {
  if (status == FORGE_OK) return;
  std::fprintf(stderr, "%s: status %d\n", what, static_cast<int>(status));
  std::exit(1);
}

template <class T>
bool read(std::vector<T>& to) {
  return std::fread(to.data(), sizeof(T), to.size(), stdin) == to.size();
}

std::vector<float> multiply(uint32_t device, uint32_t type, uint32_t rows, uint32_t cols,
                            uint32_t tokens, const std::vector<uint8_t>& weight,
                            const std::vector<float>& x) {
  uint32_t table, matrix, step, input, product;
  CALL(forge_weight_upload, device, FORGE_F32, tokens, cols, x.data(), 4 * x.size(), &table);
  CALL(forge_weight_upload, device, type, rows, cols, weight.data(), weight.size(), &matrix);
  CALL(forge_step_begin, device, tokens, 1, 1, 1, &step);
  constexpr uint32_t kOne = std::bit_cast<uint32_t>(1.0f);
  const uint32_t embed[] = {table, kOne};
  CALL(forge_record, step, "embed", embed, std::size(embed), &input);
  const uint32_t matmul[] = {input, matrix, 0, kOne, FORGE_IDENTITY, 0};
  CALL(forge_record, step, "matmul", matmul, std::size(matmul), &product);
  CALL(forge_step_keep, step, product);
  uint64_t scratch;
  CALL(forge_step_end, step, &scratch);
  // The header of a run of one step, then tokens, positions, sequences, one page table of one page,
  // one state slot and one key length.
  forge_step_header header{};
  header.n_tokens = tokens;
  header.n_sequences = header.n_pages = header.n_steps = 1;
  const auto words = std::bit_cast<std::array<uint32_t, sizeof header / sizeof(uint32_t)>>(header);
  std::vector<uint32_t> inputs(words.begin(), words.end());
  for (int list = 0; list < 2; ++list) {
    for (uint32_t i = 0; i < tokens; ++i) inputs.push_back(i);
  }
  inputs.resize(inputs.size() + tokens + 3);
  CALL(forge_step_run, step, inputs.data(), 4 * inputs.size(), nullptr, 0, nullptr);
  std::vector<float> out(uint64_t{tokens} * rows);
  CALL(forge_step_read, step, product, 0, tokens, out.data(), 4 * out.size());
  for (const uint32_t handle : {step, table, matrix}) CALL(forge_release, handle);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
    std::fprintf(stderr, "%s\n", argc == 3 ? dlerror() : "two arguments");
    return 1;
  }
  uint32_t device;
  char message[256] = "";
  CALL(forge_device_open, argv[2], 2, &device, message, sizeof message);
  // Compares the kernels with those of other processors, whose instructions it must not execute.
  CALL(forge_set_products, device, FORGE_PRODUCTS_AUTO);
  std::vector<uint32_t> head(5);
  while (read(head)) {
    std::vector<uint8_t> weight(head[4]);
    std::vector<float> x(uint64_t{head[3]} * head[2]);
    if (!read(weight) || !read(x)) return 1;
    const std::vector<float> out =
        multiply(device, head[0], head[1], head[2], head[3], weight, x);
    std::fwrite(out.data(), 4, out.size(), stdout);
  }
}
