#include "../weights.h"

#include "../../../../csrc/common/quant/weight_type.h"
#include "launch.h"

namespace kernel_test {

namespace {

u64 padded(u64 bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

PlacedRows place_rows(const WeightKind& kind, const std::vector<u8>& raw, u32 rows, u32 n_blocks) {
  const u32 block_bytes = forge::find_weight_type(kind.type)->block_bytes;
  const u64 raw_row = u64(n_blocks) * block_bytes;
  u64 stride = padded(raw_row);
  const bool repacked =
      kind.type == 8 || kind.type == 2 || kind.type == 12 || kind.type == 14 || kind.type == 256;
  if (repacked && kind.type != 12) {
    const u32 scale_bytes = kind.type == 14 ? 0 : kind.type == 256 ? 4 : 2;
    const u64 scales = padded((kind.type == 256 ? 4 : 2) * u64(n_blocks));
    stride = kind.type == 14 ? padded(u64(n_blocks) * 208) + scales
                             : u64(n_blocks) * (block_bytes - scale_bytes) + scales;
  }
  Buffer<u8> data(rows * stride);
  std::memset(data.data(), 0, data.size());
  if (repacked) {
    Buffer<u8> staged(raw.size());
    std::memcpy(staged.data(), raw.data(), raw.size());
    launch("repack_rows<" + std::string(kind.format) + ">",
           {{blocks_for(n_blocks, 8), rows}, {256}},
           cuda_args::RepackRows<const void*>{.out = data.data(),
                                              .raw = staged.data(),
                                              .raw_row_bytes = raw_row,
                                              .out_row_bytes = stride,
                                              .rows = rows,
                                              .n_blocks = n_blocks});
  } else {
    for (u32 r = 0; r < rows; ++r) std::memcpy(&data[r * stride], &raw[r * raw_row], raw_row);
  }
  return {stride, std::move(data)};
}

}  // namespace kernel_test
