#include "recorder.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "border.h"

namespace forge {

namespace {

// Keeps every index computation of a backend far from overflow.
constexpr uint64_t kMaxCols = 1u << 28;

// Calls `visit(name, operand)` for each operand of an operation, const or not.
template <class AnyOp, class Visit>
void for_operands(AnyOp& op, Visit&& visit) {
  std::string_view names = AnyOp::kOperandNames;
  const auto next_name = [&] {
    const size_t end = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 2, names.size()));  // ", "
    return name;
  };
  op.with_operands([&](auto&... operands) { (visit(next_name(), operands), ...); });
}

// The kinds of operands, by the types of their fields: how forge_operations names them and how many
// words they take.
template <class T>
struct OperandKind;
#define FORGE_KIND(Type, kind_name, n_words)             \
  template <>                                            \
  struct OperandKind<Type> {                             \
    static constexpr const char* kName = kind_name;      \
    static constexpr size_t kWords = n_words;            \
  };
FORGE_KIND(Input, "value", 1)
FORGE_KIND(OptionalInput, "value?", 1)
FORGE_KIND(Matrix, "weight", 1)
FORGE_KIND(UniformMatrix, "weight", 1)
FORGE_KIND(Floats, "weight", 1)
FORGE_KIND(OptionalFloats, "weight?", 1)
FORGE_KIND(ColumnOrder, "weight", 1)
FORGE_KIND(AdapterRanks, "weight", 1)
FORGE_KIND(KvRef, "kv", 1)
FORGE_KIND(StateRef, "state", 1)
FORGE_KIND(uint32_t, "u32", 1)
FORGE_KIND(float, "f32", 1)
FORGE_KIND(bool, "bool", 1)
FORGE_KIND(Pieces, "pieces", 5 * kMaxPieces)
#undef FORGE_KIND

void check_column_order(const DeviceObject& device, const Weight& order) {
  const uint64_t cols = order.cols;
  require(cols <= 1u << 24, "an order of ", cols, " columns; valid is up to ", 1u << 24);
  std::vector<float> columns(cols);
  for (uint64_t row = 0; row < order.rows; ++row) {
    device.backend->read_weight(order, row, 1, columns.data());
    for (const float column : columns) {
      require(column >= 0 && column < static_cast<float>(cols) && column == std::floor(column),
              "the order names column ", column, " of ", cols);
    }
  }
}

void read_adapter_ranks(const DeviceObject& device, AdapterRanks& ranks) {
  require(ranks->cols == 3 && ranks->rows <= kMostAdapterRanks, "ranks is [", ranks->rows, ", ",
          ranks->cols, "]; expected [ranks, 3], at most ", kMostAdapterRanks, " ranks");
  std::vector<float> numbers(ranks->rows * 3);
  device.backend->read_weight(*ranks, 0, ranks->rows, numbers.data());
  for (const float number : numbers) {
    require(number >= 0 && number <= 1u << 24 && number == std::floor(number), "ranks holds ",
            number, "; valid are whole numbers up to ", 1u << 24);
  }
  for (size_t i = 0; i < numbers.size(); i += 3) {
    const auto adapter = static_cast<uint64_t>(numbers[i]);
    const auto first = static_cast<uint64_t>(numbers[i + 1]);
    const auto width = static_cast<uint64_t>(numbers[i + 2]);
    ranks.n_adapters = std::max(ranks.n_adapters, adapter + 1);
    ranks.end = std::max(ranks.end, first + width);
    ranks.width = std::max(ranks.width, width);
  }
}

// Takes operands from the words of forge_record, in order.
class OperandReader {
 public:
  OperandReader(const DeviceObject& device, std::span<const uint32_t> words)
      : device_(device), words_(words) {}

