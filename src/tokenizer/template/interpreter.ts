import { type Environment, Interpreter } from "jinja";
import { PRICES, type TemplateBudget } from "./budget.ts";
import { binary } from "./operators.ts";
import { payForFilter, payForPairs, payForWhole } from "./prices.ts";
import type { KnownNode, TemplateNode, TemplateProgram } from "./program.ts";
import { type TemplateArguments, TEXT_FILTERS, TEXT_METHODS } from "./text.ts";
import {
  isFunction,
  isList,
  isMapping,
  isText,
  isUndefined,
  type TemplateValue,
  templateValue,
  textValue,
  toText,
} from "./values.ts";

/**
 * The interpreter of the jinja package under a budget. Its operations take time and memory that
 * depend on their operands, so an operation's operands are evaluated first, the operation is paid
 * for, and only then does the package do it, taking the operands from `#ready` in place of
 * evaluating them again. Where the package differs from Python's Jinja in ways that chat templates
 * meet (text methods with arguments, `str()` of values, `==` of lists, names set in a loop), the
 * operation is done here instead.
 */
export class BudgetedInterpreter extends Interpreter {
  readonly #template: TemplateProgram;
  readonly #budget: TemplateBudget;
  readonly #ready = new Map<TemplateNode, TemplateValue>();
  /** Where each macro was defined: it sees the names there, not those where it is called. */
  readonly #macroScopes = new WeakMap<TemplateValue, Environment>();

  constructor(template: TemplateProgram, environment: Environment, budget: TemplateBudget) {
    super(environment);
    this.#template = template;
    this.#budget = budget;
  }

  /** Renders the template. */
  render(): string {
    return toText(this.run(this.#template.program), this.#budget);
  }

  override evaluate(node: TemplateNode | undefined, scope: Environment): TemplateValue {
    if (node === undefined) return super.evaluate(node, scope);
    const ready = this.#ready.get(node);
    if (ready !== undefined) {
      this.#ready.delete(node);
      return ready;
    }
    this.#budget.enter();
    try {
      const loopNames = this.#template.loopStarts.get(node);
      if (loopNames !== undefined) this.#startTurn(scope, loopNames);
      const value = this.#evaluateOne(node as KnownNode, scope);
      if (!this.#template.printed.has(node)) return value;
      return textValue(toText(value, this.#budget), this.#budget);
    } finally {
      this.#budget.leave();
    }
  }

  #evaluateOne(node: KnownNode, scope: Environment): TemplateValue {
    switch (node.type) {
      case "StringLiteral":
        this.#budget.payText(node.value.length);
        return super.evaluate(node, scope);
      case "Identifier":
        return this.#evaluateName(node, scope);
      case "BinaryExpression":
        return this.#evaluateBinary(node, scope);
      case "FilterExpression":
        return this.#evaluateFilter(node, scope);
      case "FilterStatement":
        return this.#evaluateFilterBlock(node, scope);
      case "TestExpression":
        return this.#evaluateTest(node, scope);
      case "CallExpression":
        return this.#evaluateCall(node, scope);
      case "MemberExpression":
        return this.#evaluateMember(node, scope);
      case "For":
        return this.#evaluateFor(node, scope);
      case "Macro":
        return this.#defineMacro(node, scope);
      case "CallStatement":
        this.#payForBlock(node);
        return super.evaluate(node, scope);
      default:
        return this.#delegate(node, scope);
    }
  }

  /** Lets the package evaluate a node; its `undefined` becomes the undefined of templates. */
  #delegate(node: TemplateNode, scope: Environment): TemplateValue {
    const value: TemplateValue | undefined = super.evaluate(node, scope);
    return value ?? templateValue(undefined);
  }

  /** In Jinja, what a turn of a loop sets is gone in the next; the package keeps one scope. */
  #startTurn(scope: Environment, loopNames: ReadonlySet<string>): void {
    this.#budget.pay(PRICES.turn);
    for (const name of scope.variables.keys()) {
      if (!loopNames.has(name)) scope.variables.delete(name);
    }
  }

  #defineMacro(node: NodeOf<"Macro">, scope: Environment): TemplateValue {
    this.#payForBlock(node);
    const value = super.evaluate(node, scope);
    this.#macroScopes.set(scope.lookupVariable(node.name.value), scope);
    return value;
  }

  /** To define a macro or a call block, the package looks through all that is in it. */
  #payForBlock(node: TemplateNode): void {
    this.#budget.pay(PRICES.turn);
    this.#budget.pay((this.#template.blockSizes.get(node) ?? 0) * PRICES.visit);
  }

