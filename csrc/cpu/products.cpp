#include "products.h"

#include <algorithm>

namespace forge::cpu {

Products::Products(CpuDevice& device)
    : device_(device), scratch_(device.pool.n_threads() * kMatmulScratch * sizeof(float)) {}

void Products::plan(const RowBlocks& rows, const std::vector<ProductGroup>& groups) {
  uint32_t n_blocks = 0;
  for (const ProductGroup& group : groups) {
    if (group.n_tokens > 0) n_blocks += rows.count(group.group);
  }
  // With few tokens a block takes microseconds, and kernels fetch ahead into the next one: a thread
  // gets several in a row, as long as there are enough tasks to keep all threads busy to the end.
  const uint32_t step = std::clamp(n_blocks / (8 * device_.pool.n_threads()), 1u, 4u);
  tasks_.clear();
  for (const ProductGroup& group : groups) {
    const uint32_t end = rows.count(group.group);
    for (uint32_t block = 0; block < end; block += step) {
      for (uint32_t token = 0; token < group.n_tokens; token += kMatmulTokens) {
        tasks_.push_back({&group, block, std::min(end, block + step), token});
      }
    }
  }
}

void Products::run(const RowBlocks& rows, const std::vector<ProductGroup>& groups,
                   const Epilogue& epilogue, const StopFlag& stop) {
  plan(rows, groups);
  device_.pool.run(static_cast<uint32_t>(tasks_.size()), [&](uint32_t index, uint32_t thread) {
    const Task& task = tasks_[index];
    const ProductGroup& group = *task.group;
    for (uint32_t i = task.first_block; i < task.end_block && !stop.raised(); ++i) {
      MatmulBlock block = matmul_block(rows, rows.at(group.group, i));
      if (epilogue.bias) block.bias = epilogue.bias + group.group * rows.group_rows();
      block.alpha = epilogue.alpha;
      block.activation = epilogue.activation;
      block.tokens = group.tokens + task.first_token;
      block.n_tokens = static_cast<uint32_t>(
          std::min<uint64_t>(kMatmulTokens, group.n_tokens - task.first_token));
      device_.kernels.matmul(block, scratch_.floats() + thread * kMatmulScratch);
    }
  });
  stop.check();
}

}  // namespace forge::cpu