  template <class Operand>
  void operator()(std::string_view, Operand& operand) {
    if constexpr (std::is_base_of_v<Input, Operand>) {
      operand.id = next();
    } else if constexpr (std::is_base_of_v<WeightRef, Operand>) {
      operand = get_weight(device_, next(), std::is_same_v<Operand, OptionalFloats>);
      if constexpr (std::is_same_v<Operand, ColumnOrder>) check_column_order(device_, *operand);
      if constexpr (std::is_same_v<Operand, AdapterRanks>) read_adapter_ranks(device_, operand);
    } else if constexpr (std::is_same_v<Operand, KvRef>) {
      operand = get_kv(device_, next());
    } else if constexpr (std::is_same_v<Operand, StateRef>) {
      operand = get_state(device_, next());
    } else if constexpr (std::is_same_v<Operand, float>) {
      operand = std::bit_cast<float>(next());
    } else if constexpr (std::is_same_v<Operand, Pieces>) {
      for (Piece& piece : operand) {
        piece = {next(), next(), next(), next(), std::bit_cast<float>(next())};
      }
    } else if constexpr (std::is_same_v<Operand, bool>) {
      operand = next() != 0;
    } else {
      operand = next();
    }
  }

 private:
  uint32_t next() {
    const uint32_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }

  const DeviceObject& device_;
  std::span<const uint32_t> words_;
};

template <class AnyOp>
size_t operand_words() {
  size_t n = 0;
  AnyOp op;
  for_operands(op, [&](std::string_view, auto& operand) {
    n += OperandKind<std::remove_reference_t<decltype(operand)>>::kWords;
  });
  return n;
}

// Calls `use(op)` with a default-made operation of each type, until it returns true.
template <class Use>
void for_operation_types(Use&& use) {
#define FORGE_USE(Type) \
  if (use(Type{})) return;
  FORGE_OPERATIONS(FORGE_USE)
#undef FORGE_USE
}

}  // namespace

Op decode_operation(const DeviceObject& device, std::string_view name,
                    std::span<const uint32_t> words) {
  Op decoded;
  bool found = false;
  for_operation_types([&](auto op) {
    using AnyOp = decltype(op);
    found = name == AnyOp::kName;
    if (!found) return false;
    require(words.size() == operand_words<AnyOp>(), name, ": ", words.size(),
            " words of operands; expected ", operand_words<AnyOp>(), " (", AnyOp::kOperandNames,
            ")");
    for_operands(op, OperandReader(device, words));
    decoded = std::move(op);
    return true;
  });
  require(found, "unknown operation \"", name, "\"");
  return decoded;
}

std::string describe_operations() {
  std::string text;
  for_operation_types([&](auto op) {
    text += decltype(op)::kName;
    for_operands(op, [&](std::string_view name, auto& operand) {
      using Kind = OperandKind<std::remove_reference_t<decltype(operand)>>;
      text.append(" ").append(name).append(":").append(Kind::kName);
    });
    text += '\n';
    return false;
  });
  return text;
}

Recorder::Recorder(const StepLimits& limits) : program_(std::make_shared<Program>()) {
  require(limits.max_tokens >= 1 && limits.max_tokens <= 1u << 20,
          "step: max_tokens is ", limits.max_tokens, "; valid is 1 to ", 1u << 20);
  require(limits.max_outputs >= 1 && limits.max_outputs <= limits.max_tokens,
          "step: max_outputs is ", limits.max_outputs, "; valid is 1 to max_tokens (",
          limits.max_tokens, ")");
  require(limits.max_sequences >= 1 && limits.max_sequences <= limits.max_tokens,
          "step: max_sequences is ", limits.max_sequences, "; valid is 1 to max_tokens (",
          limits.max_tokens, ")");
  require(limits.max_pages >= 1 && limits.max_pages <= 1u << 24,
          "step: max_pages is ", limits.max_pages, "; valid is 1 to ", 1u << 24);
  program_->limits = limits;
}

void Recorder::check_open() const {
  require(!finished_, "step: recording has ended");
  require(!program_->samples, "step: nothing can follow the sample operation");
}

void Recorder::note_kv(const char* operation, const KvRef& kv) {
  Program& program = *program_;
  const KvShape& shape = kv->shape;
  if (program.page_tokens == 0) {
    program.page_tokens = shape.page_tokens;
    program.n_pages = shape.n_pages;
  }
  require(shape.page_tokens == program.page_tokens, operation, ": this cache has pages of ",
          shape.page_tokens, " tokens, an earlier one of ", program.page_tokens);
  program.n_pages = std::min(program.n_pages, shape.n_pages);
}

