import type { ColumnPiece, Operand, OperationSink, Step, Value } from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import { ENUMERATIONS } from "./abi/numbers.ts";
import type { Library } from "./library.ts";
import type { NativeHandles } from "./native_handles.ts";
import { NativeStep } from "./native_step.ts";
import { checkStatus } from "./status.ts";
import { cString, readText } from "./status.ts";

/** An operand as `forge_operations` describes it. */
export interface OperandDescription {
  readonly name: string;
  /** Kind as in `forge_operations`, without the "?". */
  readonly kind: string;
  readonly isOptional: boolean;
}

/** An operation of a library, with its operands in the order of `forge_record`. */
export interface OperationDescription {
  readonly name: string;
  /** The name as a C string. */
  readonly cName: Uint8Array<ArrayBuffer>;
  readonly operands: readonly OperandDescription[];
}

/** Reads the table of operations of a library, by name. */
export function readOperations(library: Library): ReadonlyMap<string, OperationDescription> {
  const text = readText((buffer, capacity) => {
    checkStatus(library.symbols.forge_operations(buffer, capacity), "operations", () => "");
  });
  return new Map(
    text.trimEnd().split("\n").map((line) => {
      const [name = "", ...operands] = line.split(" ");
      return [name, { name, cName: cString(name), operands: operands.map(parseOperand) }];
    }),
  );
}

function parseOperand(text: string): OperandDescription {
  const [name = "", kind = ""] = text.split(":");
  return { name, kind: kind.replace("?", ""), isOptional: kind.endsWith("?") };
}

/** Maximum number of pieces of gather_columns: `kMaxPieces` of `csrc/common/operations.h`. */
const MAX_PIECES = 3;
const PIECE_WORDS = 5;

/** Encodes operands as the words of `forge_record`. */
class OperandWords {
  readonly #view = new DataView(new ArrayBuffer(256));
  readonly bytes = new Uint8Array(this.#view.buffer);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /**
   * Encodes an operation, replacing the previous one.
   *
   * @throws {TypeError} if the operands differ from the library's table
   */
  encode(
    { name, operands }: OperationDescription,
    values: Readonly<Record<string, Operand>>,
  ): this {
    this.#length = 0;
    for (const key of Object.keys(values)) {
      if (!operands.some((operand) => operand.name === key)) {
        throw new TypeError(`${name} has no operand "${key}"`);
      }
    }
    for (const operand of operands) {
      const value = values[operand.name];
      if (value === undefined && !operand.isOptional) {
        throw new TypeError(`${name} needs its operand "${operand.name}"`);
      }
      this.#add(operand, value);
    }
    return this;
  }

  #add({ name, kind }: OperandDescription, value: Operand): void {
    if (kind === "f32") return this.#float(value as number);
    if (kind === "pieces") return this.#pieces(value as readonly ColumnPiece[]);
    this.#word(
      typeof value === "object" && "handle" in value
        ? value.handle
        : typeof value === "string"
        ? memberOf(name, value)
        : Number(value ?? 0),
    );
  }

  #pieces(pieces: readonly ColumnPiece[]): void {
    if (pieces.length < 1 || pieces.length > MAX_PIECES) {
      throw new ForgeError("device", `${pieces.length} pieces; valid is 1 to ${MAX_PIECES}`);
    }
    for (const { value, width, first = 0, step = 0, scale = 1 } of pieces) {
      for (const word of [value, width, first, step]) this.#word(word);
      this.#float(scale);
    }
    for (let i = pieces.length * PIECE_WORDS; i < MAX_PIECES * PIECE_WORDS; i++) this.#word(0);
  }

  #word(value: number): void {
    this.#view.setUint32(4 * this.#length++, value, true);
  }

  #float(value: number): void {
    this.#view.setFloat32(4 * this.#length++, value, true);
  }
}

function memberOf(enumeration: string, member: string): number {
  const number = ENUMERATIONS[enumeration]?.[member];
  if (number === undefined) throw new TypeError(`unknown ${enumeration} "${member}"`);
  return number;
}

/** Records a step through the ABI, one call per operation. */
export class NativeRecorder implements OperationSink {
  readonly #native: NativeHandles;
  readonly #operations: ReadonlyMap<string, OperationDescription>;
  readonly #step: number;
  readonly #words = new OperandWords();
  readonly #out = new Uint32Array(1);
  #maxTop = 0;

  constructor(
    native: NativeHandles,
    operations: ReadonlyMap<string, OperationDescription>,
    step: number,
  ) {
    this.#native = native;
    this.#operations = operations;
    this.#step = step;
  }

  record(name: string, operands: Readonly<Record<string, Operand>>): Value {
    const operation = this.#operations.get(name);
    if (operation === undefined) throw new TypeError(`the library has no operation "${name}"`);
    const { bytes, length } = this.#words.encode(operation, operands);
    const { forge_record } = this.#native.symbols;
    this.#native.check(
      forge_record(this.#step, operation.cName, bytes, BigInt(length), this.#out),
      name,
      this.#step,
    );
    if (name === "sample") this.#maxTop = operands.max_top as number;
    return this.#out[0] as Value;
  }

  keep(value: Value): void {
    const { forge_step_keep } = this.#native.symbols;
    this.#native.check(forge_step_keep(this.#step, value), "keep", this.#step);
  }

  async finish(): Promise<Step> {
    const scratchBytes = new BigUint64Array(1);
    await this.#native.call(
      "preparing a step",
      this.#step,
      (symbols) => symbols.forge_step_end(this.#step, scratchBytes),
    );
    return new NativeStep(this.#native, this.#step, this.#maxTop, Number(scratchBytes[0]));
  }
}
