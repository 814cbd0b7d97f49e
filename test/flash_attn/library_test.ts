/** The C ABI of libflash_attn: agreement with the binding, and rejected parameters. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import {
  FLASH_ATTN_VERSION,
  FlashAttention,
  type FlashAttentionFunction,
  type FlashAttentionParams,
  flashAttentionSymbols,
  paramFields,
  paramLayout,
} from "./binding.ts";
import { exportedFunctions } from "../../ffi/build/exports.ts";
import { ForgeError } from "../../src/errors.ts";
import { emulatorUnavailable } from "../emulator/build.ts";
import { buildEmulatedFlashAttention } from "./build.ts";
import { ROOT } from "../support/checkout.ts";

const header = Deno.readTextFileSync(join(ROOT, "csrc", "flash_attn", "flash_attn.h"))
  .replace(/\/\*[\s\S]*?\*\//g, "");

Deno.test("flash attention's binding: functions and fields are those of the header", () => {
  assertEquals(Object.keys(flashAttentionSymbols), exportedFunctions(header));
  const body = header.match(/typedef struct flash_attn_params \{([\s\S]*?)\} /)?.[1] ?? "";
  const types: Record<string, string> = {
    uint32_t: "u32",
    int32_t: "i32",
    float: "f32",
    int64_t: "i64",
    uint64_t: "i64",
  };
  const fields = body.split(";").flatMap((declaration): [string, string][] => {
    const [, type = "", names = ""] =
      declaration.trim().match(/^((?:const )?\w+ ?\*?)([\s\S]*)$/) ??
        [];
    if (names.trim() === "") return [];
    return names.split(",").map((name) => {
      const pointer = type.includes("*") || name.includes("*");
      return [name.replace("*", "").trim(), pointer ? "pointer" : types[type.trim()] ?? type];
    });
  });
  assertEquals(fields, Object.entries(paramFields));
  assertEquals(header.match(/FLASH_ATTN_VERSION (\d+)u/)?.[1], `${FLASH_ATTN_VERSION}`);
});

Deno.test("flash attention's binding: the struct has no padding but between fields of two sizes", () => {
  const { offsets, bytes } = paramLayout();
  assertEquals(offsets.get("block_table_stride"), 56);
  assertEquals(bytes % 8, 0);
  assertEquals(offsets.get("stream"), bytes - 8);
});

const unavailable = emulatorUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);
const ignore = unavailable !== undefined;

function addressOf(memory: ArrayBufferView<ArrayBuffer>): bigint {
  return BigInt(Deno.UnsafePointer.value(Deno.UnsafePointer.of(memory as Uint8Array<ArrayBuffer>)));
}

/** Queries, keys, values and output of every valid call. */
const MEMORY = new Uint16Array(64 * 64 * 4);

/** A valid call; on the emulated device, host memory is device memory. */
function validParams(): FlashAttentionParams {
  const address = addressOf(MEMORY);
  return {
    dtype: 1,
    head_dim: 64,
    n_heads: 2,
    n_kv_heads: 1,
    batch: 1,
    seqlen_q: 4,
    seqlen_k: 8,
    scale: 0.125,
    q: address,
    k: address,
    v: address,
    out: address + 8192n,
    q_batch_stride: 512,
    k_batch_stride: 512,
    v_batch_stride: 512,
    out_batch_stride: 512,
    q_row_stride: 128,
    q_head_stride: 64,
    k_row_stride: 64,
    v_row_stride: 64,
    out_row_stride: 128,
    out_head_stride: 64,
  };
}

type Refusal = readonly [FlashAttentionFunction, FlashAttentionParams, RegExp];

/** Each stride of a call that uses all of them: of rows at one address, backwards or misaligned. */
const strideRefusals = ["q", "k", "v", "out"].flatMap((tensor) =>
  ["batch", "row", "head"].flatMap((dimension) =>
    [0, -64, 100].map((stride): Refusal => {
      const all = { batch: 2, n_kv_heads: 2, k_head_stride: 64, v_head_stride: 64 };
      return ["fwd", { ...all, [`${tensor}_${dimension}_stride`]: stride }, /stride/];
    })
  )
).concat(
  // Two rows are the fewest that have a stride.
  ["q", "k", "v", "out"].map((tensor) => {
    const rows = tensor === "k" || tensor === "v" ? { seqlen_k: 2 } : { seqlen_q: 2 };
    return ["fwd", { ...rows, [`${tensor}_row_stride`]: 0 }, /stride/];
  }),
);

/** Strides of dimensions that only pages and packed sequences have. */
const layoutRefusals: readonly Refusal[] = [
  ...["q_row_stride", "out_row_stride"].flatMap((name): Refusal[] => {
    const packed = { seqlen_q: 1, total_q: 4, [name]: 0 };
    return [
      [
        "varlen_fwd",
        { ...packed, total_k: 8, cu_seqlens_k: 0x1000n, cu_seqlens_q: 0x1000n },
        /stride/,
      ],
      ["decode", { ...packed, cu_seqlens_q: 0x1000n }, /stride/],
    ];
  }),
  ...["k", "v"].flatMap((tensor): Refusal[] => {
    const packed = { total_q: 4, total_k: 8, cu_seqlens_k: 0x1000n, cu_seqlens_q: 0x1000n };
    const pages = { block_table: 0x1000n, block_table_stride: 1, page_size: 8 };
    const [row, batch] = [`${tensor}_row_stride`, `${tensor}_batch_stride`];
    return [
      ["varlen_fwd", { ...packed, seqlen_k: 1, [row]: 0 }, /stride/],
      ["decode", { ...pages, seqlen_k: 1, [row]: 0 }, /stride/],
      ["decode", { ...pages, [batch]: 0 }, /stride/],
    ];
  }),
];

