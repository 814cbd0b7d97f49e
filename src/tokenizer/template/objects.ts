import type { TemplateBudget } from "./budget.ts";
import type { MacroNode } from "./syntax.ts";
import {
  type Arguments,
  Callable,
  defined,
  Dict,
  listOf,
  NativeFunction,
  repr,
  same,
  TemplateError,
  TemplateObject,
  Tuple,
  Undefined,
  type Value,
} from "./values.ts";

/** Macro, or the `caller` of a call block. */
export class Macro extends Callable {
  readonly typeName = "Macro";
  readonly node: MacroNode;
  readonly #run: (args: Arguments) => Value;

  constructor(node: MacroNode, run: (args: Arguments) => Value) {
    super();
    this.node = node;
    this.#run = run;
  }

  override call(args: Arguments): Value {
    return this.#run(args);
  }

  override attribute(name: string): Value | undefined {
    const { name: ownName = null, parameters, reads } = this.node;
    switch (name) {
      case "name":
        return ownName;
      case "arguments":
        return new Tuple(parameters.map((parameter) => parameter.name));
      case "caller":
        return reads.has("caller");
      case "catch_kwargs":
        return reads.has("kwargs");
      case "catch_varargs":
        return reads.has("varargs");
      default:
        return undefined;
    }
  }

  override repr(budget: TemplateBudget): string {
    const { name } = this.node;
    return `<Macro ${name === undefined ? "anonymous" : repr(name, budget)}>`;
  }
}

/** Variable `loop` inside of a loop. Calling it renders the loop for other items. */
export class LoopState extends Callable {
  readonly typeName = "LoopContext";
  readonly #source: Value;
  readonly #recurse: ((items: Value, depth: number) => Value) | undefined;
  readonly #depth: number;
  readonly #budget: TemplateBudget;
  #iterator: Iterator<Value>;
  #index = -1;
  #length: number | undefined;
  /** Item after the current one, if it was read in advance. */
  #ahead: IteratorResult<Value> | undefined;
  #current: Value | undefined;
  #previous: Value | undefined;
  #changed: Tuple | undefined;

  /**
   * @param source value that the loop iterates over, if its length is known
   * @param recurse renders the loop for other items, if it is marked `recursive`
   */
  constructor(
    source: Value,
    items: Iterable<Value>,
    recurse: ((items: Value, depth: number) => Value) | undefined,
    depth: number,
    budget: TemplateBudget,
  ) {
    super();
    this.#source = source;
    this.#iterator = items[Symbol.iterator]();
    this.#recurse = recurse;
    this.#depth = depth;
    this.#budget = budget;
  }

  /** Advances to the next item; returns `undefined` after the last. */
  next(): Value | undefined {
    const result = this.#ahead ?? this.#iterator.next();
    this.#ahead = undefined;
    if (result.done) return undefined;
    this.#index++;
    this.#previous = this.#current;
    this.#current = result.value;
    return result.value;
  }

  #peek(): IteratorResult<Value> {
    return this.#ahead ??= this.#iterator.next();
  }

  #count(): number {
    if (this.#length !== undefined) return this.#length;
    if (Array.isArray(this.#source)) return this.#length = this.#source.length;
    // The remaining items are read now, and the loop continues with them.
    const rest: Value[] = [];
    for (let item = this.#peek(); !item.done; item = this.#iterator.next()) rest.push(item.value);
    this.#ahead = undefined;
    this.#iterator = rest[Symbol.iterator]();
    return this.#length = this.#index + 1 + rest.length;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case "index":
        return BigInt(this.#index + 1);
      case "index0":
        return BigInt(this.#index);
      case "revindex":
        return BigInt(this.#count() - this.#index);
      case "revindex0":
        return BigInt(this.#count() - this.#index - 1);
      case "first":
        return this.#index === 0;
      case "last":
        return this.#peek().done === true;
      case "length":
        return BigInt(this.#count());
      case "depth":
        return BigInt(this.#depth + 1);
      case "depth0":
        return BigInt(this.#depth);
      case "previtem":
        return defined(this.#previous, () => "the first item has no previous one");
      case "nextitem": {
        const next = this.#peek();
        return next.done ? new Undefined(() => "the last item has no next one") : next.value;
      }
      case "cycle":
        return new NativeFunction((args) => {
          const { positional } = args;
          if (positional.length === 0) throw new TemplateError("loop.cycle() got no values");
          return positional[this.#index % positional.length]!;
        });
      case "changed":
        return new NativeFunction((args) => {
          const values = new Tuple(args.positional);
          const isSame = this.#changed !== undefined && same(this.#changed, values, this.#budget);
          this.#changed = values;
          return !isSame;
        });
      default:
        return undefined;
    }
  }

  override call(args: Arguments): Value {
    const [items] = args.bind("loop", "iterable");
    if (this.#recurse === undefined) {
      throw new TemplateError("loop() is called in a loop that is not marked recursive");
    }
    return this.#recurse(items!, this.#depth + 1);
  }

  override repr(): string {
    return `<LoopContext ${this.#index + 1}/${this.#count()}>`;
  }
}

/** Result of `cycler()`: repeats its values in order. */
export class Cycler extends TemplateObject {
  readonly typeName = "Cycler";
  readonly #items: readonly Value[];
  #position = 0;

  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateError("cycler() got no values");
    this.#items = items;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case "current":
        return this.#items[this.#position]!;
      case "next":
        return new NativeFunction(() => {
          const item = this.#items[this.#position]!;
          this.#position = (this.#position + 1) % this.#items.length;
          return item;
        });
      case "reset":
        return new NativeFunction(() => {
          this.#position = 0;
          return null;
        });
      case "pos":
        return BigInt(this.#position);
      case "items":
        return new Tuple(this.#items);
      default:
        return undefined;
    }
  }
}

/** Result of `joiner()`: returns empty text at the first call, then its separator. */
export class Joiner extends Callable {
  readonly typeName = "Joiner";
  readonly #separator: Value;
  #used = false;

  constructor(separator: Value) {
    super();
    this.#separator = separator;
  }

  override call(args: Arguments): Value {
    args.bind("joiner");
    const text = this.#used ? this.#separator : "";
    this.#used = true;
    return text;
  }

  override attribute(name: string): Value | undefined {
    return name === "sep" ? this.#separator : name === "used" ? this.#used : undefined;
  }
}

/** Variable `self`, through which blocks are rendered again. */
export class BlockReferences extends TemplateObject {
  readonly typeName = "TemplateReference";
  readonly #find: (name: string) => Value | undefined;

  constructor(find: (name: string) => Value | undefined) {
    super();
    this.#find = find;
  }

  override attribute(name: string): Value | undefined {
    return this.#find(name);
  }

  override repr(): string {
    return "<TemplateReference None>";
  }
}

/** Python's `dict()`: of pairs or another dict, and of named arguments. */
export function makeDict(args: Arguments, budget: TemplateBudget): Dict {
  const [source, ...surplus] = args.positional;
  if (surplus.length > 0) {
    throw new TemplateError(
      `dict() got ${args.positional.length} arguments; it takes at most one dict or list of pairs`,
    );
  }
  const dict = new Dict(source instanceof Dict ? source.entries() : []);
  if (source !== undefined && !(source instanceof Dict)) {
    for (const pair of listOf(source, budget)) {
      const parts = listOf(pair, budget);
      if (parts.length !== 2) {
        throw new TemplateError(`dict() got a list of ${parts.length}; it takes pairs`);
      }
      dict.set(parts[0]!, parts[1]!);
    }
  }
  for (const [name, value] of args.named) dict.set(name, value);
  return dict;
}
