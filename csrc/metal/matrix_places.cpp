#include "matrix_places.h"

#include "../../kernels/metal/arguments.h"
#include "commands.h"

namespace forge::metal {

using namespace metal_args;

bool has_known_matrix_places(const std::shared_ptr<const Device>& device, Kernels& kernels) {
  constexpr uint32_t size = 8, lanes = 32, matrices = 3;
  const auto shared_floats = [&](uint32_t n) {
    return Buffer(device, n * sizeof(float), Purpose::activations, Storage::shared);
  };
  const Buffer matrix = shared_floats(size * size);
  const Buffer held = shared_floats(lanes * matrices * 2);
  auto* const numbers = reinterpret_cast<float*>(matrix.data());
  // Each element is its own index, which F16 holds exactly.
  for (uint32_t i = 0; i < size * size; ++i) numbers[i] = static_cast<float>(i);

  const Kernel& kernel = kernels.get("matrix_places", "matrix_places");
  kernels.load();
  const Launch launch(kernel, {}, {lanes}, {held.at(), matrix.at()}, MatrixPlacesArgs{size});
  const std::lock_guard lock(device->mutex());
  Commands commands(*device);
  commands.launch({&launch, 1}, held.at());
  commands.commit();
  commands.wait("looking where SIMD groups hold matrices");

  const auto* found = reinterpret_cast<const float*>(held.data());
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const MatrixPlace place = matrix_place(lane);
    const auto first = static_cast<float>(place.row * size + place.col);
    for (uint32_t m = 0; m < matrices; ++m, found += 2) {
      if (found[0] != first || found[1] != first + 1) return false;
    }
  }
  return true;
}

}  // namespace forge::metal
