#include "weights.h"

#include "../../../csrc/common/float16.h"
#include "../../../csrc/common/quant/iq1.h"
#include "../../../csrc/common/quant/iq2.h"
#include "../../../csrc/common/quant/iq3.h"
#include "../../../csrc/common/quant/weight_type.h"

namespace kernel_test {

namespace {

// Offsets of the F16 scales in a block. The first scale is about `magnitude`, a second one (a
// minimum) a quarter of it.
struct ScalePlaces {
  u32 type;
  int first, second;
  float magnitude;  // so that weights are about 1
};
const ScalePlaces scale_places[] = {
    {2, 0, -1, 0.12f},    {3, 0, 2, 0.06f},     {6, 0, -1, 0.06f},    {7, 0, 2, 0.03f},
    {8, 0, -1, 0.008f},   {10, 80, 82, 0.05f},  {11, 108, -1, 0.01f}, {12, 0, 2, 0.002f},
    {13, 0, 2, 0.001f},   {14, 208, -1, 0.0003f}, {16, 0, -1, 0.01f}, {17, 0, -1, 0.01f},
    {18, 0, -1, 0.01f},   {19, 0, -1, 0.1f},    {20, 0, -1, 0.01f},   {21, 0, -1, 0.005f},
    {22, 0, -1, 0.01f},   {23, 0, -1, 0.0005f}, {34, 52, -1, 1.0f},   {35, 64, -1, 0.7f},
};

void put_f16(u8* at, float value) {
  const u16 bits = forge::f32_to_f16(value);
  std::memcpy(at, &bits, 2);
}

void put_scales(Random& random, u32 type, float size, u8* block) {
  if (type == 256) {
    const float scale = 0.002f * size * (0.5f + std::abs(random.number()));
    std::memcpy(block, &scale, 4);
  }
  if (type == 257) {  // half of the largest E4M3 is 224, the largest E2M1 6
    const float scale = 0.001f * size * (0.5f + std::abs(random.number()));
    std::memcpy(block, &scale, 4);
  }
  if (type == 39) block[0] = static_cast<u8>(120 + random.below(4));  // an exponent
  if (type == 29) {  // the scale's four nibbles are the upper nibbles of four numbers
    const u16 bits = forge::f32_to_f16(0.1f * size);
    for (int n = 0; n < 4; ++n) {
      u8& byte = block[48 + 2 * n + 1];
      byte = static_cast<u8>((byte & 0xf) | (bits >> (4 * n) & 0xf) << 4);
    }
  }
  for (const ScalePlaces& places : scale_places) {
    if (places.type != type) continue;
    const float scale = places.magnitude * size * (0.5f + std::abs(random.number()));
    put_f16(block + places.first, random.below(2) != 0 ? scale : -scale);
    if (places.second >= 0) put_f16(block + places.second, scale);
  }
}

// Rows in the layout of a file.
std::vector<u8> random_rows(Random& random, const forge::WeightTypeInfo& info, u32 rows, u32 cols) {
  const u32 type = static_cast<u32>(info.type);
  const float size = 1.0f / std::sqrt(static_cast<float>(cols));
  std::vector<u8> raw(u64(rows) * cols / info.block_elements * info.block_bytes);
  for (size_t at = 0; at < raw.size(); at += info.block_bytes) {
    const float value = random.normal(size);
    if (type == 0) std::memcpy(&raw[at], &value, 4);
    if (type == 1) put_f16(&raw[at], value);
    const u16 brain = forge::f32_to_bf16(value);
    if (type == 30) std::memcpy(&raw[at], &brain, 2);
    if (info.block_elements == 1) continue;
    for (u32 i = 0; i < info.block_bytes; ++i) raw[at + i] = static_cast<u8>(random.next());
    put_scales(random, type, size, &raw[at]);
  }
  return raw;
}

}  // namespace

DeviceWeight random_weight(Random& random, const WeightKind& kind, u32 rows, u32 cols) {
  const forge::WeightTypeInfo& info = *forge::find_weight_type(kind.type);
  const std::vector<u8> raw = random_rows(random, info, rows, cols);
  const u32 nb = cols / info.block_elements;
  PlacedRows placed = place_rows(kind, raw, rows, nb);
  std::vector<float> values(u64(rows) * cols);
  info.dequantize(raw.data(), values.data(), values.size());
  return {kind.format, rows, cols, placed.stride, std::move(placed.data), std::move(values)};
}

DeviceWeight spread_rows(const DeviceWeight& weight, u64 stride) {
  auto data = Buffer<u8>::sparse(weight.rows * stride);
  for (u32 r = 0; r < weight.rows && data.size() > 0; ++r) {
    std::memcpy(&data[r * stride], &weight.data[r * weight.row_stride], weight.row_stride);
  }
  return {weight.format, weight.rows, weight.cols, stride, std::move(data), weight.values};
}

const Buffer<u64>& codebooks() {
  static Buffer<u64> tables(2048 + 256 + 512 + 1024 + 128 + 256);
  static const bool filled = [] {
    u64* at = tables.data();
    const auto append = [&at](const auto& table) {
      std::memcpy(at, table.data(), sizeof table);
      at += sizeof table / sizeof *at;
    };
    append(forge::iq1_grid);
    append(forge::iq2_xxs_grid);
    append(forge::iq2_xs_grid);
    append(forge::iq2_s_grid);
    append(forge::iq3_xxs_grid);
    append(forge::iq3_s_grid);
    return at == tables.end();
  }();
  EXPECT(filled);
  return tables;
}

double plain_dot(const float* row, const float* x, u32 n) {
  double sum = 0;
  for (u32 i = 0; i < n; ++i) sum += double(row[i]) * x[i];
  return sum;
}

}  // namespace kernel_test
