#include "products.h"

#include <algorithm>

namespace forge::cpu {

Products::Products(CpuDevice& device)
    : device_(device), scratch_(device.pool.n_threads() * kMatmulScratch * sizeof(float)) {}

void Products::run(const RowBlocks& rows, const std::vector<ProductGroup>& groups,
                   const Epilogue& epilogue, const StopFlag& stop) {
  tasks_.clear();
  for (const ProductGroup& group : groups) {
    for (uint32_t block = 0; block < rows.count(group.group); ++block) {
      for (uint32_t token = 0; token < group.n_tokens; token += kMatmulTokens) {
        tasks_.push_back({&group, block, token});
      }
    }
  }
  const auto count = static_cast<uint32_t>(tasks_.size());
  device_.pool.run(count, [&](uint32_t index, uint32_t thread) {
    if (stop.raised()) return;
    const Task& task = tasks_[index];
    const ProductGroup& group = *task.group;
    MatmulBlock block = matmul_block(rows, rows.at(group.group, task.block));
    if (epilogue.bias) block.bias = epilogue.bias + group.group * rows.group_rows();
    block.alpha = epilogue.alpha;
    block.activation = epilogue.activation;
    block.tokens = group.tokens + task.first_token;
    block.n_tokens = static_cast<uint32_t>(
        std::min<uint64_t>(kMatmulTokens, group.n_tokens - task.first_token));
    device_.kernels.matmul(block, scratch_.floats() + thread * kMatmulScratch);
  });
  stop.check();
}

}  // namespace forge::cpu
