import { PRICES, type TemplateBudget } from "./budget.ts";
import { type Filter, type FilterContext, FILTERS } from "./filters.ts";
import { builtinAttribute } from "./methods.ts";
import { BlockReferences, LoopState, Macro } from "./objects.ts";
import { add, arithmetic, comparison } from "./operators.ts";
import type {
  ArgumentList,
  BlockNode,
  Expression,
  FilterNode,
  ForNode,
  MacroNode,
  Statement,
  Target,
} from "./syntax.ts";
import { TESTS } from "./tests.ts";
import {
  Arguments,
  Callable,
  codePoints,
  defined,
  Dict,
  escapeHtml,
  isInteger,
  isNumber,
  isText,
  isTrue,
  iterate,
  listOf,
  Markup,
  Namespace,
  NativeFunction,
  plain,
  Range,
  TemplateError,
  TemplateObject,
  toIndex,
  toText,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** End of a body: by `break` or `continue`, or after its last statement. */
type Completion = "break" | "continue" | undefined;

/** Variables of a block and of the blocks around it. */
class Scope {
  readonly #variables = new Map<string, Value>();
  readonly #outer: Scope | undefined;

  constructor(outer?: Scope) {
    this.#outer = outer;
  }

  get(name: string): Value | undefined {
    const value = this.#variables.get(name);
    // `null` is None, a value like any other.
    return value === undefined ? this.#outer?.get(name) : value;
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }
}

/**
 * Renders a parsed template as Jinja does with Python's types, in the sandbox that transformers
 * uses: only namespaces can be changed, and names that start with `_` cannot be read.
 * Every operation is paid for from the budget.
 */
export class Interpreter implements FilterContext {
  readonly budget: TemplateBudget;
  readonly #globals = new Scope();
  readonly #root: Scope;
  readonly #body: readonly Statement[];
  readonly #blocks = new Map<string, BlockNode>();
  #escapes = false;
  #output = "";

  constructor(
    body: readonly Statement[],
    variables: Iterable<readonly [string, Value]>,
    budget: TemplateBudget,
  ) {
    this.#body = body;
    this.budget = budget;
    this.#globals.set("self", new BlockReferences((name) => this.#blockReference(name)));
    for (const [name, value] of variables) this.#globals.set(name, value);
    this.#root = new Scope(this.#globals);
    this.#collectBlocks(body);
  }

  get escapes(): boolean {
    return this.#escapes;
  }

  /** Renders the template. */
  render(): string {
    return this.#capture(() => this.#run(this.#body, this.#root));
  }

  #collectBlocks(body: readonly Statement[]): void {
    for (const statement of body) {
      if (statement.kind === "block") this.#blocks.set(statement.name, statement);
      for (const inner of bodiesOf(statement)) this.#collectBlocks(inner);
    }
  }

  // Statements

  #run(body: readonly Statement[], scope: Scope): Completion {
    for (const statement of body) {
      const completion = this.#runOne(statement, scope);
      if (completion !== undefined) return completion;
    }
    return undefined;
  }

  #runOne(statement: Statement, scope: Scope): Completion {
    switch (statement.kind) {
      case "text":
        this.#write(statement.text);
        return undefined;
      case "break":
      case "continue":
        return statement.kind;
    }
    this.budget.enter();
    try {
      return this.#runNested(statement, scope);
    } catch (error) {
      throw placed(error, statement.at);
    } finally {
      this.budget.leave();
    }
  }

  #runNested(
    statement: Exclude<Statement, { kind: "text" | "break" | "continue" }>,
    scope: Scope,
  ): Completion {
    switch (statement.kind) {
      case "output":
        this.#print(this.#evaluate(statement.value, scope));
        return undefined;
      case "if":
        for (const { test, body } of statement.branches) {
          if (isTrue(this.#evaluate(test, scope))) return this.#run(body, scope);
        }
        return this.#run(statement.otherwise, scope);
      case "for":
        return this.#runFor(statement, scope);
      case "set":
        this.#assign(statement.target, this.#evaluate(statement.value, scope), scope);
        return undefined;
      case "set_block": {
        const inner = new Scope(scope);
        const { text, completion } = this.#captureBody(statement.body, inner);
        if (completion !== undefined) return completion;
        const value = this.#filterChain(statement.filter, text, inner);
        const marked = this.#escapes ? new Markup(toText(value, this.budget)) : value;
        this.#assign(statement.target, marked, scope);
        return undefined;
      }
      case "macro":
        scope.set(statement.macro.name!, this.#makeMacro(statement.macro, scope));
        return undefined;
      case "call_block": {
        const { callee, args } = statement.call;
        const caller = this.#makeMacro(statement.caller, scope);
        const called = this.#evaluate(callee, scope);
        const evaluated = this.#arguments(args, scope);
        const named = new Map([...evaluated.named, ["caller", caller] as const]);
        this.#writeResult(this.#call(called, new Arguments(evaluated.positional, named)), "call");
        return undefined;
      }
      case "filter_block": {
        const inner = new Scope(scope);
        const { text, completion } = this.#captureBody(statement.body, inner);
        if (completion !== undefined) return completion;
        this.#writeResult(this.#filterChain(statement.filter, text, inner), "filter");
        return undefined;
      }
      case "with": {
        const inner = new Scope(scope);
        for (const [index, target] of statement.targets.entries()) {
          this.#assign(target, this.#evaluate(statement.values[index]!, scope), inner);
        }
        return this.#run(statement.body, inner);
      }
      case "autoescape": {
        const escapes = isTrue(this.#evaluate(statement.enabled, scope));
        return this.#escaping(escapes, () => this.#run(statement.body, new Scope(scope)));
      }
      case "generation":
        return this.#run(statement.body, new Scope(scope));
      case "block":
        this.#renderBlock(statement, statement.isScoped ? scope : this.#root);
        return undefined;
      case "load":
        throw new TemplateError(
          `{% ${statement.tag} %} needs another template, which a chat template does not have`,
        );
    }
  }

  #escaping<Result>(escapes: boolean, run: () => Result): Result {
    const outer = this.#escapes;
    this.#escapes = escapes;
    try {
      return run();
    } finally {
      this.#escapes = outer;
    }
  }

  #renderBlock(block: BlockNode, scope: Scope): void {
    if (block.isRequired) {
      throw new TemplateError(`the block "${block.name}" is required but empty`);
    }
    const inner = new Scope(scope);
    inner.set("super", new Undefined(() => `the block "${block.name}" has no parent`));
    this.#run(block.body, inner);
  }

  #blockReference(name: string): Value | undefined {
    const block = this.#blocks.get(name);
    if (block === undefined) return undefined;
    return new NativeFunction((args) => {
      args.bind(name);
      const text = this.budget.nested(() =>
        this.#capture(() => this.#renderBlock(block, this.#root))
      );
      return this.#escapes ? new Markup(text) : text;
    });
  }

  #runFor(node: ForNode, scope: Scope): Completion {
    const source = this.#evaluate(node.iterable, scope);
    if (!node.isRecursive) return this.#loop(node, source, 0, undefined, scope);
    const render = (items: Value, depth: number): Value => {
      const text = this.budget.nested(() =>
        this.#capture(() => this.#loop(node, items, depth, render, scope))
      );
      return this.#escapes ? new Markup(text) : text;
    };
    this.#print(render(source, 0));
    return undefined;
  }

  /** @param recurse renders the loop for other items, if it is recursive */
  #loop(
    node: ForNode,
    source: Value,
    depth: number,
    recurse: ((items: Value, depth: number) => Value) | undefined,
    scope: Scope,
  ): Completion {
    const all = iterate(source, this.budget);
    const items = node.test === undefined ? all : this.#matching(node, node.test, all, scope);
    const counted = node.test === undefined ? source : null;
    const loop = new LoopState(counted, items, recurse, depth, this.budget);
    let isEmpty = true;
    for (let item = loop.next(); item !== undefined; item = loop.next()) {
      this.budget.pay(PRICES.turn);
      const inner = new Scope(scope);
      inner.set("loop", loop);
      this.#assign(node.target, item, inner);
      const completion = this.#run(node.body, inner);
      // In Jinja, an iteration left by `break` or `continue` does not count for `else`.
      if (completion === undefined) isEmpty = false;
      if (completion === "break") break;
    }
    return isEmpty ? this.#run(node.otherwise, new Scope(scope)) : undefined;
  }

  /** Yields the items of a loop that satisfy the condition after `if`. */
  *#matching(
    node: ForNode,
    test: Expression,
    items: Iterable<Value>,
    scope: Scope,
  ): Generator<Value> {
    for (const item of items) {
      this.budget.pay(PRICES.turn);
      const inner = new Scope(scope);
      this.#assign(node.target, item, inner);
      if (isTrue(this.#evaluate(test, inner))) yield item;
    }
  }

  #assign(target: Target, value: Value, scope: Scope): void {
    switch (target.kind) {
      case "name":
        scope.set(target.name, value);
        return;
      case "namespace": {
        const object = scope.get(target.name);
        if (!(object instanceof Namespace)) {
          throw new TemplateError(
            `"${target.name}" is not a namespace; only attributes of a namespace can be set`,
          );
        }
        object.attributes.set(target.attribute, value);
        return;
      }
      case "tuple": {
        const { items } = target;
        if (value instanceof Undefined) throw value.error();
        const values = listOf(value, this.budget);
        if (values.length !== items.length) {
          throw new TemplateError(
            `${values.length} values cannot be assigned to ${items.length} names`,
          );
        }
        for (const [index, item] of items.entries()) this.#assign(item, values[index]!, scope);
      }
    }
  }

  // Output

  #write(text: string): void {
    this.budget.payText(text.length);
    this.#output += text;
  }

  #print(value: Value): void {
    const text = this.#escapes ? escapeHtml(value, this.budget).text : toText(value, this.budget);
    this.#write(text);
  }

  /** Writes the result of a filter block or a call block as it is. */
  #writeResult(value: Value, tag: string): void {
    if (!isText(value)) {
      throw new TemplateError(`{% ${tag} %} produced ${typeName(value)}; it must produce text`);
    }
    this.#write(plain(value));
  }

  /** Returns what a function writes. */
  #capture(run: () => unknown): string {
    const outer = this.#output;
    this.#output = "";
    try {
      run();
      return this.#output;
    } finally {
      this.#output = outer;
    }
  }

  #captureBody(
    body: readonly Statement[],
    scope: Scope,
  ): { text: string | Markup; completion: Completion } {
    let completion: Completion;
    const text = this.#capture(() => {
      completion = this.#run(body, scope);
    });
    return { text: this.#escapes ? new Markup(text) : text, completion };
  }

  // Macros and calls

  #makeMacro(node: MacroNode, scope: Scope): Macro {
    this.budget.pay(PRICES.turn);
    const escapes = this.#escapes;
    const macro: Macro = new Macro(node, (args) => {
      const inner = new Scope(scope);
      this.#bindParameters(node, args, inner);
      const text = this.budget.nested(() =>
        this.#escaping(escapes, () => this.#capture(() => this.#run(node.body, inner)))
      );
      return this.#escapes ? new Markup(text) : text;
    });
    return macro;
  }

  #bindParameters(node: MacroNode, args: Arguments, scope: Scope): void {
    const name = node.name ?? "caller";
    const { parameters, reads } = node;
    const named = new Map(args.named);
    const missing: MacroNode["parameters"] = [];
    for (const [index, parameter] of parameters.entries()) {
      let value: Value | undefined = args.positional[index];
      if (value === undefined) {
        value = named.get(parameter.name);
        named.delete(parameter.name);
      }
      if (value !== undefined) scope.set(parameter.name, value);
      else missing.push(parameter);
    }
    const takesCaller = parameters.some((parameter) => parameter.name === "caller");
    if (reads.has("caller") && !takesCaller) {
      const caller = named.get("caller");
      named.delete("caller");
      scope.set("caller", caller ?? new Undefined(() => `${name}() has no caller`));
    }
    if (reads.has("kwargs")) scope.set("kwargs", new Dict(named));
    else {for (const key of named.keys()) {
        throw new TemplateError(`the macro ${name}() has no parameter "${key}"`);
      }}
    const surplus = args.positional.slice(parameters.length);
    if (reads.has("varargs")) scope.set("varargs", new Tuple(surplus));
    else if (surplus.length > 0) {
      throw new TemplateError(
        `the macro ${name}() got ${args.positional.length} arguments; it takes at most ` +
          parameters.length,
      );
    }
    // Missing parameters hide variables of the same name, also in the defaults of other parameters.
    for (const { name: parameter } of missing) {
      scope.set(parameter, new Undefined(() => `the parameter "${parameter}" was not given`));
    }
    for (const { name: parameter, fallback } of missing) {
      if (fallback !== undefined) scope.set(parameter, this.#evaluate(fallback, scope));
    }
  }

  #call(callee: Value, args: Arguments): Value {
    this.budget.pay(PRICES.turn);
    if (callee instanceof Undefined) throw callee.error();
    if (!(callee instanceof Callable)) {
      throw new TemplateError(`${typeName(callee)} cannot be called`);
    }
    return callee.call(args);
  }

  #arguments(list: ArgumentList, scope: Scope): Arguments {
    const positional = list.positional.map((node) => this.#evaluate(node, scope));
    const named = new Map<string, Value>();
    for (const [name, node] of list.named) named.set(name, this.#evaluate(node, scope));
    if (list.spread !== undefined) {
      positional.push(...listOf(this.#evaluate(list.spread, scope), this.budget));
    }
    if (list.namedSpread !== undefined) {
      const spread = this.#evaluate(list.namedSpread, scope);
      if (!(spread instanceof Dict)) {
        throw new TemplateError(`** in a call needs a dict, not ${typeName(spread)}`);
      }
      for (const [key, value] of spread.entries()) {
        if (!isText(key)) {
          throw new TemplateError(`** in a call needs keys of text, not ${typeName(key)}`);
        }
        if (named.has(plain(key))) {
          throw new TemplateError(`the argument "${plain(key)}" is given twice`);
        }
        named.set(plain(key), value);
      }
    }
    return new Arguments(positional, named);
  }

  // Expressions

  #evaluate(node: Expression, scope: Scope): Value {
    switch (node.kind) {
      case "literal":
        this.budget.pay(PRICES.node);
        return node.value;
      case "name":
        this.budget.pay(PRICES.node);
        return defined(scope.get(node.name), () => `"${node.name}" is undefined`);
    }
    this.budget.enter();
    try {
      return this.#evaluateNested(node, scope);
    } catch (error) {
      throw placed(error, node.at);
    } finally {
      this.budget.leave();
    }
  }

  #evaluateNested(
    node: Exclude<Expression, { kind: "literal" | "name" }>,
    scope: Scope,
  ): Value {
    switch (node.kind) {
      case "list":
        return node.items.map((item) => this.#evaluate(item, scope));
      case "tuple":
        return new Tuple(node.items.map((item) => this.#evaluate(item, scope)));
      case "dict": {
        const dict = new Dict();
        for (const [key, value] of node.entries) {
          dict.set(this.#evaluate(key, scope), this.#evaluate(value, scope));
        }
        return dict;
      }
      case "attribute": {
        const value = this.#attribute(this.#evaluate(node.object, scope), node.name);
        return defined(value, () => `"${describe(node)}" is undefined`);
      }
      case "item": {
        const object = this.#evaluate(node.object, scope);
        const value = this.#item(object, this.#evaluate(node.index, scope));
        return defined(value, () => `"${describe(node)}" is undefined`);
      }
      case "slice": {
        const object = this.#evaluate(node.object, scope);
        return this.#slice(
          object,
          node.bounds.map((bound) => bound && this.#evaluate(bound, scope)),
        );
      }
      case "call": {
        const callee = this.#evaluate(node.callee, scope);
        return this.#call(callee, this.#arguments(node.args, scope));
      }
      case "filter":
        if (node.operand === undefined) throw new TemplateError("a filter has no value");
        return this.#applyFilter(node, this.#evaluate(node.operand, scope), scope);
      case "test": {
        const operand = this.#evaluate(node.operand, scope);
        return this.test(node.name, operand, this.#arguments(node.args, scope));
      }
      case "unary":
        return this.#unary(node.operator, this.#evaluate(node.operand, scope));
      case "arithmetic": {
        const left = this.#evaluate(node.left, scope);
        return arithmetic(node.operator, left, this.#evaluate(node.right, scope), this.budget);
      }
      case "logic": {
        const left = this.#evaluate(node.left, scope);
        return isTrue(left) === (node.operator === "and")
          ? this.#evaluate(node.right, scope)
          : left;
      }
      case "comparison":
        return this.#compare(node, scope);
      case "concatenation": {
        const parts = node.parts.map((part) => this.#evaluate(part, scope));
        if (!this.#escapes || !parts.some((part) => part instanceof Markup)) {
          return parts.map((part) => this.#paidText(part)).join("");
        }
        return new Markup(parts.map((part) => escapeHtml(part, this.budget).text).join(""));
      }
      case "conditional":
        if (isTrue(this.#evaluate(node.test, scope))) return this.#evaluate(node.then, scope);
        if (node.otherwise !== undefined) return this.#evaluate(node.otherwise, scope);
        return new Undefined(() => "an inline if without else gave no value");
    }
  }

  #paidText(value: Value): string {
    const text = toText(value, this.budget);
    this.budget.payText(text.length);
    return text;
  }

  #compare(node: Expression & { kind: "comparison" }, scope: Scope): boolean {
    let left = this.#evaluate(node.first, scope);
    for (const [operator, operand] of node.rest) {
      const right = this.#evaluate(operand, scope);
      if (!comparison(operator, left, right, this.budget)) return false;
      left = right;
    }
    return true;
  }

  #unary(operator: "+" | "-" | "not", value: Value): Value {
    if (operator === "not") return !isTrue(value);
    if (value instanceof Undefined) throw value.error();
    if (!isNumber(value)) {
      throw new TemplateError(`"${operator}" needs a number, not ${typeName(value)}`);
    }
    const number = typeof value === "boolean" ? BigInt(value) : value;
    return operator === "-" ? -number : number;
  }

  // Attributes and items

  /** Returns an attribute, or the item with its name; `undefined` if neither exists. */
  #attribute(object: Value, name: string): Value | undefined {
    const found = this.#ownAttribute(object, name);
    if (found !== undefined) return found;
    return object instanceof Dict ? object.get(name) : undefined;
  }

  #ownAttribute(object: Value, name: string): Value | undefined {
    if (object instanceof Undefined) throw object.error();
    const changes = object instanceof Dict ? DICT_CHANGES : Array.isArray(object) && LIST_CHANGES;
    // In Python, the method is found and denied, even if a key has the same name.
    if (changes && changes.has(name)) {
      return new Undefined(() => `${name}() changes its object, which templates must not`);
    }
    const attribute = object instanceof TemplateObject ? object.attribute(name) : undefined;
    const found = attribute === undefined
      ? builtinAttribute(object, name, this, this.budget)
      : attribute;
    if (found === undefined || !name.startsWith("_")) return found;
    return new Undefined(() => `"${name}" starts with "_"; templates cannot read such names`);
  }

  /** Returns an item, or the attribute with its name; `undefined` if neither exists. */
  #item(object: Value, index: Value): Value | undefined {
    if (object instanceof Undefined) throw object.error();
    if (object instanceof Dict) {
      const value = hashableItem(object, index);
      if (value !== undefined) return value;
    } else if (isInteger(index)) {
      const at = toIndex(index);
      if (isText(object)) {
        const points = codePoints(plain(object), this.budget);
        const character = points.at(at);
        if (character === undefined) return undefined;
        return object instanceof Markup ? new Markup(character) : character;
      }
      if (Array.isArray(object)) return object.at(at);
      if (object instanceof Tuple) return object.items.at(at);
      if (object instanceof Range) {
        const position = at < 0 ? at + object.length : at;
        return position >= 0 && position < object.length ? object.at(position) : undefined;
      }
    }
    return isText(index) ? this.#ownAttribute(object, plain(index)) : undefined;
  }

  attribute(object: Value, name: string): Value {
    return defined(this.#attribute(object, name), () => `the attribute "${name}" is undefined`);
  }

  attributeOnly(object: Value, name: string): Value {
    return defined(this.#ownAttribute(object, name), () => `the attribute "${name}" is undefined`);
  }

  item(object: Value, index: Value): Value {
    return defined(
      this.#item(object, index),
      () => `the item "${toText(index, this.budget)}" is undefined`,
    );
  }

  #slice(object: Value, bounds: (Value | undefined)[]): Value {
    if (object instanceof Undefined) throw object.error();
    const [start, stop, step] = bounds.map((bound) => {
      if (bound === undefined || bound === null) return undefined;
      if (bound instanceof Undefined) throw bound.error();
      if (isInteger(bound)) return toIndex(bound);
      throw new TemplateError(`a slice needs ints, not ${typeName(bound)}`);
    });
    if (step === 0) throw new TemplateError("the step of a slice cannot be 0");
    if (isText(object)) {
      const points = codePoints(plain(object), this.budget);
      this.budget.payText(plain(object).length);
      let text: string;
      if (typeof points === "string" && (step ?? 1) === 1) {
        text = points.slice(...sliceRange(points.length, start, stop, 1));
      } else {
        this.budget.pay(points.length * PRICES.visit);
        text = stepThrough(points, start, stop, step).join("");
      }
      return object instanceof Markup ? new Markup(text) : text;
    }
    if (object instanceof Range) return sliceOfRange(object, start, stop, step);
    const items = object instanceof Tuple ? object.items : object;
    if (!Array.isArray(items)) throw new TemplateError(`${typeName(object)} has no slices`);
    this.budget.pay(items.length * PRICES.visit);
    const part = stepThrough(items as readonly Value[], start, stop, step);
    return object instanceof Tuple ? new Tuple(part) : part;
  }

  // Filters and tests

  #filterChain(node: FilterNode | undefined, value: Value, scope: Scope): Value {
    if (node === undefined) return value;
    const operand = node.operand as FilterNode | undefined;
    try {
      return this.#applyFilter(node, this.#filterChain(operand, value, scope), scope);
    } catch (error) {
      throw placed(error, node.at);
    }
  }

  #applyFilter(node: FilterNode, value: Value, scope: Scope): Value {
    return this.filter(node.name, value, this.#arguments(node.args, scope));
  }

  filter(name: string, value: Value, args: Arguments): Value {
    const filter: Filter | undefined = FILTERS.get(name);
    if (filter === undefined) throw new TemplateError(`unknown filter "${name}"`);
    this.budget.pay(PRICES.value);
    return filter(value, args, this);
  }

  test(name: string, value: Value, args: Arguments): boolean {
    const test = TESTS.get(name);
    if (test === undefined) throw new TemplateError(`unknown test "${name}"`);
    this.budget.pay(PRICES.value);
    return test(value, args, this.budget);
  }

  add(left: Value, right: Value): Value {
    return add(left, right, this.budget);
  }
}

/** Methods that change their object; templates must not call them. */
const DICT_CHANGES: ReadonlySet<string> = new Set([
  "clear",
  "pop",
  "popitem",
  "setdefault",
  "update",
]);
const LIST_CHANGES: ReadonlySet<string> = new Set([
  "append",
  "clear",
  "extend",
  "insert",
  "pop",
  "remove",
  "reverse",
  "sort",
]);

/** Returns the bodies inside of a statement. */
function bodiesOf(statement: Statement): (readonly Statement[])[] {
  switch (statement.kind) {
    case "if":
      return [...statement.branches.map(({ body }) => body), statement.otherwise];
    case "for":
      return [statement.body, statement.otherwise];
    case "macro":
      return [statement.macro.body];
    case "call_block":
      return [statement.caller.body];
    case "set_block":
    case "filter_block":
    case "with":
    case "autoescape":
    case "generation":
    case "block":
      return [statement.body];
    default:
      return [];
  }
}

/** Records where an error happened, unless an inner construct has done so. */
function placed(error: unknown, at: number): unknown {
  if (error instanceof TemplateError) error.at ??= at;
  return error;
}

/** Returns the name of an expression in errors. */
function describe(node: Expression): string {
  switch (node.kind) {
    case "name":
      return node.name;
    case "attribute":
      return `${describe(node.object)}.${node.name}`;
    case "item": {
      const { index } = node;
      const text = index.kind === "literal" ? JSON.stringify(index.value, bigintText) : "…";
      return `${describe(node.object)}[${text}]`;
    }
    case "call":
      return `${describe(node.callee)}()`;
    default:
      return "(…)";
  }
}

function bigintText(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}

/** Returns the item of a dict; `undefined` for a missing or unhashable key. */
function hashableItem(dict: Dict, key: Value): Value | undefined {
  try {
    return dict.get(key);
  } catch (error) {
    if (error instanceof TemplateError) return undefined;
    throw error;
  }
}

/** Returns the bounds of a slice, clamped as Python does. */
function sliceRange(
  length: number,
  start: number | undefined,
  stop: number | undefined,
  step: number,
): [start: number, stop: number] {
  const lowest = step > 0 ? 0 : -1;
  const highest = step > 0 ? length : length - 1;
  const clamp = (bound: number) => {
    const position = bound < 0 ? bound + length : bound;
    return Math.max(lowest, Math.min(position, highest));
  };
  const from = start === undefined ? (step > 0 ? lowest : highest) : clamp(start);
  const to = stop === undefined ? (step > 0 ? highest : lowest) : clamp(stop);
  return [from, to];
}

function stepThrough<Item>(
  items: ArrayLike<Item>,
  start: number | undefined,
  stop: number | undefined,
  step = 1,
): Item[] {
  const [from, to] = sliceRange(items.length, start, stop, step);
  const part: Item[] = [];
  for (let at = from; step > 0 ? at < to : at > to; at += step) part.push(items[at]!);
  return part;
}

function sliceOfRange(
  range: Range,
  start: number | undefined,
  stop: number | undefined,
  step = 1,
): Range {
  const [from, to] = sliceRange(range.length, start, stop, step);
  const position = (index: number) => range.start + index * range.step;
  return new Range(position(from), position(to), range.step * step);
}