/** Each pointer between the places of its elements. */
const pointerRefusals = Object.entries({
  0x1008: ["q", "k", "v", "out", "workspace", "k_scales", "v_scales"],
  0x1002: [
    ...["lse", "sinks", "block_table", "block_rows", "mask_pitch"],
    ...["q_descale", "k_descale", "v_descale"],
  ],
  0x1001: ["mask"],
  0x1003: ["seqlens_q", "seqlens_k", "cu_seqlens_q", "cu_seqlens_k"],
}).flatMap(([address, names]) =>
  names.map((name): Refusal => {
    const params = { mask_type: 2, mask: 64, [name]: BigInt(address) };
    return ["fwd", params, /misaligned/];
  })
);

const refusals: readonly Refusal[] = [
  ...strideRefusals,
  ...layoutRefusals,
  ...pointerRefusals,
  ["fwd", { version: 1 }, /version/],
  ["fwd", { mask_type: 5 }, /mask_type/],
  ["fwd", { mask_type: 1 }, /null/],
  ["fwd", { mask_type: 1, mask: 0x1002n }, /misaligned/],
  ["fwd", { mask_type: 3, mask: 1, mask_key_stride: -1 }, /mask/],
  ["decode", { mask_type: 3, mask: 1, mask_row_stride: -1 }, /mask/],
  ["decode", { mask_type: 3, mask: 1, mask_head_stride: -1 }, /mask/],
  ["fwd", { mask_type: 3, mask: 1, mask_batch_stride: 2 ** 40 }, /mask/],
  ["fwd", { kv_dtype: 2, mask_type: 1, mask: 64 }, /mask/],
  ["fwd", { dtype: 2 }, /dtype/],
  ["fwd", { flags: 8 }, /flag/],
  ["decode", { flags: 16 }, /flag/],
  ["fwd", { kv_dtype: 3 }, /kv_dtype/],
  ["decode", { kv_dtype: 2 }, /kv_dtype/],
  ["fwd", { kv_dtype: 2, head_dim: 96 }, /head_dim/],
  ["fwd", { kv_dtype: 2, flags: 2 }, /flag/],
  ["fwd", { kv_dtype: 2, q_row_stride: 72 }, /stride/],
  // The emulated device is of SM80.
  ["fwd", { kv_dtype: 2 }, /device/],
  ["decode", { kv_dtype: 1 }, /kv_dtype/],
  ["fwd", { dtype: 0, kv_dtype: 1 }, /kv_dtype/],
  ["decode", { dtype: 0, kv_dtype: 1, seqlen_k: 8 }, /null/],
  ["decode", { dtype: 0, kv_dtype: 1, k_row_stride: 72 }, /stride/],
  ["decode", { dtype: 0, kv_dtype: 1, k_scales: 0x1000n, v_scales: 0x1008n }, /misaligned/],
  ["fwd", { head_dim: 80 }, /head_dim/],
  ["fwd", { n_heads: 3, n_kv_heads: 2 }, /multiple/],
  ["fwd", { n_kv_heads: 0 }, /multiple/],
  ["fwd", { batch: -1 }, /length/],
  ["fwd", { seqlen_q: -1 }, /length/],
  ["fwd", { seqlen_k: 2 ** 29 + 1 }, /length/],
  ["fwd", { n_heads: 65536, n_kv_heads: 1 }, /length/],
  ["decode", { seqlen_q: 17 }, /length/],
  ["fwd", { scale: 0 }, /scale/],
  ["fwd", { scale: NaN }, /scale/],
  ["fwd", { softcap: -1 }, /softcap/],
  ["fwd", { softcap: Infinity }, /softcap/],
  ["fwd", { n_splits: 129 }, /n_splits/],
  ["fwd", { q: 0 }, /null/],
  ["fwd", { k: 0 }, /null/],
  ["fwd", { v: 0 }, /null/],
  ["fwd", { out: 0 }, /null/],
  ["varlen_fwd", { total_q: 4, total_k: 8 }, /null/],
  ["varlen_fwd", { cu_seqlens_q: 0x1000n, total_q: 4, total_k: -1 }, /length/],
  ["decode", { block_table: 0x1000n, page_size: 24 }, /page_size/],
  ["decode", { block_table: 0x1000n, page_size: 4 }, /page_size/],
  ["decode", { block_table: 0x1000n, page_size: 8, batch: 2, seqlen_k: 90 }, /block_table_stride/],
  [
    "decode",
    { block_table: 0x1000n, block_table_stride: 11, page_size: 8, batch: 2, seqlen_k: 90 },
    /block_table_stride/,
  ],
  ["decode", { seqlen_k: 4096, n_splits: 4 }, /workspace/],
];

