/** Syntax tree of a template. `at` of every node is its offset into the source. */

/** Expression. */
export type Expression =
  | Node<"literal", { value: null | boolean | bigint | number | string }>
  | Node<"name", { name: string }>
  | Node<"list" | "tuple", { items: Expression[] }>
  | Node<"dict", { entries: [key: Expression, value: Expression][] }>
  | Node<"attribute", { object: Expression; name: string }>
  | Node<"item", { object: Expression; index: Expression }>
  | Node<"slice", { object: Expression; bounds: (Expression | undefined)[] }>
  | Node<"call", { callee: Expression; args: ArgumentList }>
  | FilterNode
  | Node<"test", { operand: Expression; name: string; args: ArgumentList }>
  | Node<"unary", { operator: "+" | "-" | "not"; operand: Expression }>
  | Node<"arithmetic", { operator: ArithmeticOperator; left: Expression; right: Expression }>
  | Node<"logic", { operator: "and" | "or"; left: Expression; right: Expression }>
  | Node<"comparison", { first: Expression; rest: [ComparisonOperator, Expression][] }>
  | Node<"concatenation", { parts: Expression[] }>
  | Node<"conditional", { test: Expression; then: Expression; otherwise?: Expression }>;

/** Filter. The first filter of a filter block or a set block has no operand. */
export type FilterNode = Node<
  "filter",
  { operand: Expression | undefined; name: string; args: ArgumentList }
>;

/** Statement, or text between statements. */
export type Statement =
  | Node<"text", { text: string }>
  | Node<"output", { value: Expression }>
  | Node<"if", { branches: { test: Expression; body: Statement[] }[]; otherwise: Statement[] }>
  | ForNode
  | Node<"set", { target: Target; value: Expression }>
  | Node<"set_block", { target: Target; filter: FilterNode | undefined; body: Statement[] }>
  | Node<"macro", { macro: MacroNode }>
  | Node<"call_block", { call: Node<"call", CallParts>; caller: MacroNode }>
  | Node<"filter_block", { filter: FilterNode; body: Statement[] }>
  | Node<"with", { targets: Target[]; values: Expression[]; body: Statement[] }>
  | Node<"autoescape", { enabled: Expression; body: Statement[] }>
  | Node<"generation", { body: Statement[] }>
  | BlockNode
  | Node<"load", { tag: string }>
  | Node<"break" | "continue", unknown>;

/** Loop. */
export type ForNode = Node<
  "for",
  {
    target: Target;
    iterable: Expression;
    test: Expression | undefined;
    isRecursive: boolean;
    body: Statement[];
    otherwise: Statement[];
  }
>;

/** Named block. It renders at its place, and again by `self.name()`. */
export type BlockNode = Node<
  "block",
  { name: string; isScoped: boolean; isRequired: boolean; body: Statement[] }
>;

/** Names that an assignment sets. */
export type Target =
  | Node<"name", { name: string }>
  | Node<"namespace", { name: string; attribute: string }>
  | Node<"tuple", { items: Target[] }>;

/** Macro, or the body of a call block. */
export interface MacroNode {
  readonly name: string | undefined;
  readonly parameters: { readonly name: string; readonly fallback: Expression | undefined }[];
  readonly body: Statement[];
  /** Names among `caller`, `varargs` and `kwargs` that the body reads. */
  readonly reads: ReadonlySet<string>;
}

/** Arguments of a call, a filter or a test. */
export interface ArgumentList {
  readonly positional: Expression[];
  readonly named: [name: string, value: Expression][];
  readonly spread?: Expression;
  readonly namedSpread?: Expression;
}

export type ArithmeticOperator = "+" | "-" | "*" | "/" | "//" | "%" | "**";
export type ComparisonOperator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** Node of the syntax tree. */
type Node<Kind extends string, Parts> = { readonly kind: Kind; readonly at: number } & Parts;

interface CallParts {
  callee: Expression;
  args: ArgumentList;
}
