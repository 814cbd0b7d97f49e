/** Tests embedding over HTTP: answers and rejected requests. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { Client } from "./client.ts";

const PATH = "/v1/embeddings";

interface Listing {
  readonly object: string;
  readonly data: readonly {
    readonly object: string;
    readonly index: number;
    readonly embedding: number[] | string;
  }[];
  readonly model: string;
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

async function withClient(fn: (client: Client) => Promise<void>): Promise<void> {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: 512 });
  await using client = await Client.open(folder.path, { names: ["tiny"] });
  await fn(client);
}

async function embed(client: Client, body: object): Promise<Listing> {
  const response = await client.post(PATH, body);
  const text = await response.text();
  assertEquals([response.status, response.headers.get("content-type")], [200, "application/json"]);
  return JSON.parse(text);
}

Deno.test("serve: texts and token ids give vectors in both encodings", async () => {
  await withClient(async (client) => {
    const texts = ["A fox.", "The sea is far away from here."];
    const ids = texts.map((text) => [...client.model.tokenizer.encode(text)]);
    const vectors = (await client.model.embed(texts)).map(({ vector }) => vector);
    const whole = await embed(client, { model: "tiny", input: texts, user: "me" });
    const tokens = ids.flat().length;
    assertEquals([whole.object, whole.model, whole.usage], ["list", "tiny", {
      prompt_tokens: tokens,
      total_tokens: tokens,
    }]);
    whole.data.forEach(({ object, index, embedding }, i) => {
      assertEquals([object, index], ["embedding", i]);
      // The JSON has enough digits to restore each float32 exactly.
      assertEquals(Float32Array.from(embedding as number[]), vectors[i]);
    });
    assertEquals((await embed(client, { input: ids })).data, whole.data);
    assertEquals((await embed(client, { input: texts[0] })).data, [whole.data[0]!]);
    assertEquals((await embed(client, { input: ids[0] })).data, [whole.data[0]!]);
    const packed = await embed(client, { input: texts, encoding_format: "base64" });
    packed.data.forEach(({ embedding }, i) => {
      const bytes = Uint8Array.fromBase64(embedding as string);
      assertEquals(new Float32Array(bytes.buffer), vectors[i]);
    });
  });
});

Deno.test("serve: truncated vectors are normalised again", async () => {
  await withClient(async (client) => {
    const [whole, cut] = await Promise.all(
      [64, 8].map(async (dimensions) =>
        (await embed(client, { input: "A fox.", dimensions })).data[0]!.embedding as number[]
      ),
    );
    assertEquals([whole!.length, cut!.length], [64, 8]);
    const scale = Math.hypot(...whole!.slice(0, 8));
    cut!.forEach((value, i) => assert(Math.abs(value - whole![i]! / scale) < 1e-6));
  });
});

Deno.test("serve: many texts are embedded while answers are generated", async () => {
  await withClient(async (client) => {
    const input = Array.from({ length: 100 }, (_, i) => "fox ".repeat(i + 1));
    const [listing, answer] = await Promise.all([
      embed(client, { input }),
      client.complete({ prompt: "A fox", max_tokens: 8, temperature: 0 }),
    ]);
    assertEquals(listing.data.map(({ index }) => index), input.map((_, i) => i));
    assertEquals(answer.usage?.completion_tokens, 8);
    assertEquals((await (await client.get("/health")).json()).answers, 0);
  });
});

Deno.test("serve: input that cannot be embedded is rejected by name", async () => {
  await withClient(async (client) => {
    for (
      const [body, message, param] of [
        [{}, "input is missing; valid is a text, a list of token ids, or a list", "input"],
        [{ input: [] }, "input is an empty array", "input"],
        [{ input: ["a", 1] }, "input is an array", "input"],
        [{ input: [[1], "a"] }, "input is an array", "input"],
        [{ input: [-1] }, "input is an array", "input"],
        [{ input: { a: 1 } }, "input is an object", "input"],
        [{ input: Array(2049).fill("a") }, "input has 2049 texts; at most 2048", "input"],
        [{ input: ["a", []] }, "input is an array", "input"],
        [{ input: [[1], []] }, "text 2 has no tokens", null],
        [{ input: [5, 97] }, "token 1 of the text is 97; valid ids are 0 to 96", null],
        [{ input: "a".repeat(512) }, "the text has 513 tokens; the context holds 512", null],
        [{ input: "a", dimensions: 65 }, "dimensions is 65; valid is a whole number", null],
        [{ input: "a", dimensions: "8" }, 'dimensions is "8"; valid is', "dimensions"],
        [{ input: "a", encoding_format: "hex" }, '"float" or "base64"', "encoding_format"],
        [{ input: "a", inputs: "b" }, 'unknown key "inputs"; did you mean input?', "inputs"],
      ] as const
    ) {
      const error = await client.refusal(PATH, body);
      assertStringIncludes(error.message, message);
      assertEquals([error.type, error.param], ["invalid_request_error", param]);
    }
    const error = await client.refusal(PATH, { input: "a", model: "other" }, 404);
    assertEquals(error.code, "model_not_found");
  });
});

Deno.test("serve: a client that disconnects cancels only its own work", async () => {
  await withClient(async (client) => {
    const controller = new AbortController();
    const response = client.post(PATH, { input: Array(500).fill("fox ".repeat(100)) }, {
      signal: controller.signal,
    });
    setTimeout(() => controller.abort(), 5);
    const other = embed(client, { input: "A fox." });
    assertEquals((await response).status, 499);
    assertEquals((await other).data.length, 1);
    assertEquals((await (await client.get("/health")).json()).answers, 0);
  });
});