/** Tests the library for the emulator, opened. */
function libraryTest(
  name: string,
  fn: (flash: FlashAttention, t: Deno.TestContext, library: string) => void | Promise<void>,
): void {
  Deno.test({
    name: `flash attention: ${name}`,
    ignore,
    async fn(t) {
      const { library } = await buildEmulatedFlashAttention();
      using flash = FlashAttention.open(library);
      await fn(flash, t, library);
    },
  });
}

libraryTest("invalid arguments are rejected before anything is read", async (flash, t) => {
  for (const [name, change, expected] of refusals) {
    await t.step(`${name} ${Deno.inspect(change)}`, () => {
      const error = assertThrows(
        () => flash.run(name, { ...validParams(), ...change }),
        ForgeError,
      );
      assert(expected.test(error.message), error.message);
    });
  }
});

libraryTest("a valid call, and calls with nothing to do", (flash) => {
  assertEquals(flash.deviceStatus(), 0);
  flash.run("fwd", validParams());
  flash.run("fwd", { ...validParams(), batch: 0, q: 0, k: 0, v: 0, out: 0 });
  flash.run("decode", { ...validParams(), seqlen_q: 0, q: 0, out: 0 });
});

libraryTest("strides of single sequences, rows and heads have no effect", (flash) => {
  const strides = (dimension: string, ...tensors: string[]) =>
    Object.fromEntries(tensors.map((tensor) => [`${tensor}_${dimension}_stride`, -3]));
  const one = {
    ...strides("batch", "q", "k", "v", "out"),
    ...strides("head", "k", "v"),
  };
  flash.run("fwd", { ...validParams(), ...one });
  flash.run("fwd", { ...validParams(), ...one, seqlen_k: 1, ...strides("row", "k", "v") });
  flash.run("decode", { ...validParams(), ...one, seqlen_q: 1, ...strides("row", "q", "out") });
  const head = { n_heads: 1, ...strides("head", "q", "out") };
  flash.run("fwd", { ...validParams(), ...one, ...head });
  // Packed sequences have no strides of their own.
  const ends = Int32Array.of(0, 4, 8);
  const packed = { batch: 2, total_q: 8, total_k: 8, seqlen_k: 4 };
  const cu = { cu_seqlens_q: addressOf(ends), cu_seqlens_k: addressOf(ends) };
  flash.run("varlen_fwd", { ...validParams(), ...one, ...packed, ...cu });
  flash.run("decode", {
    ...{ ...validParams(), ...packed, cu_seqlens_q: addressOf(ends) },
    ...strides("batch", "q", "out"),
  });
  // Nothing of empty tensors is read.
  const none = strides("row", "k", "v");
  flash.run("fwd", { ...validParams(), seqlen_k: 0, k: 0, v: 0, ...none });
  assertThrows(() => flash.run("fwd", { ...validParams(), ...none }), ForgeError, "stride");
});

libraryTest(
  "keys in one part take one launch, and a refused launch is reported",
  (flash, _t, library) => {
    const symbol = { parameters: ["i32"], result: "i32" } as const;
    const emulated = Deno.dlopen(library, { flash_attn_emulated_launches: symbol });
    const keys = new Uint16Array(512 * 64), workspace = new Float32Array(1 << 12);
    const decode = (n_splits: number, refused: number) => {
      emulated.symbols.flash_attn_emulated_launches(refused);
      const status = flash.call("decode", {
        ...validParams(),
        ...{ seqlen_q: 1, seqlen_k: 512, k: addressOf(keys), v: addressOf(keys), n_splits },
        ...{ workspace: addressOf(workspace), workspace_size: workspace.byteLength },
      });
      const launches = emulated.symbols.flash_attn_emulated_launches(0);
      return [launches, status === 0 ? "" : flash.statusText(status)];
    };
    assertEquals(decode(1, 0), [1, ""]);
    assertEquals(decode(2, 0), [2, ""]);
    const refused = "CUDA could not launch the kernel";
    assertEquals(decode(1, 1), [1, refused]);
    assertEquals(decode(2, 1), [1, refused]);
    assertEquals(decode(2, 2), [2, refused]);
    emulated.close();
  },
);

libraryTest("the workspace of a device serves every batch and length", (flash) => {
  const sizes = [1, 3, 64].map((batch) =>
    flash.workspaceSize("decode", { ...validParams(), batch, seqlen_k: batch * 1000 })
  );
  assertEquals(new Set(sizes).size, 1);
  assert((sizes[0] ?? 0) > 0);
  // Few queries take the split path, so that many need as much.
  const [few, many] = [5, 100].map((seqlen_q) =>
    flash.workspaceSize("fwd", { ...validParams(), seqlen_q })
  );
  assertEquals(few, many);
  assertEquals(flash.workspaceSize("varlen_fwd", { ...validParams() }), 0);
  assertEquals(flash.workspaceSize("decode", { ...validParams(), n_splits: 1 }), 0);
});
