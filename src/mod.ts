/**
 * forge as a library: load a model, generate from it, ask for its logits.
 *
 * ```ts
 * import { load } from "@forge/forge";
 *
 * await using model = await load("path/to/model");
 * for await (const piece of model.generate("Once upon a time", { maxTokens: 64 })) {
 *   await Deno.stdout.write(new TextEncoder().encode(piece.text));
 * }
 * ```
 *
 * @module
 */
export { type ErrorCode, ForgeError } from "./errors.ts";
export type {
  AttentionKernels,
  DeviceInfo,
  DeviceMemory,
  KvType,
  NumaNodes,
  ProductNumbers,
  StreamedBytes,
  TokenLogprob,
} from "./backend.ts";
export { type Checkpoint, openCheckpoint } from "./formats/checkpoint.ts";
export type { GgufValue } from "./formats/gguf/gguf.ts";
export type { JsonObject, JsonValue } from "./formats/json.ts";
export {
  type PackedMatrix,
  type Packing,
  TENSOR_TYPES,
  type TensorInfo,
  type TensorType,
  type TensorTypeInfo,
} from "./formats/tensor_info.ts";
export type { ChatMessage } from "./tokenizer/chat_template.ts";
export type {
  DecodeOptions,
  EncodeOptions,
  LeadingStrip,
  PairPiece,
  Tokenizer,
} from "./tokenizer/tokenizer.ts";
export { StreamDecoder, type StreamDecoderOptions } from "./tokenizer/stream_decoder.ts";
export { openTokenizer } from "./engine/load/tokenizer.ts";
export type {
  FinishReason,
  GenerationEnd,
  Generations,
  Piece,
} from "./engine/generation/request.ts";
export type { Timings } from "./engine/generation/timings.ts";
export type { EncodedPrompt, Prompt, PromptOptions } from "./engine/request/prompt.ts";
export type { ResolvedSampling, SamplingOptions } from "./engine/request/sampling.ts";
export { type ChainOptions, describeSampling } from "./engine/request/describe_sampling.ts";
export type { Embedding, EmbeddingInput } from "./engine/embedding/embedder.ts";
export type { EmbedOptions } from "./engine/embedding/options.ts";
export type { RerankOptions, RerankScore } from "./engine/embedding/reranker.ts";
export type { Pooling } from "./engine/embedding/pooling.ts";
export type { Candidate } from "./engine/generation/score.ts";
export type { Completion, TextLogprob, TokenLogprobs } from "./engine/generation/completion.ts";
export type { LoadOptions, Speculation } from "./engine/load/options.ts";
export { QUANTIZED_TYPES, type QuantizedType } from "./formats/quantized.ts";
export type {
  AdapterChoice,
  AdapterInfo,
  AdapterOption,
  AdapterScale,
} from "./engine/request/adapters.ts";
export type { GenerateOptions, ReasoningLimit } from "./engine/request/options.ts";
export type { Constraint, ConstraintState } from "./engine/request/constraint.ts";
export type { ConstraintScope } from "./constrain/spec.ts";
export type { ConstraintOptions, JsonSchema } from "./constrain/spec.ts";
export type { ConstraintCost } from "./constrain/compiled_constraint.ts";
export type {
  BadRequest,
  BatchId,
  BatchInput,
  BatchOptions,
  BatchRequest,
  BatchResult,
} from "./engine/generation/batch.ts";
export type { MemoryUse } from "./engine/cache/memory.ts";
export type { OperationTime } from "./backend.ts";
export type {
  ChunkSize,
  OperationSum,
  Phase,
  PhaseTimes,
  Profile,
  TraceEvent,
} from "./engine/profile.ts";
export { quantize, type QuantizedFile, type QuantizeOptions } from "./engine/quantize/quantize.ts";
export { type Mix, MIXES, type MixName } from "./formats/gguf/mixes.ts";
export { load } from "./engine/load/load.ts";
export { assist } from "./engine/processes/group.ts";
export type { ProcessOptions } from "./engine/processes/rendezvous.ts";
export { Model } from "./engine/model.ts";
