#pragma once

// What a backend implements. The border (abi_*.cpp) checks every argument and owns the handles; a
// backend sees only checked requests.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quant/weight_type.h"
#include "row_source.h"

namespace forge {

struct Program;
struct StepInputs;
class ResultBlock;
class StopFlag;

// Consecutive rows of one type, in memory that `owner` keeps valid, or made by `source` when they
// are asked for.
struct WeightPart {
  WeightType type;
  uint64_t rows;
  const uint8_t* data;  // null where there is a source
  std::shared_ptr<const void> owner;
  bool mapped = false;  // the memory is a file's: its pages can be dropped and read again
  std::shared_ptr<const RowSource> source = nullptr;
  uint64_t first_made = 0;  // the source's number of the part's first row

  // Where rows lie, made in `scratch` if need be.
  const uint8_t* rows_at(uint64_t first, uint64_t n, uint64_t row_bytes,
                         std::vector<uint8_t>& scratch) const {
    if (!source) return data + first * row_bytes;
    scratch.resize(n * row_bytes);
    source->make(first_made + first, n, scratch.data());
    return scratch.data();
  }

  // What of a file's mapping holds these rows and nothing else.
  std::span<const uint8_t> mapped_bytes(uint64_t first, uint64_t n, uint64_t row_bytes) const {
    if (source) return source->made_of(first_made + first, n);
    return mapped ? std::span(data + first * row_bytes, n * row_bytes) : std::span<const uint8_t>();
  }
};

// A weight as it comes: its rows are those of the parts, in order.
struct WeightSource {
  std::vector<WeightPart> parts;
  uint64_t rows;
  uint64_t cols;
};

// A weight as the backend keeps it.
struct Weight {
  virtual ~Weight() = default;
  uint64_t rows = 0;
  uint64_t cols = 0;
};

struct KvShape {
  WeightType type;
  uint32_t n_pages;
  uint32_t page_tokens;
  uint32_t n_kv_heads;
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  bool values_in_keys = false;  // values are the first v_head_dim elements of the keys

  // Elements that are kept of each head: keys, then values where they are no part of these.
  uint32_t kept_dim() const { return values_in_keys ? k_head_dim : k_head_dim + v_head_dim; }
};

// The keys and values of one layer.
struct KvCache {
  virtual ~KvCache() = default;
  virtual void copy_page(uint32_t from, uint32_t to) = 0;
  virtual void read_page(uint32_t page, uint8_t* data) const = 0;
  virtual void write_page(uint32_t page, const uint8_t* data) = 0;
  KvShape shape{};
  uint64_t page_bytes = 0;
};

struct StateShape {
  uint32_t n_slots;
  uint32_t rows;
  uint32_t cols;
};

// What one operation remembers of the tokens before, for each sequence that holds a slot.
struct StateCache {
  virtual ~StateCache() = default;
  virtual void copy_slot(uint32_t from, uint32_t to) = 0;
  virtual void read_slot(uint32_t slot, uint8_t* data) const = 0;
  virtual void write_slot(uint32_t slot, const uint8_t* data) = 0;
  StateShape shape{};
  uint64_t slot_bytes = 0;
};

// A recorded step, ready to run.
struct Executable {
  virtual ~Executable() = default;
  virtual void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) = 0;
  // Copies rows of a kept value of the last run.
  virtual void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const = 0;
  uint64_t scratch_bytes = 0;
};

// Bytes of a device's memory.
struct DeviceMemory {
  uint64_t total;
  uint64_t free;
};

struct Backend {
  virtual ~Backend() = default;
  // JSON, as forge_device_info documents.
  virtual std::string info() const = 0;
  // As forge_set_attention documents; one of FORGE_ATTENTION_...
  virtual void set_attention(uint32_t attention);
  // As forge_device_memory documents; the host's memory unless a backend has its own.
  virtual DeviceMemory memory() const;
  // As forge_read_bandwidth documents.
  virtual uint64_t read_bandwidth() { return 0; }
  // True if runs read weights where their files are mapped; false if they only read copies.
  virtual bool reads_files() const { return true; }
  virtual std::shared_ptr<Weight> create_weight(WeightSource source) = 0;
  virtual void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                           float* out) const = 0;
  virtual std::shared_ptr<KvCache> create_kv(const KvShape& shape) = 0;
  virtual std::shared_ptr<StateCache> create_state(const StateShape& shape) = 0;
  virtual std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) = 0;
};

// What each library defines once.
const char* backend_name();
std::string list_devices();
std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t n_threads);

}  // namespace forge
