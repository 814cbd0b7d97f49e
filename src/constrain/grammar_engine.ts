/**
 * The engine that turns grammars into token masks: xgrammar, compiled to WebAssembly, from the npm
 * package `@mlc-ai/web-xgrammar`. Of the package only the WebAssembly module is used. Its JavaScript is
 * a script for browsers that Deno cannot import, its functions are asynchronous without need, and some
 * of them leak.
 */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { ForgeError } from "../errors.ts";

/** An object that lives in the engine's memory until it is deleted. */
interface Native {
  delete(): void;
}

/** How one text has been matched. */
export interface NativeMatcher extends Native {
  AcceptToken(token: number, verbose: boolean): boolean;
  GetNextTokenBitmask(vocabSize: number): Native;
  /** Whether the text may end here. */
  IsTerminated(): boolean;
}

/** The part of the WebAssembly module's interface that is used, under its own names. */
interface Bindings {
  readonly vecStringFromJSArray: (strings: readonly Uint8Array[]) => Native;
  readonly vecIntFromJSArray: (numbers: readonly number[]) => Native;
  /** A view of the engine's memory, valid until its next call. */
  readonly vecIntToView: (vector: Native) => Int32Array;
  readonly Grammar: { FromEBNF(source: string, root: string): Native };
  readonly TokenizerInfo: new (
    tokens: Native,
    type: "RAW",
    vocabSize: number,
    stopTokens: Native,
    addPrefixSpace: boolean,
  ) => Native;
  readonly GrammarCompiler: new (info: Native, threads: number, caches: boolean) =>
    & Native
    & { CompileGrammar(grammar: Native): Native };
  readonly GrammarMatcher: new (
    grammar: Native,
    stopTokens: undefined,
    terminatesWithoutStop: boolean,
    maxRollback: number,
  ) => NativeMatcher;
}

type ModuleFactory = (options: {
  print: (line: string) => void;
  printErr: (line: string) => void;
}) => Promise<Bindings>;

let opening: Promise<GrammarEngine> | undefined;

/**
 * The engine of this process, started by the first call and again after it failed.
 *
 * @throws {ForgeError} `not_found` when the package is not there, `device` when it does not work
 */
export async function openGrammarEngine(): Promise<GrammarEngine> {
  opening ??= start();
  try {
    const engine = await opening;
    if (!engine.hasFailed) return engine;
  } catch (error) {
    opening = undefined;
    throw error;
  }
  opening = start();
  return await opening;
}

async function start(): Promise<GrammarEngine> {
  const factory = moduleFactory(readPackage());
  const log: string[] = [];
  const bindings = await factory({ print: () => {}, printErr: (line) => log.push(line) });
  const engine = new GrammarEngine(bindings, log);
  checkBytes(engine);
  return engine;
}

function readPackage(): string {
  try {
    return Deno.readTextFileSync(new URL(import.meta.resolve("web-xgrammar")));
  } catch (error) {
    throw new ForgeError(
      "not_found",
      "the npm package @mlc-ai/web-xgrammar, which constraints need, is not there; run " +
        '"deno install" in forge\'s folder',
      { cause: error },
    );
  }
}

/** The package's last statement; behind it the module's factory is still in scope. */
const LAST_STATEMENT = "Object.defineProperty(exports, '__esModule', { value: true });";

/** Evaluates the package's script as CommonJS and returns what makes its WebAssembly module. */
function moduleFactory(source: string): ModuleFactory {
  const exported = source.replace(LAST_STATEMENT, "exports.Module = Module;");
  const exports: { Module?: ModuleFactory } = {};
  const require = createRequire(import.meta.url);
  new Function("exports", "module", "require", "__filename", exported)(
    exports,
    { exports },
    require,
    fileURLToPath(import.meta.url),
  );
  if (exports.Module === undefined) {
    throw new ForgeError(
      "device",
      "the npm package @mlc-ai/web-xgrammar is not the version expected",
    );
  }
  return exports.Module;
}

/** Owns the WebAssembly module. */
export class GrammarEngine {
  readonly #bindings: Bindings;
  readonly #log: string[];
  /** Whether it has aborted: what lives in its memory is then of no use. */
  hasFailed = false;

  constructor(bindings: Bindings, log: string[]) {
    this.#bindings = bindings;
    this.#log = log;
  }

