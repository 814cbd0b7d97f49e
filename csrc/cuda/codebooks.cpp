// The tables of the IQ weight types, in the order that kernels/cuda expects.

#include <cstring>
#include <vector>

#include "../common/quant/iq1.h"
#include "../common/quant/iq2.h"
#include "../common/quant/iq3.h"
#include "cuda_device.h"

namespace forge::cuda {

namespace {

template <class Table>
void append(std::vector<uint8_t>& bytes, const Table& table) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&table);
  bytes.insert(bytes.end(), begin, begin + sizeof table);
}

}  // namespace

DevicePointer CudaDevice::codebooks() {
  if (codebooks_) return codebooks_.at();
  std::vector<uint8_t> bytes;
  append(bytes, iq1_grid);
  append(bytes, iq2_xxs_grid);
  append(bytes, iq2_xs_grid);
  append(bytes, iq2_s_grid);
  append(bytes, iq3_xxs_grid);
  append(bytes, iq3_s_grid);
  const DeviceScope scope(device());
  DeviceBuffer memory(state, bytes.size(), Purpose::weights);
  device().check(
      device().api().copy_to_device(memory.at(), bytes.data(), bytes.size(), device().stream()),
      "copying the tables of IQ types");
  device().synchronize("copying the tables of IQ types");
  codebooks_ = std::move(memory);
  return codebooks_.at();
}

}  // namespace forge::cuda