  #evaluateName(node: NodeOf<"Identifier">, scope: Environment): TemplateValue {
    const value = super.evaluate(node, scope);
    if (isUndefined(value)) this.#budget.pay(PRICES.undefinedName);
    // Called under another name it could not be paid for by what it is given.
    if (node.value === "namespace" && isFunction(value)) {
      throw new Error("namespace can only be called");
    }
    return value;
  }

  #evaluateBinary(node: NodeOf<"BinaryExpression">, scope: Environment): TemplateValue {
    const operator = node.operator.value;
    if (operator === "and" || operator === "or") return super.evaluate(node, scope);
    const left = this.evaluate(node.left, scope);
    const right = this.evaluate(node.right, scope);
    const result = binary(operator, left, right, this.#budget);
    if (result !== undefined) return result;
    this.#ready.set(node.left, left);
    this.#ready.set(node.right, right);
    return super.evaluate(node, scope);
  }

  #evaluateTest(node: NodeOf<"TestExpression">, scope: Environment): TemplateValue {
    const operand = this.evaluate(node.operand, scope);
    if (node.test.value === "iterable" || node.test.value === "sequence") {
      const iterable = isText(operand) || isList(operand) || operand.type === "ObjectValue";
      return templateValue(iterable !== node.negate);
    }
    if (isText(operand)) this.#budget.payText(operand.value.length);
    this.#ready.set(node.operand, operand);
    return super.evaluate(node, scope);
  }

  #evaluateMember(node: NodeOf<"MemberExpression">, scope: Environment): TemplateValue {
    const object = this.evaluate(node.object, scope);
    if (isUndefined(object)) throw new Error(`${nameOf(node.object)} is undefined`);
    if (node.property.type === "SliceExpression") payForWhole(object, this.#budget);
    this.#ready.set(node.object, object);
    const value = this.#delegate(node, scope);
    // A method that is kept under another name could not be paid for when it is called.
    return isBuiltin(object, value) ? templateValue(refuseCall) : value;
  }

  #evaluateCall(node: NodeOf<"CallExpression">, scope: Environment): TemplateValue {
    this.#budget.pay(PRICES.turn);
    const callee = node.callee as KnownNode;
    if (callee.type === "MemberExpression" && !callee.computed) {
      return this.#evaluateMethodCall(node, callee, scope);
    }
    const args = this.#evaluateArguments(node.args, scope);
    let callScope = scope;
    if (callee.type === "Identifier") {
      const called = scope.lookupVariable(callee.value);
      if (isUndefined(called)) throw new Error(`${callee.value} is undefined`);
      // A namespace can be made of pairs, and two characters of text count as a pair.
      if (callee.value === "namespace") {
        for (const value of args.positional) payForPairs(value, this.#budget);
      }
      this.#ready.set(node.callee, called);
      callScope = this.#macroScopes.get(called) ?? scope;
    }
    this.#prepare(node.args, args.values);
    return super.evaluate(node, callScope);
  }

  #evaluateMethodCall(
    node: NodeOf<"CallExpression">,
    callee: NodeOf<"MemberExpression">,
    scope: Environment,
  ): TemplateValue {
    const object = this.evaluate(callee.object, scope);
    if (isUndefined(object)) throw new Error(`${nameOf(callee.object)} is undefined`);
    const name = nameOf(callee.property);
    const args = this.#evaluateArguments(node.args, scope);
    if (isText(object)) {
      const method = TEXT_METHODS.get(name);
      if (method === undefined) throw new Error(`text has no method ${name}()`);
      return templateValue(method(object.value, args, this.#budget));
    }
    if (name !== "get") payForFilter(name, object, args, this.#budget);
    this.#ready.set(callee.object, object);
    // A method wins over a key of the same name, as in Python.
    const method = object.builtins.get(name) ?? super.evaluate(callee, scope);
    this.#ready.delete(callee.object);
    if (!isFunction(method)) throw new Error(`${nameOf(callee)}() is no function`);
    this.#ready.set(callee, method);
    this.#prepare(node.args, args.values);
    return super.evaluate(node, scope);
  }

  #evaluateFilterBlock(node: NodeOf<"FilterStatement">, scope: Environment): TemplateValue {
    const operand: TemplateNode & { body: TemplateNode[] } = { type: "Program", body: node.body };
    return this.#evaluateFilter({ type: "FilterExpression", operand, filter: node.filter }, scope);
  }

  #evaluateFilter(node: NodeOf<"FilterExpression">, scope: Environment): TemplateValue {
    const operand = this.evaluate(node.operand, scope);
    const filter = node.filter as KnownNode;
    const isCall = filter.type === "CallExpression";
    const name = nameOf(isCall ? filter.callee : filter);
    const argNodes = isCall ? filter.args : [];
    const args = this.#evaluateArguments(argNodes, scope);
    if (isText(operand)) {
      const filterText = TEXT_FILTERS.get(name);
      if (filterText !== undefined) {
        return templateValue(filterText(operand.value, args, this.#budget));
      }
    }
    if (name === "string") return textValue(toText(operand, this.#budget), this.#budget);
    if (name === "join" && isList(operand)) return this.#join(operand.value, args);
    payForFilter(name, operand, args, this.#budget);
    this.#ready.set(node.operand, operand);
    this.#prepare(argNodes, args.values);
    return this.#delegate(node, scope);
  }

  #join(items: readonly TemplateValue[], args: TemplateArguments): TemplateValue {
    if (args.named.has("attribute") || args.positional.length > 1) {
      throw new Error("join by attribute is not supported");
    }
    const separator = args.positional[0] ?? args.named.get("d");
    const between = separator === undefined ? "" : toText(separator, this.#budget);
    const texts = items.map((item) => {
      this.#budget.pay(PRICES.value);
      const text = toText(item, this.#budget);
      this.#budget.payText(text.length + between.length);
      return text;
    });
    return templateValue(texts.join(between));
  }

  #evaluateFor(node: NodeOf<"For">, scope: Environment): TemplateValue {
    const iterable = node.iterable as KnownNode;
    const source = iterable.type === "SelectExpression" ? iterable.lhs : iterable;
    const items = this.evaluate(source, scope);
    payForWhole(items, this.#budget);
    this.#ready.set(source, items);
    return super.evaluate(node, scope);
  }

  /** Evaluates the arguments of a call, positional and named. */
  #evaluateArguments(
    nodes: readonly TemplateNode[],
    scope: Environment,
  ): TemplateArguments & { values: readonly TemplateValue[] } {
    const positional: TemplateValue[] = [];
    const named = new Map<string, TemplateValue>();
    const values = nodes.map((node) => {
      const known = node as KnownNode;
      const value = this.evaluate(argumentValue(known), scope);
      if (known.type === "KeywordArgumentExpression") named.set(known.key.value, value);
      else if (known.type === "SpreadExpression" && isList(value)) {
        for (const part of value.value) positional.push(part);
      } else if (known.type === "KeywordSpreadExpression" && isMapping(value)) {
        for (const [key, part] of value.value) named.set(key, part);
      } else positional.push(value);
      return value;
    });
    return { positional, named, values };
  }

  /** Makes the package find evaluated arguments. */
  #prepare(nodes: readonly TemplateNode[], values: readonly TemplateValue[]): void {
    for (const [index, node] of nodes.entries()) {
      const value = values[index];
      if (value !== undefined) this.#ready.set(argumentValue(node as KnownNode), value);
    }
  }
}

type NodeOf<Type extends KnownNode["type"]> = Extract<KnownNode, { type: Type }>;

function argumentValue(node: KnownNode): TemplateNode {
  switch (node.type) {
    case "KeywordArgumentExpression":
      return node.value;
    case "SpreadExpression":
    case "KeywordSpreadExpression":
      return node.argument;
    default:
      return node;
  }
}

function isBuiltin(object: TemplateValue, value: TemplateValue): boolean {
  return isFunction(value) && Array.from(object.builtins.values()).includes(value);
}

function refuseCall(): never {
  throw new Error("a method can only be called on its object");
}

/** What an error calls an expression. */
function nameOf(node: TemplateNode): string {
  const known = node as KnownNode;
  if (known.type === "Identifier") return known.value;
  if (known.type === "MemberExpression" && !known.computed) {
    return `${nameOf(known.object)}.${nameOf(known.property)}`;
  }
  if (known.type === "MemberExpression") return `${nameOf(known.object)}[…]`;
  return "a value";
}
