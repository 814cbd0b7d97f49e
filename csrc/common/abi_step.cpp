// Recording and running steps: see abi/operations.h and abi/run.h.

#include <chrono>

#include "border.h"
#include "library_end.h"
#include "step_inputs.h"
#include "step_series.h"

using namespace forge;

namespace {

uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(time.count());
}

// Checks that the group of a device has those that an operation exchanges values with.
void check_place(const Op& op, const GroupPlace& place) {
  require(!std::holds_alternative<AllReduceOp>(op) || place.n_ranks > 1,
          "all_reduce: the device is in no group of ranks");
  require(!std::holds_alternative<SendOp>(op) || place.stage + 1 < place.n_stages,
          "send: no stage follows that of the device");
  require(!std::holds_alternative<ReceiveOp>(op) || place.stage > 0,
          "receive: no stage precedes that of the device");
}

}  // namespace

forge_status forge_step_begin(uint32_t device, uint32_t max_tokens, uint32_t max_outputs,
                              uint32_t max_sequences, uint32_t max_pages, uint32_t* step) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(step, "step");
    *step = handles().insert(std::make_shared<StepObject>(
        std::move(owner), StepLimits{max_tokens, max_outputs, max_sequences, max_pages}));
  });
}

forge_status forge_operations(char* text, uint64_t capacity) {
  return guarded([&] { copy_text(describe_operations(), text, capacity); },
                 [](const std::string&) {});
}

forge_status forge_record(uint32_t step, const char* operation, const uint32_t* operands,
                          uint64_t n_words, uint32_t* out) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    require(operands != nullptr && n_words <= 64, "operands are null or more than 64 words");
    uint32_t& value = not_null(out, "out");
    Op op = decode_operation(*object->device, &not_null(operation, "operation"),
                             std::span(operands, n_words));
    check_place(op, object->device->backend->place());
    value = object->recorder.record(std::move(op));
  });
}

forge_status forge_step_keep(uint32_t step, uint32_t value) {
  return on_handle(step, [&] { get<StepObject>(step, "step")->recorder.keep(value); });
}

forge_status forge_step_end(uint32_t step, uint64_t* scratch_bytes) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    not_null(scratch_bytes, "scratch_bytes");
    const CallInProgress call;
    auto program = object->recorder.finish();
    object->executable = object->device->backend->compile(program);
    object->device->check_files();
    stop_calls_at_exit();
    object->program = std::move(program);
    *scratch_bytes = object->executable->scratch_bytes;
  });
}

forge_status forge_step_run(uint32_t step, const void* inputs, uint64_t input_bytes, void* results,
                            uint64_t result_bytes, const forge_step_control* control) {
  return on_handle(step, [&] {
    const auto start = std::chrono::steady_clock::now();
    const CallInProgress call;
    auto object = get<StepObject>(step, "step");
    require(object->executable != nullptr, "step: recording has not ended");
    const Program& program = *object->program;
    StepInputs in = parse_step_inputs(program, inputs, input_bytes);
    in.masks_ready = MaskGate(control);
    const uint64_t n_results = program.samples ? uint64_t{in.n_outputs} * in.n_steps : 0;
    ResultBlock block(results, result_bytes, n_results, program.max_top);
    object->last_tokens = object->last_outputs = 0;
    object->profile.begin_run();
    const DeviceObject& device = *object->device;
    if (device.backend->reads_files()) device.check_files();
    run_series(*object->executable, program, in, block, StopFlag(control));
    // A file may have changed during the run, which then read zeros or a mixture of two files.
    if (device.backend->reads_files()) device.check_files();
    object->last_tokens = in.n_tokens;
    object->last_outputs = in.n_outputs;
    object->last_nanoseconds = nanoseconds_since(start);
  });
}

forge_status forge_step_time(uint32_t step, uint64_t* nanoseconds) {
  return on_handle(step, [&] {
    not_null(nanoseconds, "nanoseconds");
    *nanoseconds = get<StepObject>(step, "step")->last_nanoseconds;
  });
}

forge_status forge_step_profile(uint32_t step, uint32_t enabled) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    require(object->executable != nullptr, "step: recording has not ended");
    object->executable->profile = enabled ? &object->profile : nullptr;
  });
}

forge_status forge_step_spans(uint32_t step, char* text, uint64_t capacity, uint64_t* bytes) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    require(object->executable != nullptr, "step: recording has not ended");
    const std::string spans = object->profile.json(*object->program);
    not_null(bytes, "bytes") = spans.size() + 1;
    if (capacity > 0) copy_text(spans, text, capacity);
  });
}

forge_status forge_step_read(uint32_t step, uint32_t value, uint64_t first_row, uint64_t n_rows,
                             float* out, uint64_t bytes) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    require(object->executable != nullptr, "step: recording has not ended");
    const Program& program = *object->program;
    require(value >= 1 && value <= program.values.size() && program.value(value).keep, "value ",
            value, " was not kept by this step");
    const Value& source = program.value(value);
    const uint64_t rows =
        source.rows == Rows::tokens ? object->last_tokens : object->last_outputs;
    require(first_row <= rows && n_rows <= rows - first_row, "rows [", first_row, ", ", first_row,
            " + ", n_rows, ") of the ", rows, " of the last run");
    if (n_rows == 0) return;  // and `out` may be null
    require(out && bytes / 4 / source.cols >= n_rows, "the buffer of ", bytes,
            " bytes is too small for ", n_rows, " rows of ", source.cols);
    object->executable->read(value, first_row, n_rows, out);
  });
}
