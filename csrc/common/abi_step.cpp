// Recording and running steps: see abi/operations.h and abi/run.h.

#include <chrono>

#include "border.h"
#include "library_end.h"
#include "step_inputs.h"
#include "step_series.h"

using namespace forge;

namespace {

// Runs `record` on a step's recorder and stores the value it returns.
template <class Record>
forge_status record_on(uint32_t step, uint32_t* out, Record&& record) {
  return on_handle(step, [&] {
    auto object = get<StepObject>(step, "step");
    uint32_t& result = not_null(out, "out");
    result = record(object->recorder, *object->device);
  });
}

uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(time.count());
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

forge_status forge_embed(uint32_t step, uint32_t weight, float scale, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.embed(get_weight(device, weight, false), scale);
  });
}

forge_status forge_rms_norm(uint32_t step, uint32_t x, uint32_t weight, float eps,
                            float weight_offset, uint32_t residual, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.rms_norm(x, get_weight(device, weight, false), eps, weight_offset, residual);
  });
}

forge_status forge_layer_norm(uint32_t step, uint32_t x, uint32_t weight, uint32_t bias, float eps,
                              uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.layer_norm(x, get_weight(device, weight, false),
                               get_weight(device, bias, true), eps);
  });
}

forge_status forge_matmul(uint32_t step, uint32_t x, uint32_t weight, uint32_t bias, float alpha,
                          uint32_t activation, uint32_t residual, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.matmul(x, get_weight(device, weight, false), get_weight(device, bias, true),
                           alpha, activation, residual);
  });
}

forge_status forge_head_matmul(uint32_t step, uint32_t x, uint32_t weight, uint32_t n_heads,
                               uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.head_matmul(x, get_weight(device, weight, false), n_heads);
  });
}

forge_status forge_rope_table(uint32_t step, uint32_t inv_freq, float scale, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.rope_table(get_weight(device, inv_freq, false), scale);
  });
}

forge_status forge_rope_append(uint32_t step, uint32_t qkv, uint32_t kv, uint32_t n_heads,
                               uint32_t q_norm, uint32_t k_norm, float eps, float weight_offset,
                               uint32_t rope, uint32_t rope_layout, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.rope_append(qkv, get_kv(device, kv), n_heads,
                                get_weight(device, q_norm, true), get_weight(device, k_norm, true),
                                eps, weight_offset, rope, rope_layout);
  });
}

forge_status forge_attention(uint32_t step, uint32_t q, uint32_t kv, uint32_t n_heads, float scale,
                             uint32_t window, float softcap, uint32_t sinks, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.attention(q, get_kv(device, kv), n_heads, scale, window, softcap,
                              get_weight(device, sinks, true));
  });
}

forge_status forge_glu(uint32_t step, uint32_t x, uint32_t width, uint32_t unit, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject&) {
    return recorder.glu(x, width, unit);
  });
}

forge_status forge_sigmoid_gate(uint32_t step, uint32_t x, uint32_t gate, uint32_t residual,
                                uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject&) {
    return recorder.sigmoid_gate(x, gate, residual);
  });
}

forge_status forge_gated_rms_norm(uint32_t step, uint32_t x, uint32_t gate, uint32_t weight,
                                  float eps, uint32_t activation, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.gated_rms_norm(x, gate, get_weight(device, weight, false), eps, activation);
  });
}

forge_status forge_causal_conv1d(uint32_t step, uint32_t x, uint32_t weight, uint32_t bias,
                                 uint32_t state, uint32_t activation, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.causal_conv1d(x, get_weight(device, weight, false),
                                  get_weight(device, bias, true), get_state(device, state),
                                  activation);
  });
}

forge_status forge_gated_delta_rule(uint32_t step, uint32_t qkv, uint32_t ba, uint32_t rate,
                                    uint32_t dt_bias, uint32_t state, uint32_t n_k_heads,
                                    uint32_t head_order, float scale, float eps, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.gated_delta_rule(qkv, ba, get_weight(device, rate, false),
                                     get_weight(device, dt_bias, false), get_state(device, state),
                                     n_k_heads, head_order, scale, eps);
  });
}

forge_status forge_gather_columns(uint32_t step, const forge_piece* pieces, uint64_t n_pieces,
                                  uint32_t n_groups, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject&) {
    return recorder.gather_columns(std::span(&not_null(pieces, "pieces"), n_pieces), n_groups);
  });
}

forge_status forge_permute_columns(uint32_t step, uint32_t x, uint32_t route,
                                   const uint32_t* order, uint64_t n_experts, uint64_t cols,
                                   uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    // Numbers up to 2^24 are exact in F32, as which devices hold vectors.
    require(cols >= 1 && cols <= 1u << 24 && n_experts >= 1 && n_experts <= 4096,
            "permute_columns: an order of ", cols, " columns for ", n_experts,
            " experts; valid is 1 to ", 1u << 24, " and 1 to 4096");
    const std::span numbers(&not_null(order, "order"), n_experts * cols);
    auto floats = std::make_shared<std::vector<float>>(numbers.begin(), numbers.end());
    for (const uint32_t column : numbers) {
      require(column < cols, "permute_columns: the order names column ", column, " of ", cols);
    }
    const auto* data = reinterpret_cast<const uint8_t*>(floats->data());
    WeightSource source{{{WeightType::F32, n_experts, data, std::move(floats)}}, n_experts, cols};
    return recorder.permute_columns(x, route, device.backend->create_weight(std::move(source)));
  });
}

forge_status forge_moe_route(uint32_t step, uint32_t logits, uint32_t top_k, uint32_t normalize,
                             float scale, uint32_t scores, uint32_t bias,
                             uint32_t expert_scales, uint32_t n_groups, uint32_t top_groups,
                             uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.moe_route(
        logits, {top_k, normalize != 0, scale, scores, get_weight(device, bias, true),
                 get_weight(device, expert_scales, true), n_groups, top_groups});
  });
}

forge_status forge_moe_matmul(uint32_t step, uint32_t x, uint32_t route, uint32_t weight,
                              uint32_t bias, uint32_t n_experts, uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject& device) {
    return recorder.moe_matmul(x, route, get_weight(device, weight, false),
                               get_weight(device, bias, true), n_experts);
  });
}

forge_status forge_moe_combine(uint32_t step, uint32_t x, uint32_t route, uint32_t residual,
                               uint32_t* out) {
  return record_on(step, out, [&](Recorder& recorder, DeviceObject&) {
    return recorder.moe_combine(x, route, residual);
  });
}

forge_status forge_gather_outputs(uint32_t step, uint32_t x, uint32_t* out) {
  return record_on(step, out,
                   [&](Recorder& recorder, DeviceObject&) { return recorder.gather_outputs(x); });
}

forge_status forge_softcap(uint32_t step, uint32_t x, float cap, uint32_t* out) {
  return record_on(step, out,
                   [&](Recorder& recorder, DeviceObject&) { return recorder.softcap(x, cap); });
}

forge_status forge_clamp(uint32_t step, uint32_t x, float limit, uint32_t* out) {
  return record_on(step, out,
                   [&](Recorder& recorder, DeviceObject&) { return recorder.clamp(x, limit); });
}

forge_status forge_sample(uint32_t step, uint32_t logits, uint32_t max_top) {
  return on_handle(step,
                   [&] { get<StepObject>(step, "step")->recorder.sample(logits, max_top); });
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