  /**
   * Calls into the engine.
   *
   * @throws {ForgeError} `device`, with the engine's own words, when it aborts
   */
  call<T>(work: (bindings: Bindings) => T): T {
    if (this.hasFailed) throw new ForgeError("device", "the grammar engine has failed before");
    this.#log.length = 0;
    try {
      return work(this.#bindings);
    } catch (error) {
      this.hasFailed = true;
      const said = this.#log.find((line) => line.includes("[FATAL]")) ?? String(error);
      const reason = said.replace(/^.*\[FATAL\] \S+: /, "").replace(/\p{Cc}+/gu, " ");
      throw new ForgeError("device", `the grammar engine failed: ${reason}`, { cause: error });
    }
  }
}

/** A vocabulary in the engine's memory. */
export class EngineVocabulary {
  readonly #engine: GrammarEngine;
  readonly #info: Native;
  readonly #compiler: InstanceType<Bindings["GrammarCompiler"]>;
  readonly #size: number;

  /**
   * @param tokens the bytes of each id; those without any are never allowed
   * @param size of the model's vocabulary; ids beyond `tokens` are never allowed
   * @param endTokens are allowed where the text may end
   */
  constructor(
    engine: GrammarEngine,
    tokens: readonly Uint8Array[],
    size: number,
    endTokens: readonly number[],
  ) {
    this.#engine = engine;
    this.#size = size;
    [this.#info, this.#compiler] = engine.call((bindings) => {
      const strings = bindings.vecStringFromJSArray(tokens);
      const ends = bindings.vecIntFromJSArray(endTokens);
      const info = new bindings.TokenizerInfo(strings, "RAW", size, ends, false);
      strings.delete();
      ends.delete();
      return [info, new bindings.GrammarCompiler(info, 1, false)];
    });
  }

  /** Whether the engine still works. */
  get isUsable(): boolean {
    return !this.#engine.hasFailed;
  }

  /** Compiles a grammar in the engine's notation. */
  compile(ebnf: string): EngineGrammar {
    const compiled = this.#engine.call((bindings) => {
      const grammar = bindings.Grammar.FromEBNF(ebnf, "root");
      try {
        return this.#compiler.CompileGrammar(grammar);
      } finally {
        grammar.delete();
      }
    });
    return new EngineGrammar(this.#engine, compiled, this.#size);
  }

  dispose(): void {
    this.#compiler.delete();
    this.#info.delete();
  }
}

/** A compiled grammar in the engine's memory. */
export class EngineGrammar {
  readonly #engine: GrammarEngine;
  readonly #compiled: Native;
  readonly vocabSize: number;

  constructor(engine: GrammarEngine, compiled: Native, vocabSize: number) {
    this.#engine = engine;
    this.#compiled = compiled;
    this.vocabSize = vocabSize;
  }

  match(): NativeMatcher {
    return this.#engine.call((bindings) =>
      new bindings.GrammarMatcher(this.#compiled, undefined, true, -1)
    );
  }

  /** Copies the mask of the tokens that may come next. */
  fill(matcher: NativeMatcher, mask: Uint32Array): void {
    this.#engine.call((bindings) => {
      const words = matcher.GetNextTokenBitmask(this.vocabSize);
      mask.set(bindings.vecIntToView(words));
      words.delete();
    });
    // The engine may set bits of the last word that stand for no token.
    const used = this.vocabSize % 32;
    if (used !== 0) mask[mask.length - 1]! &= 2 ** used - 1;
  }

  accept(matcher: NativeMatcher, token: number): boolean {
    return this.#engine.call(() => matcher.AcceptToken(token, false));
  }

  /** Whether the text may end here. */
  mayEnd(matcher: NativeMatcher): boolean {
    return this.#engine.call(() => matcher.IsTerminated());
  }

  dispose(): void {
    this.#compiled.delete();
  }
}

/**
 * Makes sure that the engine reads classes of numbers up to 255 as bytes, which all grammars written
 * for it rely on (`write_ebnf.ts`): U+00E9 is the bytes C3 A9.
 */
function checkBytes(engine: GrammarEngine): void {
  const tokens = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  const vocabulary = new EngineVocabulary(engine, tokens, 256, []);
  const grammar = vocabulary.compile(
    "root ::= [\\U000000c3\\U000000c3] [\\U000000a8-\\U000000a9]\n",
  );
  const matcher = grammar.match();
  const mask = new Uint32Array(8);
  const allowed = () => {
    grammar.fill(matcher, mask);
    return tokens.flatMap((_, byte) => mask[byte >> 5]! >>> (byte & 31) & 1 ? [byte] : []).join();
  };
  const first = allowed();
  grammar.accept(matcher, 0xc3);
  const second = allowed();
  matcher.delete();
  grammar.dispose();
  vocabulary.dispose();
  if (first === "195" && second === "168,169") return;
  throw new ForgeError("device", "the grammar engine does not read byte classes as it should");
}
