import { quote } from "../../formats/quote.ts";
import { faultAt, type Token, tokenize, type TokenKind } from "./lexer.ts";
import type {
  ArgumentList,
  ArithmeticOperator,
  BlockNode,
  ComparisonOperator,
  Expression,
  FilterNode,
  MacroNode,
  Statement,
  Target,
} from "./syntax.ts";
import type { TemplateError } from "./values.ts";

/** Most levels of expressions and statements; each takes up to a few kilobytes of the stack. */
const MAX_DEPTH = 150;
const COMPARISONS: ReadonlySet<string> = new Set(["==", "!=", "<", "<=", ">", ">="]);
const SPECIAL_NAMES: ReadonlySet<string> = new Set(["caller", "varargs", "kwargs"]);
/** Tags that load other templates; a chat template has none to load. */
const LOADING_TAGS: ReadonlySet<string> = new Set(["include", "import", "from", "extends"]);
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

/** Names of filters and tests that a template can use. */
interface KnownNames {
  readonly filters: { has(name: string): boolean };
  readonly tests: { has(name: string): boolean };
}

/**
 * Parses a template.
 *
 * @param source the template after `normalizeSource`
 * @throws {TemplateError} for invalid syntax, or an unknown filter or test
 */
export function parse(source: string, known: KnownNames): Statement[] {
  return new Parser(tokenize(source), known).parse();
}

class Parser {
  readonly #tokens: readonly Token[];
  readonly #known: KnownNames;
  #position = 0;
  #depth = 0;
  /** Number of enclosing loops that a `break` could end. */
  #loops = 0;
  /** Number of enclosing loops in which `loop` cannot be assigned to. */
  #loopScopes = 0;
  /** True inside of `if`, where Jinja resolves filters and tests only when they run. */
  #isConditional = false;
  readonly #unknown: TemplateError[] = [];
  /** Special names that each enclosing macro reads. */
  readonly #macroReads: Set<string>[] = [];
  readonly #openTags: string[] = [];
  readonly #blocks = new Set<string>();

  constructor(tokens: readonly Token[], known: KnownNames) {
    this.#tokens = tokens;
    this.#known = known;
  }

  parse(): Statement[] {
    const body = this.#parseBody([]);
    const [unknown] = this.#unknown;
    if (unknown !== undefined) throw unknown;
    return body;
  }

  // Tokens

