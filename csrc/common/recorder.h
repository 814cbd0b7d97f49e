#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "program.h"

namespace forge {

struct DeviceObject;

// Builds a Program operation by operation. Every operation is checked against what is recorded
// before it, so that a finished program needs no checks.
class Recorder {
 public:
  explicit Recorder(const StepLimits& limits);

  // Appends an operation and returns the value that it defines, 0 for one that has none.
  ValueId record(Op op);
  // Keeps a value readable after a run.
  void keep(ValueId value);
  // Returns the finished program; the recorder rejects further operations.
  std::shared_ptr<const Program> finish();

 private:
  void check_open() const;
  void note_kv(const char* operation, const KvRef& kv);
  void note_attention(const AttentionOp& op);
  void note_adapters(const LoraOp& op);
  void note_embedding(const AddEmbeddingOp& op);
  void note_state(const char* operation, const StateRef& state);

  std::shared_ptr<Program> program_;
  bool finished_ = false;
};

// Makes an operation of the words that forge_record takes. Handles must belong to the device.
Op decode_operation(const DeviceObject& device, std::string_view name,
                    std::span<const uint32_t> words);

// The table of operations as forge_operations gives it.
std::string describe_operations();

}  // namespace forge
