/** Compares masks over a real vocabulary of 128,256 tokens with its tokens tested one by one. */
import { assert, assertEquals } from "@std/assert";
import { Constraints } from "../../../src/constrain/constraints.ts";
import { openCheckpoint, openTokenizer } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { allowedIn, spec } from "../../unit/constrain/support.ts";

const FILE = ["tokenizers", "ggml-vocab-llama-bpe.gguf"] as const;
const PLACES = 2;

const ARTICLE = {
  type: "object",
  properties: {
    title: { type: "string", minLength: 1, maxLength: 120 },
    tags: { type: "array", items: { type: "string", pattern: "^[a-zé-]+$" }, maxItems: 100 },
    body: { type: "string", maxLength: 4096 },
  },
  required: ["title", "tags", "body"],
};

Deno.test({
  name: "masks: a mask allows exactly the tokens of a large vocabulary that the constraint accepts",
  ignore: !sharedAvailable(...FILE),
  fn: async () => {
    const tokenizer = openTokenizer(openCheckpoint(sharedPath(...FILE)));
    const { vocabSize } = tokenizer;
    const ends = new Set(tokenizer.eosIds);
    const constraints = new Constraints(tokenizer, vocabSize, ends);
    const random = new Random("large vocabulary");
    const mask = new Uint32Array(Math.ceil(vocabSize / 32));
    for (
      const source of [
        spec.schema(ARTICLE),
        spec.schema({ type: "object" }),
        spec.regex("(?:[A-Z][a-z ,日本é]{3,80}\\. )*"),
        spec.grammar(
          'root ::= item ("," item)*\nitem ::= "\\"" text "\\"" | [0-9]{1,20}\ntext ::= [^"]{0,25}',
        ),
      ]
    ) {
      const state = (await constraints.compile(source, false)).start();
      for (let place = 0; place < PLACES * 3 && !state.isTerminated; place++) {
        state.fillMask(mask);
        const allowed = allowedIn(mask).filter((id) => !ends.has(id));
        if (place % 3 === 0) {
          const accepted = Array.from({ length: vocabSize }, (_, id) => id).filter((id) => {
            const tried = state.fork();
            try {
              tried.accept(id);
              return true;
            } catch {
              return false;
            }
          });
          assertEquals(allowed, accepted, JSON.stringify(source));
        }
        assert(allowed.length > 0);
        state.accept(random.pick(allowed));
      }
      state.dispose();
    }
    constraints.dispose();
  },
});