void Recorder::note_attention(const AttentionOp& op) {
  Program& program = *program_;
  program.is_causal = program.is_causal && op.causal;
  if (!op.masked) return;
  require(program.masked_heads == 0 || program.masked_heads == op.n_heads,
          "attention: masked attention of ", op.n_heads, " heads, after masked attention of ",
          program.masked_heads);
  program.masked_heads = op.n_heads;
}

void Recorder::note_state(const char* operation, const StateRef& state) {
  Program& program = *program_;
  const bool is_taken = std::ranges::any_of(program.ops, [&](const Op& other) {
    return visit_op(
        [&](const auto& typed) {
          if constexpr (requires { typed.state; }) return typed.state == state;
          return false;
        },
        other);
  });
  require(!is_taken, operation, ": another operation of this step has the state already");
  const uint32_t n_slots = state->shape.n_slots;
  program.n_slots = program.n_slots ? std::min(program.n_slots, n_slots) : n_slots;
}

void Recorder::note_adapters(const LoraOp& op) {
  uint32_t& known = program_->n_adapters;
  require(known == 0 || known == op.n_adapters, LoraOp::kName, ": ", op.n_adapters,
          " adapters, after an operation with ", known);
  known = op.n_adapters;
}

void Recorder::note_embedding(const AddEmbeddingOp& op) {
  Program& program = *program_;
  const uint64_t rows = op.weight->rows;
  if (op.period == 0) {
    program.n_positions = program.n_positions ? std::min(program.n_positions, rows) : rows;
    return;
  }
  require(op.period == program.vocabulary, AddEmbeddingOp::kName, ": period is ", op.period,
          "; expected the ", program.vocabulary, " token ids so far, or 0");
  program.vocabulary = std::min<uint64_t>(rows * op.period, INT32_MAX);
}

ValueId Recorder::record(Op op) {
  check_open();
  Program& program = *program_;
  ValueId out = 0;
  visit_op(
      [&]<class AnyOp>(AnyOp& typed) {
        const Shape shape = typed.check(OperationChecks(AnyOp::kName, program.values));
        if constexpr (std::is_same_v<AnyOp, EmbedOp>) {
          const uint64_t rows = typed.weight->rows;
          program.vocabulary = program.vocabulary ? std::min(program.vocabulary, rows) : rows;
        }
        if constexpr (std::is_same_v<AnyOp, AddEmbeddingOp>) note_embedding(typed);
        if constexpr (std::is_same_v<AnyOp, LoraOp>) note_adapters(typed);
        if constexpr (std::is_same_v<AnyOp, SampleOp>) {
          program.samples = true;
          program.logits_cols = program.value(typed.logits).cols;
          program.max_top = typed.max_top;
        } else if constexpr (!std::is_same_v<AnyOp, SendOp>) {
          require(shape.cols >= 1 && shape.cols <= kMaxCols, AnyOp::kName, ": a result of ",
                  shape.cols, " columns; valid is 1 to ", kMaxCols);
          if constexpr (requires { typed.kv; }) note_kv(AnyOp::kName, typed.kv);
          if constexpr (std::is_same_v<AnyOp, AttentionOp>) note_attention(typed);
          if constexpr (requires { typed.state; }) note_state(AnyOp::kName, typed.state);
          program.values.push_back({shape.rows, shape.cols, false, shape.n_experts});
          typed.out = out = static_cast<ValueId>(program.values.size());
        }
      },
      op);
  program.ops.push_back(std::move(op));
  return out;
}

void Recorder::keep(ValueId value) {
  require(!finished_, "step: recording has ended");
  OperationChecks("keep", program_->values).value("value", value);
  program_->values[value - 1].keep = true;
}

std::shared_ptr<const Program> Recorder::finish() {
  require(!finished_, "step: recording has ended already");
  require(!program_->ops.empty(), "step: nothing was recorded");
  finished_ = true;
  return program_;
}

}  // namespace forge