  get #token(): Token {
    return this.#tokens[this.#position]!;
  }

  #next(): Token {
    const token = this.#token;
    if (token.kind !== "end") this.#position++;
    return token;
  }

  #isOperator(text: string): boolean {
    return this.#token.kind === "operator" && this.#token.text === text;
  }

  #isName(text: string): boolean {
    return this.#token.kind === "name" && this.#token.text === text;
  }

  #isNextName(text: string): boolean {
    const next = this.#tokens[this.#position + 1];
    return next?.kind === "name" && next.text === text;
  }

  #skipOperator(text: string): boolean {
    const matches = this.#isOperator(text);
    if (matches) this.#position++;
    return matches;
  }

  #skipName(text: string): boolean {
    const matches = this.#isName(text);
    if (matches) this.#position++;
    return matches;
  }

  #expectOperator(text: string): void {
    if (!this.#skipOperator(text)) throw this.#unexpected(`"${text}"`);
  }

  #expect(kind: TokenKind, what: string): Token {
    if (this.#token.kind !== kind) throw this.#unexpected(what);
    return this.#next();
  }

  #unexpected(expected: string): TemplateError {
    const { kind, text, at } = this.#token;
    if (kind === "end") {
      const tag = this.#openTags.at(-1);
      const inside = tag === undefined ? "" : ` inside of {% ${tag} %}`;
      return faultAt(at, `the template ends early${inside}; expected ${expected}`);
    }
    return faultAt(at, `unexpected ${quote(text)}; expected ${expected}`);
  }

  #nested<Result>(parse: () => Result): Result {
    if (++this.#depth > MAX_DEPTH) {
      throw faultAt(this.#token.at, `the template is nested more than ${MAX_DEPTH} levels deep`);
    }
    const result = parse();
    this.#depth--;
    return result;
  }

  // Statements

  /** Parses up to a tag that ends the body; its `{%` is consumed, its name is not. */
  #parseBody(ends: readonly string[]): Statement[] {
    const body: Statement[] = [];
    for (;;) {
      const { kind, text, at } = this.#token;
      switch (kind) {
        case "end":
          if (ends.length > 0) throw this.#unexpected(`{% ${ends.join(" %} or {% ")} %}`);
          return body;
        case "text":
          this.#next();
          body.push({ kind: "text", text, at });
          break;
        case "output_start": {
          this.#next();
          const value = this.#parseTuple();
          this.#expect("output_end", "}}");
          body.push({ kind: "output", value, at });
          break;
        }
        default: {
          this.#next();
          const tag = this.#token.text;
          if (this.#token.kind === "name" && ends.includes(tag)) return body;
          body.push(...this.#nested(() => this.#parseStatement()));
          this.#expect("tag_end", "%}");
        }
      }
    }
  }

  /** Parses the rest of a tag, the body after it and the name of the tag that ends the body. */
  #parseBlock(tag: string, ...ends: string[]): { body: Statement[]; end: string } {
    this.#skipOperator(":");
    this.#expect("tag_end", "%}");
    this.#openTags.push(tag);
    const body = this.#parseBody(ends);
    this.#openTags.pop();
    return { body, end: this.#next().text };
  }

  /** Parses a block that is a function in Jinja: `break` cannot leave the loops around it. */
  #parseFunctionBody(tag: string): { body: Statement[]; reads: ReadonlySet<string> } {
    const reads = new Set<string>();
    const loops = this.#loops;
    this.#loops = 0;
    this.#macroReads.push(reads);
    const { body } = this.#unconditionally(() => this.#parseBlock(tag, `end${tag}`));
    this.#macroReads.pop();
    this.#loops = loops;
    return { body, reads };
  }

  #unconditionally<Result>(parse: () => Result): Result {
    return this.#withCondition(false, parse);
  }

  #withCondition<Result>(isConditional: boolean, parse: () => Result): Result {
    const outer = this.#isConditional;
    this.#isConditional = isConditional;
    const result = parse();
    this.#isConditional = outer;
    return result;
  }

  #parseStatement(): Statement[] {
    const { text: tag, at } = this.#expect("name", "the name of a tag");
    switch (tag) {
      case "if":
        return [this.#withCondition(true, () => this.#parseIf(at))];
      case "for":
        return [this.#parseFor(at)];
      case "set":
        return [this.#parseSet(at)];
      case "print":
        return this.#parsePrint(at);
      case "macro":
        return [this.#parseMacro(at)];
      case "call":
        return [this.#parseCallBlock(at)];
      case "filter": {
        const filter = this.#parseFilter(undefined);
        const { body } = this.#unconditionally(() => this.#parseBlock(tag, "endfilter"));
        return [{ kind: "filter_block", filter, body, at }];
      }
      case "with":
        return [this.#parseWith(at)];
      case "autoescape": {
        const enabled = this.#parseExpression();
        const { body } = this.#unconditionally(() => this.#parseBlock(tag, "endautoescape"));
        return [{ kind: "autoescape", enabled, body, at }];
      }
      case "generation":
        return [{ kind: "generation", body: this.#parseFunctionBody(tag).body, at }];
      case "block":
        return [this.#parseNamedBlock(at)];
      case "break":
      case "continue":
        if (this.#loops === 0) throw faultAt(at, `{% ${tag} %} is outside of a loop`);
        return [{ kind: tag, at }];
      default:
        if (LOADING_TAGS.has(tag)) {
          while (this.#token.kind !== "tag_end" && this.#token.kind !== "end") this.#next();
          return [{ kind: "load", tag, at }];
        }
        throw this.#unknownTag(tag, at);
    }
  }

  #unknownTag(tag: string, at: number): TemplateError {
    const open = this.#openTags.at(-1);
    if (tag.startsWith("end") || tag === "else" || tag === "elif") {
      const context = open === undefined ? "no tag is open" : `{% ${open} %} is still open`;
      return faultAt(at, `unexpected {% ${tag} %}: ${context}`);
    }
    return faultAt(at, `unknown tag {% ${tag} %}`);
  }

  #parseIf(at: number): Statement {
    const branches = [];
    for (let end = "elif"; end === "elif";) {
      const test = this.#parseTuple(false);
      const block = this.#parseBlock("if", "elif", "else", "endif");
      branches.push({ test, body: block.body });
      end = block.end;
      if (end !== "else") continue;
      return { kind: "if", branches, otherwise: this.#parseBlock("else", "endif").body, at };
    }
    return { kind: "if", branches, otherwise: [], at };
  }

  #parseFor(at: number): Statement {
    this.#loopScopes++;
    const target = this.#parseTarget();
    if (!this.#skipName("in")) throw this.#unexpected('"in"');
    const iterable = this.#parseTuple(false);
    const test = this.#skipName("if")
      ? this.#unconditionally(() => this.#parseExpression())
      : undefined;
    const isRecursive = this.#skipName("recursive");
    this.#loops++;
    const { body, end } = this.#unconditionally(() => this.#parseBlock("for", "endfor", "else"));
    this.#loops--;
    const otherwise = end === "endfor"
      ? []
      : this.#unconditionally(() => this.#parseBlock("else", "endfor").body);
    this.#loopScopes--;
    return { kind: "for", target, iterable, test, isRecursive, body, otherwise, at };
  }

  #parseSet(at: number): Statement {
    const target = this.#parseTarget(true);
    if (this.#skipOperator("=")) return { kind: "set", target, value: this.#parseTuple(), at };
    const filter = this.#isOperator("|") ? this.#parseFilters(undefined) : undefined;
    const { body } = this.#unconditionally(() => this.#parseBlock("set", "endset"));
    return { kind: "set_block", target, filter, body, at };
  }

  #parsePrint(at: number): Statement[] {
    const outputs: Statement[] = [];
    while (this.#token.kind !== "tag_end") {
      if (outputs.length > 0) this.#expectOperator(",");
      outputs.push({ kind: "output", value: this.#parseExpression(), at });
    }
    return outputs;
  }

  #parseMacro(at: number): Statement {
    const name = this.#expect("name", "the name of the macro").text;
    this.#expectOperator("(");
    const parameters = this.#unconditionally(() => this.#parseParameters());
    const { body, reads } = this.#parseFunctionBody("macro");
    checkCaller(parameters, reads, at);
    return { kind: "macro", macro: { name, parameters, body, reads }, at };
  }

  #parseCallBlock(at: number): Statement {
    const parameters = this.#skipOperator("(")
      ? this.#unconditionally(() => this.#parseParameters())
      : [];
    const call = this.#parseExpression();
    if (call.kind !== "call") {
      throw faultAt(at, "{% call %} must name a call, such as {% call macro() %}");
    }
    const { body, reads } = this.#parseFunctionBody("call");
    checkCaller(parameters, reads, at);
    return { kind: "call_block", call, caller: { name: undefined, parameters, body, reads }, at };
  }

  /** Parses the parameters of a macro after the opening parenthesis. */
  #parseParameters(): MacroNode["parameters"] {
    const parameters: MacroNode["parameters"] = [];
    while (!this.#skipOperator(")")) {
      if (parameters.length > 0) this.#expectOperator(",");
      const { text: name, at } = this.#expect("name", "the name of a parameter");
      if (parameters.some((parameter) => parameter.name === name)) {
        throw faultAt(at, `two parameters have the name "${name}"`);
      }
      const fallback = this.#skipOperator("=") ? this.#parseExpression() : undefined;
      if (fallback === undefined && parameters.at(-1)?.fallback !== undefined) {
        throw faultAt(
          at,
          `the parameter "${name}" has no default, but the one before has; give it one`,
        );
      }
      parameters.push({ name, fallback });
    }
    return parameters;
  }

  #parseWith(at: number): Statement {
    const targets: Target[] = [];
    const values: Expression[] = [];
    while (this.#token.kind !== "tag_end" && this.#token.kind !== "end") {
      if (targets.length > 0) this.#expectOperator(",");
      targets.push(this.#parseTarget());
      this.#expectOperator("=");
      values.push(this.#parseExpression());
    }
    const { body } = this.#unconditionally(() => this.#parseBlock("with", "endwith"));
    return { kind: "with", targets, values, body, at };
  }

  #parseNamedBlock(at: number): Statement {
    const name = this.#expect("name", "the name of the block").text;
    if (this.#blocks.has(name)) throw faultAt(at, `two blocks have the name "${name}"`);
    this.#blocks.add(name);
    const isScoped = this.#skipName("scoped");
    const isRequired = this.#skipName("required");
    const { body } = this.#parseFunctionBody("block");
    this.#skipName(name);
    const block: BlockNode = { kind: "block", name, isScoped, isRequired, body, at };
    return block;
  }

  #parseTarget(withNamespace = false): Target {
    const parse = () => this.#parsePrimary(withNamespace);
    return this.#toTarget(this.#parseTupleOf(parse, false, this.#token.at));
  }

  #toTarget(node: Expression): Target {
    switch (node.kind) {
      case "name":
        if (node.name === "loop" && this.#loopScopes > 0) {
          throw faultAt(node.at, 'the special name "loop" cannot be assigned to inside of a loop');
        }
        return node;
      case "tuple":
        return {
          kind: "tuple",
          items: node.items.map((item) => this.#toTarget(item)),
          at: node.at,
        };
      case "attribute":
        if (node.object.kind === "name") {
          const { at, name: attribute, object: { name } } = node;
          return { kind: "namespace", name, attribute, at };
        }
        break;
    }
    throw faultAt(node.at, "only names can be assigned to");
  }

  // Expressions

  #parseExpression(withConditional = true): Expression {
    return this.#nested(() => withConditional ? this.#parseConditional() : this.#parseOr());
  }

  #parseConditional(): Expression {
    const unknown = this.#unknown.length;
    const at = this.#token.at;
    let then = this.#parseOr();
    while (this.#skipName("if")) {
      const test = this.#parseOr();
      const otherwise = this.#skipName("else") ? this.#parseExpression() : undefined;
      const parts = otherwise === undefined ? {} : { otherwise };
      then = { kind: "conditional", test, then, ...parts, at };
      this.#unknown.length = unknown;
    }
    return then;
  }

  #parseOr(): Expression {
    let left = this.#parseAnd();
    while (this.#isName("or")) {
      const { at } = this.#next();
      left = { kind: "logic", operator: "or", left, right: this.#parseAnd(), at };
    }
    return left;
  }

  #parseAnd(): Expression {
    let left = this.#parseNot();
    while (this.#isName("and")) {
      const { at } = this.#next();
      left = { kind: "logic", operator: "and", left, right: this.#parseNot(), at };
    }
    return left;
  }

  #parseNot(): Expression {
    if (!this.#isName("not")) return this.#parseComparison();
    const { at } = this.#next();
    const operand = this.#nested(() => this.#parseNot());
    return { kind: "unary", operator: "not", operand, at };
  }

  #parseComparison(): Expression {
    const at = this.#token.at;
    const first = this.#parseSum();
    const rest: [ComparisonOperator, Expression][] = [];
    for (;;) {
      const { kind, text } = this.#token;
      if (kind === "operator" && COMPARISONS.has(text)) {
        this.#next();
        rest.push([text as ComparisonOperator, this.#parseSum()]);
      } else if (this.#skipName("in")) {
        rest.push(["in", this.#parseSum()]);
      } else if (this.#isName("not") && this.#isNextName("in")) {
        this.#position += 2;
        rest.push(["not in", this.#parseSum()]);
      } else {
        return rest.length === 0 ? first : { kind: "comparison", first, rest, at };
      }
    }
  }

  #parseSum(): Expression {
    return this.#parseArithmetic(["+", "-"], () => this.#parseConcatenation());
  }

  #parseConcatenation(): Expression {
    const at = this.#token.at;
    const parts = [this.#parseProduct()];
    while (this.#skipOperator("~")) parts.push(this.#parseProduct());
    return parts.length === 1 ? parts[0]! : { kind: "concatenation", parts, at };
  }

  #parseProduct(): Expression {
    return this.#parseArithmetic(["*", "/", "//", "%"], () => this.#parsePower());
  }

  /** Unlike in Python, powers in Jinja are left-associative and bind weaker than signs. */
  #parsePower(): Expression {
    return this.#parseArithmetic(["**"], () => this.#parseUnary(true));
  }

  #parseArithmetic(
    operators: readonly ArithmeticOperator[],
    parseOperand: () => Expression,
  ): Expression {
    let left = parseOperand();
    for (;;) {
      const { kind, text, at } = this.#token;
      const operator = operators.find((candidate) => kind === "operator" && candidate === text);
      if (operator === undefined) return left;
      this.#next();
      left = { kind: "arithmetic", operator, left, right: parseOperand(), at };
    }
  }

  #parseUnary(withFilter: boolean): Expression {
    const { at } = this.#token;
    const sign = this.#isOperator("-") ? "-" : this.#isOperator("+") ? "+" : undefined;
    let node: Expression;
    if (sign === undefined) {
      node = this.#parsePrimary(false);
    } else {
      this.#next();
      const operand = this.#nested(() => this.#parseUnary(false));
      node = { kind: "unary", operator: sign, operand, at };
    }
    node = this.#parsePostfix(node);
    return withFilter ? this.#parseFiltersAndTests(node) : node;
  }

  #parsePrimary(withNamespace: boolean): Expression {
    const { kind, text, value, at } = this.#token;
    switch (kind) {
      case "name": {
        this.#next();
        const constant = CONSTANTS.get(text);
        if (constant !== undefined) return { kind: "literal", value: constant, at };
        if (SPECIAL_NAMES.has(text)) { for (const reads of this.#macroReads) reads.add(text); }
        if (!withNamespace || !this.#skipOperator(".")) return { kind: "name", name: text, at };
        const { text: name } = this.#expect("name", "the name of an attribute");
        return { kind: "attribute", object: { kind: "name", name: text, at }, name, at };
      }
      case "string": {
        const parts: string[] = [];
        while (this.#token.kind === "string") parts.push(this.#next().text);
        return { kind: "literal", value: parts.join(""), at };
      }
      case "number":
        this.#next();
        return { kind: "literal", value: value!, at };
      case "operator":
        switch (text) {
          case "(": {
            this.#next();
            const node = this.#parseTupleOf(() => this.#parseExpression(), true, at);
            this.#expectOperator(")");
            return node;
          }
          case "[":
            this.#next();
            return {
              kind: "list",
              items: this.#parseItems("]", () => this.#parseExpression()),
              at,
            };
          case "{":
            this.#next();
            return { kind: "dict", entries: this.#parseItems("}", () => this.#parseEntry()), at };
        }
    }
    throw this.#unexpected("a value");
  }

  /** Parses items up to a closing bracket; a comma can follow the last. */
  #parseItems<Item>(closing: string, parse: () => Item): Item[] {
    const items: Item[] = [];
    while (!this.#skipOperator(closing)) {
      if (items.length > 0) {
        this.#expectOperator(",");
        if (this.#skipOperator(closing)) break;
      }
      items.push(parse());
    }
    return items;
  }

  #parseEntry(): [Expression, Expression] {
    const key = this.#parseExpression();
    this.#expectOperator(":");
    return [key, this.#parseExpression()];
  }

  /** Parses one expression, or several with commas between them, which make a tuple. */
  #parseTuple(withConditional = true): Expression {
    const parse = () => this.#parseExpression(withConditional);
    return this.#parseTupleOf(parse, false, this.#token.at);
  }

  #parseTupleOf(parse: () => Expression, canBeEmpty: boolean, at: number): Expression {
    const items: Expression[] = [];
    let isTuple = false;
    while (!this.#isTupleEnd()) {
      items.push(parse());
      if (!this.#skipOperator(",")) break;
      isTuple = true;
    }
    if (!isTuple && items.length === 1) return items[0]!;
    if (items.length === 0 && !canBeEmpty) throw this.#unexpected("a value");
    return { kind: "tuple", items, at };
  }

  #isTupleEnd(): boolean {
    const { kind } = this.#token;
    return kind === "output_end" || kind === "tag_end" || this.#isOperator(")");
  }

  /** Parses attributes, items and calls. */
  #parsePostfix(operand: Expression): Expression {
    let node = operand;
    for (;;) {
      const { at } = this.#token;
      if (this.#skipOperator(".")) node = this.#parseAttribute(node, at);
      else if (this.#skipOperator("[")) node = this.#parseItem(node, at);
      else if (this.#skipOperator("(")) {
        node = { kind: "call", callee: node, args: this.#parseArguments(), at };
      } else return node;
    }
  }

  #parseAttribute(object: Expression, at: number): Expression {
    const { kind, text, value } = this.#next();
    if (kind === "name") return { kind: "attribute", object, name: text, at };
    if (kind === "number" && typeof value === "bigint") {
      return { kind: "item", object, index: { kind: "literal", value, at }, at };
    }
    throw faultAt(at, "expected the name or number of an attribute after the dot");
  }

  #parseItem(object: Expression, at: number): Expression {
    const indexes: Expression[] = [];
    for (;;) {
      const start = this.#isOperator(":") ? undefined : this.#parseExpression();
      if (this.#skipOperator(":")) {
        const bounds = [start, this.#parseBound(), undefined];
        if (this.#skipOperator(":")) bounds[2] = this.#parseBound();
        if (indexes.length > 0 || !this.#isOperator("]")) {
          throw faultAt(at, "a slice must be the only index");
        }
        this.#next();
        return { kind: "slice", object, bounds, at };
      }
      indexes.push(start!);
      if (this.#skipOperator("]")) break;
      this.#expectOperator(",");
    }
    const index: Expression = indexes.length === 1
      ? indexes[0]!
      : { kind: "tuple", items: indexes, at };
    return { kind: "item", object, index, at };
  }

  #parseBound(): Expression | undefined {
    const isLeftOut = this.#isOperator(":") || this.#isOperator("]") || this.#isOperator(",");
    return isLeftOut ? undefined : this.#parseExpression();
  }

  /** Parses the arguments of a call after the opening parenthesis. */
  #parseArguments(): ArgumentList {
    const positional: Expression[] = [];
    const named: [string, Expression][] = [];
    let spread: Expression | undefined;
    let namedSpread: Expression | undefined;
    this.#parseItems(")", () => {
      const { kind, text, at } = this.#token;
      const isNamed = kind === "name" && this.#tokens[this.#position + 1]?.text === "=" &&
        this.#tokens[this.#position + 1]?.kind === "operator";
      const reject = (condition: boolean) => {
        if (condition) throw faultAt(at, "the arguments of a call are in the wrong order");
      };
      reject(namedSpread !== undefined);
      if (this.#skipOperator("*")) {
        reject(spread !== undefined);
        spread = this.#parseExpression();
      } else if (this.#skipOperator("**")) {
        namedSpread = this.#parseExpression();
      } else if (isNamed) {
        this.#position += 2;
        if (named.some(([name]) => name === text)) {
          throw faultAt(at, `the argument "${text}" is given twice`);
        }
        named.push([text, this.#parseExpression()]);
      } else {
        reject(spread !== undefined || named.length > 0);
        positional.push(this.#parseExpression());
      }
    });
    return {
      positional,
      named,
      ...(spread === undefined ? {} : { spread }),
      ...(namedSpread === undefined ? {} : { namedSpread }),
    };
  }

  #parseFiltersAndTests(operand: Expression): Expression {
    let node = operand;
    for (;;) {
      const { at } = this.#token;
      if (this.#isOperator("|")) node = this.#parseFilters(node);
      else if (this.#isName("is")) node = this.#parseTest(node);
      else if (this.#skipOperator("(")) {
        node = { kind: "call", callee: node, args: this.#parseArguments(), at };
      } else return node;
    }
  }

  #parseFilters(operand: Expression | undefined): FilterNode {
    this.#expectOperator("|");
    return this.#parseFilter(operand);
  }

  /** Parses a filter after its `|`, and the filters that follow. */
  #parseFilter(operand: Expression | undefined): FilterNode {
    let node: Expression | undefined = operand;
    for (;;) {
      const { at } = this.#token;
      const name = this.#parseDottedName("filter");
      this.#checkName("filter", name, this.#known.filters, at);
      const args = this.#skipOperator("(") ? this.#parseArguments() : NO_ARGUMENTS;
      const filter: FilterNode = { kind: "filter", operand: node, name, args, at };
      if (!this.#skipOperator("|")) return filter;
      node = filter;
    }
  }

  #parseTest(operand: Expression): Expression {
    this.#next();
    const isNegated = this.#skipName("not");
    const { at } = this.#token;
    const name = this.#parseDottedName("test");
    this.#checkName("test", name, this.#known.tests, at);
    const test: Expression = { kind: "test", operand, name, args: this.#parseTestArguments(), at };
    return isNegated ? { kind: "unary", operator: "not", operand: test, at } : test;
  }

  /** Parses the arguments of a test; one needs no parentheses: `is divisibleby 3`. */
  #parseTestArguments(): ArgumentList {
    if (this.#skipOperator("(")) return this.#parseArguments();
    const { kind, text, at } = this.#token;
    if (kind === "name") {
      if (text === "else" || text === "or" || text === "and") return NO_ARGUMENTS;
      if (text === "is") throw faultAt(at, 'tests cannot be chained by "is"');
    } else if (kind === "operator" ? text !== "[" && text !== "{" : !isLiteral(kind)) {
      return NO_ARGUMENTS;
    }
    return { positional: [this.#parsePostfix(this.#parsePrimary(false))], named: [] };
  }

  #parseDottedName(what: string): string {
    let name = this.#expect("name", `the name of a ${what}`).text;
    while (this.#skipOperator(".")) {
      name += `.${this.#expect("name", `the name of a ${what}`).text}`;
    }
    return name;
  }

  #checkName(what: string, name: string, known: { has(name: string): boolean }, at: number): void {
    if (known.has(name) || this.#isConditional) return;
    this.#unknown.push(faultAt(at, `unknown ${what} "${name}"`));
  }
}

const NO_ARGUMENTS: ArgumentList = { positional: [], named: [] };

function isLiteral(kind: TokenKind): boolean {
  return kind === "string" || kind === "number";
}

function checkCaller(
  parameters: MacroNode["parameters"],
  reads: ReadonlySet<string>,
  at: number,
): void {
  const caller = parameters.find((parameter) => parameter.name === "caller");
  if (caller !== undefined && caller.fallback === undefined && reads.has("caller")) {
    throw faultAt(at, 'the special parameter "caller" needs a default');
  }
}
