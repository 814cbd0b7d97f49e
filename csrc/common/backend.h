#pragma once

// The interface of a backend. The border (abi_*.cpp) checks every argument and owns the handles; a
// backend receives only checked requests.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/weight_type.h"

namespace forge {

struct Program;
struct StepInputs;
class ResultBlock;
class RunProfile;
class StopFlag;

// Converts the rows of a weight that a file has in another format. Several threads may call its
// methods at the same time.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Writes rows, in the block format of the part that has this source, to `out`.
  virtual void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const = 0;
  // Returns the bytes of the file used only by these rows; empty if other rows use them too.
  virtual std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const = 0;
};

// Consecutive rows of one type, in memory that `owner` keeps valid, or converted by `source` when
// they are read.
struct WeightPart {
  WeightType type;
  uint64_t rows;
  const uint8_t* data;  // null if there is a source
  std::shared_ptr<const void> owner;
  bool mapped = false;  // in a mapped file: its pages can be dropped and read again
  std::shared_ptr<const RowSource> source = nullptr;
  uint64_t first_made = 0;  // index in the source of the first row of the part

  // Returns the address of rows, which a source writes to `scratch`.
  const uint8_t* rows_at(uint64_t first, uint64_t n, uint64_t row_bytes,
                         std::vector<uint8_t>& scratch) const {
    if (!source) return data + first * row_bytes;
    scratch.resize(n * row_bytes);
    source->make(first_made + first, n, scratch.data());
    return scratch.data();
  }

  // Returns the bytes of a mapped file used only by these rows; empty if there are none.
  std::span<const uint8_t> mapped_bytes(uint64_t first, uint64_t n, uint64_t row_bytes) const {
    if (source) return source->made_of(first_made + first, n);
    return mapped ? std::span(data + first * row_bytes, n * row_bytes) : std::span<const uint8_t>();
  }
};

// A weight before the backend stores it: its rows are those of the parts, in order.
struct WeightSource {
  std::vector<WeightPart> parts;
  uint64_t rows;
  uint64_t cols;
};

// A weight as stored by the backend.
struct Weight {
  virtual ~Weight() = default;
  uint64_t rows = 0;
  uint64_t cols = 0;
  // As the border was given it, whatever the backend stores.
  uint64_t bytes = 0;
  std::string type;  // names of its types, as in "Q4_K+Q6_K"
};

struct KvShape {
  WeightType type;
  uint32_t n_pages;
  uint32_t page_tokens;
  uint32_t n_kv_heads;
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  bool values_in_keys = false;  // values are the first v_head_dim elements of the keys

  // True if numbers are stored in groups of 32 with a scale each.
  bool has_scales() const { return type == WeightType::Q8_0 || type == WeightType::Q4_0; }
  // Number of elements stored for each head: keys, then values unless they are in the keys.
  uint32_t kept_dim() const { return values_in_keys ? k_head_dim : k_head_dim + v_head_dim; }
};

// Memory of equal parts, which are copied whole: pages or slots.
struct CacheParts {
  virtual ~CacheParts() = default;
  virtual void copy(uint32_t from, uint32_t to) = 0;
  virtual void read(uint32_t part, uint8_t* data) const = 0;
  virtual void write(uint32_t part, const uint8_t* data) = 0;
};

// The keys and values of one layer.
struct KvCache : CacheParts {
  KvShape shape{};
  uint64_t page_bytes = 0;
};

struct StateShape {
  uint32_t n_slots;
  uint32_t rows;
  uint32_t cols;
};

// The recurrent state of one operation: a slot for each sequence.
struct StateCache : CacheParts {
  StateShape shape{};
  uint64_t slot_bytes = 0;
};

class SeriesInputs;

// A recorded step, ready to run.
struct Executable {
  virtual ~Executable() = default;
  virtual void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) = 0;
  // Runs the steps of a series up to its end, if the device itself passes the tokens from step to
  // step; returns false if the steps must be run one by one. Results of steps that did not run are
  // undefined.
  virtual bool run_ahead(SeriesInputs&, ResultBlock&, const StopFlag&) { return false; }
  // Copies rows of a kept value of the last run.
  virtual void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const = 0;
  uint64_t scratch_bytes = 0;
  RunProfile* profile = nullptr;  // if set, runs add the times of their operations
};

// Bytes of a device's memory.
struct DeviceMemory {
  uint64_t total;
  uint64_t free;
};

// Bytes of weights that stay in their files, and those of them that a token reads, about: all of
// dense weights, of experts those of the chosen ones that are not expected in memory.
struct StreamedBytes {
  uint64_t all = 0;
  uint64_t per_token = 0;
};

// Place of a device in its group. A device that has joined none is a group of its own.
struct GroupPlace {
  uint32_t rank = 0, n_ranks = 1;  // among the devices of its stage
  uint32_t stage = 0, n_stages = 1;
};

// The devices of a group that one process has.
struct GroupPart {
  uint32_t n_devices, n_stages;  // of the whole group
  uint32_t first;                // number in the group of the first device of the process
  // Of each stage, then of the group; empty if the process has all devices.
  std::span<const uint8_t> keys;
};

struct Backend {
  virtual ~Backend() = default;
  // Returns JSON: see forge_device_info.
  virtual std::string info() const = 0;
  // `attention` is one of FORGE_ATTENTION_...: see forge_set_attention.
  virtual void set_attention(uint32_t attention);
  // `products` is one of FORGE_PRODUCTS_...: see forge_set_products.
  virtual void set_products(uint32_t products);
  // See forge_set_nodes.
  virtual void set_nodes(uint32_t nodes);
  // Makes devices of this backend, this one first, a group, or a part of one: see
  // forge_devices_join. Each stage has as many of them.
  virtual void join(std::span<Backend* const> devices, const GroupPart& part);
  // Writes keys of FORGE_GROUP_KEY_BYTES: see forge_group_keys.
  virtual void make_keys(std::span<uint8_t> keys);
  // See forge_group_abort.
  virtual void abort_group(const std::string&) {}
  virtual GroupPlace place() const { return {}; }
  // Returns the bound: see forge_set_memory.
  virtual uint64_t set_memory(uint64_t bytes);
  // See forge_streamed_bytes.
  virtual StreamedBytes streamed_bytes() const { return {}; }
  // See forge_device_memory; the memory of the host unless a backend has its own.
  virtual DeviceMemory memory() const;
  // See forge_read_bandwidth.
  virtual uint64_t read_bandwidth() { return 0; }
  // See forge_matrix_rate.
  virtual uint64_t matrix_rate() { return 0; }
  // True if runs read weights where their files are mapped; false if they only read copies.
  virtual bool reads_files() const { return true; }
  virtual std::shared_ptr<Weight> create_weight(WeightSource source) = 0;
  virtual void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                           float* out) const = 0;
  virtual std::shared_ptr<KvCache> create_kv(const KvShape& shape) = 0;
  virtual std::shared_ptr<StateCache> create_state(const StateShape& shape) = 0;
  virtual std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) = 0;
};

// The most devices of a group.
constexpr uint32_t kMostDevices = 64;

// Returns the place of a device by its number in a group.
constexpr GroupPlace place_of(uint32_t device, uint32_t n_devices, uint32_t n_stages) {
  const uint32_t n_ranks = n_devices / n_stages;
  return {device % n_ranks, n_ranks, device / n_ranks, n_stages};
}

// Defined once by each library.
const char* backend_name();
std::string list_devices();
std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t n_threads);

}  // namespace forge
