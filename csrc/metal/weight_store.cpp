#include "weight_store.h"

#include <algorithm>

#include "../gpu/parallel.h"
#include "../gpu/rounding.h"

namespace forge::metal {

namespace {

// Largest weight whose pieces are copied into one: reading it takes less time than the launches
// saved in every step.
constexpr uint64_t kMergeBytes = 8u << 20;
// Alignment of copied rows.
constexpr uint64_t kAlignment = 16;
// Floats that one thread decodes at a time.
constexpr uint64_t kPieceFloats = 1u << 18;

uint64_t part_bytes(const WeightPart& part, uint64_t cols) {
  return part.rows * *row_bytes(part.type, cols);
}

// Consecutive rows of one type in memory.
struct Piece {
  const WeightPart* first;
  uint64_t first_row;
  uint64_t rows;
  uint64_t bytes;
};

std::vector<Piece> pieces_of(const MetalWeight& weight) {
  std::vector<Piece> pieces;
  uint64_t row = 0;
  for (const WeightPart& part : weight.parts) {
    const uint64_t bytes = part_bytes(part, weight.cols);
    Piece* last = pieces.empty() ? nullptr : &pieces.back();
    if (last && !part.source && part.type == last->first->type &&
        part.owner == last->first->owner && part.data == last->first->data + last->bytes) {
      last->rows += part.rows;
      last->bytes += bytes;
    } else {
      pieces.push_back({&part, row, part.rows, bytes});
    }
    row += part.rows;
  }
  return pieces;
}

bool is_uniform(const MetalWeight& weight) {
  return std::ranges::all_of(weight.parts, [&](const WeightPart& part) {
    return part.type == weight.parts[0].type;
  });
}

// Alignment of a weight that kernels need (kernels/metal/arguments.h).
uint32_t alignment_of(WeightType type) {
  switch (type) {
    case WeightType::F32:
    case WeightType::F16:
    case WeightType::BF16:
    case WeightType::Q4_K:
      return 8;
    case WeightType::FP8:
      return 4;
    case WeightType::Q8_0:
    case WeightType::Q4_0:
    case WeightType::Q6_K:
      return 2;
    default:
      return 1;
  }
}

bool is_readable_in_place(const WeightPart& part) {
  return part.mapped && reinterpret_cast<uintptr_t>(part.data) % alignment_of(part.type) == 0;
}

// Lays out the rows of a copy in one buffer; sets `bytes` to its size.
std::vector<WeightRows> copied_rows(const MetalWeight& weight, uint64_t& bytes) {
  std::vector<WeightRows> list;
  uint64_t row = 0;
  bytes = 0;
  for (const WeightPart& part : weight.parts) {
    if (list.empty() || list.back().type != part.type) {
      bytes = padded_to(bytes, kAlignment);
      list.push_back({part.type, row, 0, *row_bytes(part.type, weight.cols), nullptr, bytes});
    }
    list.back().rows += part.rows;
    bytes += part_bytes(part, weight.cols);
    row += part.rows;
  }
  return list;
}

std::vector<WeightRows> mapped_rows(const MetalWeight& weight) {
  std::vector<WeightRows> list;
  for (const Piece& piece : pieces_of(weight)) {
    const WeightType type = piece.first->type;
    list.push_back(
        {type, piece.first_row, piece.rows, *row_bytes(type, weight.cols), nullptr, 0});
  }
  return list;
}

bool has_place(const std::vector<WeightRows>& rows) { return !rows.empty() && rows[0].buffer; }

uint64_t float_bytes(const MetalWeight& weight) {
  return weight.rows * weight.cols * sizeof(float);
}

}  // namespace

void WeightStore::add_matrix(const WeightRef& reference) {
  const MetalWeight& weight = metal_weight(*reference);
  if (!has_place(weight.matrix)) matrices_.emplace(&weight, reference);
}

void WeightStore::add_unified(const WeightRef& reference) {
  const MetalWeight& weight = metal_weight(*reference);
  if (!weight.unified || !weight.unified->buffer) unified_.emplace(&weight, reference);
}

void WeightStore::add_floats(const WeightRef& reference) {
  if (!reference) return;
  const MetalWeight& weight = metal_weight(*reference);
  if (!weight.floats) floats_.emplace(&weight, reference);
}

bool WeightStore::needs_copy(const MetalWeight& weight) const {
  if (!std::ranges::all_of(weight.parts, is_readable_in_place)) return true;
  const std::vector<Piece> pieces = pieces_of(weight);
  if (pieces.size() == 1) return false;
  // One product reads them where they are.
  if (pieces.size() <= kMostPieces && is_uniform(weight) && !unified_.contains(&weight)) {
    return false;
  }
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  // Kernels that take a weight in one type take it in one piece.
  return bytes <= kMergeBytes || unified_.contains(&weight);
}

std::vector<MappedRange> WeightStore::mapped_ranges() const {
  std::vector<MappedRange> ranges;
  const auto add = [&](const MetalWeight& weight) {
    if (needs_copy(weight)) return;
    for (const Piece& piece : pieces_of(weight)) {
      ranges.push_back({piece.first->data, piece.bytes, piece.first->owner});
    }
  };
  for (const auto& [weight, reference] : matrices_) add(*weight);
  for (const auto& [weight, reference] : unified_) {
    if (takes_own_place(*weight)) add(*weight);
  }
  return ranges;
}

// True if a weight of one type needs a piece of its own because its matrix is not one piece.
bool WeightStore::takes_own_place(const MetalWeight& weight) const {
  const bool has_matrix = matrices_.contains(&weight) || has_place(weight.matrix);
  return is_uniform(weight) && !(has_matrix && weight.matrix.size() == 1);
}

uint64_t WeightStore::bytes() const {
  uint64_t total = windows_.missing_bytes(mapped_ranges());
  const auto add = [&](const MetalWeight& weight) {
    uint64_t copied = 0;
    if (needs_copy(weight)) copied_rows(weight, copied);
    total += copied;
  };
  for (const auto& [weight, reference] : matrices_) add(*weight);
  for (const auto& [weight, reference] : unified_) {
    if (!is_uniform(*weight)) total += float_bytes(*weight);
    if (takes_own_place(*weight)) add(*weight);
  }
  for (const auto& [weight, reference] : floats_) total += float_bytes(*weight);
  return total;
}

void WeightStore::lay_out() {
  const auto rows_of = [&](const MetalWeight& weight) {
    uint64_t bytes = 0;
    return needs_copy(weight) ? copied_rows(weight, bytes) : mapped_rows(weight);
  };
  for (const auto& [weight, reference] : matrices_) weight->matrix = rows_of(*weight);
  for (const auto& [weight, reference] : unified_) {
    if (!is_uniform(*weight)) {
      const uint64_t row = weight->cols * sizeof(float);
      weight->unified = {WeightType::F32, 0, weight->rows, row, nullptr, 0};
    } else if (takes_own_place(*weight)) {
      weight->unified = rows_of(*weight)[0];
    } else {
      weight->unified = weight->matrix[0];
    }
  }
}

void WeightStore::run() {
  const auto opened = windows_.open(mapped_ranges());
  for (const auto& [weight, reference] : matrices_) place(*weight, weight->matrix);
  for (const auto& [weight, reference] : floats_) weight->floats = copy_floats(*weight);
  for (const auto& [weight, reference] : unified_) {
    if (!is_uniform(*weight)) {
      weight->unified->buffer = copy_floats(*weight);
    } else if (takes_own_place(*weight)) {
      place(*weight, {&*weight->unified, 1});
    } else {
      weight->unified = weight->matrix[0];
    }
  }
}

void WeightStore::place(const MetalWeight& weight, std::span<WeightRows> rows) const {
  if (needs_copy(weight)) return copy(weight, rows);
  const std::vector<Piece> pieces = pieces_of(weight);
  for (size_t i = 0; i < rows.size(); ++i) {
    SharedPlace found = windows_.find(pieces[i].first->data, pieces[i].bytes);
    rows[i].buffer = std::move(found.buffer);
    rows[i].offset = found.offset;
  }
}

void WeightStore::copy(const MetalWeight& weight, std::span<WeightRows> rows) const {
  uint64_t bytes = 0;
  copied_rows(weight, bytes);
  const auto buffer =
      std::make_shared<const Buffer>(device_, bytes, Purpose::weights, Storage::shared);
  auto target = rows.begin();
  uint64_t row = 0;
  for (const WeightPart& part : weight.parts) {
    if (row >= target->first_row + target->rows) ++target;
    uint8_t* to = buffer->data() + target->offset + (row - target->first_row) * target->row_bytes;
    copy_part(to, part, 0, part.rows, *row_bytes(part.type, weight.cols), n_threads_);
    row += part.rows;
  }
  for (WeightRows& each : rows) each.buffer = buffer;
}

std::shared_ptr<const Buffer> WeightStore::copy_floats(const MetalWeight& weight) const {
  auto buffer = std::make_shared<const Buffer>(device_, float_bytes(weight), Purpose::weights,
                                               Storage::shared);
  const uint64_t piece_rows = std::max<uint64_t>(1, kPieceFloats / weight.cols);
  parallel_for(divide_up(weight.rows, piece_rows), n_threads_, [&](size_t i) {
    const uint64_t first = i * piece_rows;
    auto* out = reinterpret_cast<float*>(buffer->data()) + first * weight.cols;
    weight.read(first, std::min(piece_rows, weight.rows - first), out);
  });
  return buffer;
}

}  // namespace forge::metal
