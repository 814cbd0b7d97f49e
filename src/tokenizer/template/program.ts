import { parse, tokenize } from "jinja";

/** The syntax tree of a template. */
export type Program = ReturnType<typeof parse>;
/** Any node of it. */
export type TemplateNode = Program["body"][number];

/** The nodes that are looked into here. The package does not export their types. */
export type KnownNode =
  | NodeOf<"Identifier", { value: string }>
  | NodeOf<"StringLiteral", { value: string }>
  | NodeOf<"BinaryExpression", BinaryParts>
  | NodeOf<"FilterExpression", { operand: TemplateNode; filter: TemplateNode }>
  | NodeOf<"FilterStatement", { filter: TemplateNode; body: TemplateNode[] }>
  | NodeOf<"TestExpression", { operand: TemplateNode; test: { value: string }; negate: boolean }>
  | NodeOf<"CallExpression", { callee: TemplateNode; args: TemplateNode[] }>
  | NodeOf<"MemberExpression", MemberParts>
  | NodeOf<"SelectExpression", { lhs: TemplateNode; test: TemplateNode }>
  | NodeOf<"KeywordArgumentExpression", { key: { value: string }; value: TemplateNode }>
  | NodeOf<"SpreadExpression" | "KeywordSpreadExpression", { argument: TemplateNode }>
  | NodeOf<"TupleLiteral", { value: TemplateNode[] }>
  | NodeOf<"For", { loopvar: TemplateNode; iterable: TemplateNode; body: TemplateNode[] }>
  | NodeOf<"Macro", { name: { value: string } }>
  | NodeOf<"CallStatement", unknown>;

interface BinaryParts {
  operator: { value: string };
  left: TemplateNode;
  right: TemplateNode;
}

interface MemberParts {
  object: TemplateNode;
  property: TemplateNode;
  computed: boolean;
}

type NodeOf<Type extends string, Parts> = { type: Type } & Parts;

/** Statements print nothing themselves; every other node that stands in a block is printed. */
const UNPRINTED = new Set([
  "Set",
  "If",
  "For",
  "Macro",
  "CallStatement",
  "FilterStatement",
  "Break",
  "Continue",
  "Comment",
  "StringLiteral",
]);
const BLOCKS = new Set(["body", "alternate", "defaultBlock"]);

/** A parsed template with what the interpreter must know about its nodes in advance. */
export class TemplateProgram {
  readonly program: Program;
  /** Expressions of which the value is printed. */
  readonly printed: ReadonlySet<TemplateNode>;
  /** For the first node in the body of each loop, the names that the loop itself sets. */
  readonly loopStarts: ReadonlyMap<TemplateNode, ReadonlySet<string>>;
  /** How many nodes there are in each macro and call block. */
  readonly blockSizes: ReadonlyMap<TemplateNode, number>;

  /**
   * Parses a template with the block trimming that transformers sets.
   *
   * @throws {Error} where the syntax is wrong or unknown
   */
  constructor(source: string) {
    this.program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
    const survey = new Survey();
    survey.visit(this.program);
    this.printed = survey.printed;
    this.loopStarts = survey.loopStarts;
    this.blockSizes = survey.blockSizes;
  }
}

class Survey {
  readonly printed = new Set<TemplateNode>();
  readonly loopStarts = new Map<TemplateNode, ReadonlySet<string>>();
  readonly blockSizes = new Map<TemplateNode, number>();

  /** Visits a node and all below it; returns how many there are. */
  visit(node: TemplateNode): number {
    let size = 1;
    for (const [key, part] of Object.entries(node)) {
      for (const child of childrenOf(part)) {
        if (BLOCKS.has(key) && !UNPRINTED.has(child.type)) this.printed.add(child);
        size += this.visit(child);
      }
    }
    const known = node as KnownNode;
    if (known.type === "Macro" || known.type === "CallStatement") this.blockSizes.set(node, size);
    if (known.type === "For") {
      const [first] = known.body;
      if (first !== undefined) this.loopStarts.set(first, namesOf(known.loopvar as KnownNode));
    }
    return size;
  }
}

function* childrenOf(part: unknown): Generator<TemplateNode> {
  if (isNode(part)) yield part;
  else if (Array.isArray(part)) { for (const item of part) yield* childrenOf(item); }
  else if (part instanceof Map) { for (const entry of part) yield* childrenOf(entry); }
}

function isNode(value: unknown): value is TemplateNode {
  return typeof value === "object" && value !== null && "type" in value;
}

function namesOf(loopvar: KnownNode): ReadonlySet<string> {
  const names = new Set<string>(["loop", "namespace"]);
  const variables = loopvar.type === "TupleLiteral" ? loopvar.value : [loopvar];
  for (const variable of variables as KnownNode[]) {
    if (variable.type === "Identifier") names.add(variable.value);
  }
  return names;
}
