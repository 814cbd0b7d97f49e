import { FILTERS } from "./filters.ts";
import { normalizeSource } from "./lexer.ts";
import { parse } from "./parser.ts";
import type { Expression, Statement } from "./syntax.ts";
import { TESTS } from "./tests.ts";

/** Parsed template. */
export class TemplateProgram {
  readonly body: readonly Statement[];
  /** True if the template reads a message's content as a list of parts. */
  readonly readsParts: boolean;

  /**
   * Parses a template with the settings of transformers.
   *
   * @throws {TemplateError} for invalid syntax
   */
  constructor(source: string) {
    this.body = parse(normalizeSource(source), { filters: FILTERS, tests: TESTS });
    this.readsParts = someNode(this.body, looksAtParts);
  }
}

/** Returns the line number of an offset into a source. */
export function lineOf(source: string, at: number): number {
  return normalizeSource(source).slice(0, at).split("\n").length;
}

type AnyNode = Expression | Statement;

/** True if a condition holds for a node of a syntax tree. */
function someNode(tree: unknown, holds: (node: AnyNode) => boolean): boolean {
  if (typeof tree !== "object" || tree === null) return false;
  if (Array.isArray(tree)) return tree.some((part) => someNode(part, holds));
  if ("kind" in tree && holds(tree as AnyNode)) return true;
  return Object.values(tree).some((part) => someNode(part, holds));
}

/** Tests that are useful only for content that can be a list. */
const TYPE_TESTS: ReadonlySet<string> = new Set(["string", "iterable", "sequence", "mapping"]);
const ITEM_FILTERS: ReadonlySet<string> = new Set(["selectattr", "rejectattr", "map"]);
const PART_TYPES: ReadonlySet<unknown> = new Set(["text", "image", "image_url", "video", "audio"]);

function looksAtParts(node: AnyNode): boolean {
  switch (node.kind) {
    case "test":
      return TYPE_TESTS.has(node.name) && isContent(node.operand);
    case "filter":
      return ITEM_FILTERS.has(node.name) && node.operand !== undefined && isContent(node.operand);
    case "for":
      return isContent(node.iterable);
    case "attribute":
      return node.object.kind === "item" && isContent(node.object.object);
    case "item":
      return node.object.kind === "item" && isContent(node.object.object);
    case "comparison": {
      const operands = [node.first, ...node.rest.map(([, operand]) => operand)];
      return operands.some((operand) => nameOf(operand) === "type") &&
        operands.some((operand) => operand.kind === "literal" && PART_TYPES.has(operand.value));
    }
    default:
      return false;
  }
}

/** True for `message.content`, `m['content']`, a variable `content` and the like. */
function isContent(node: Expression): boolean {
  if (node.kind === "filter") return node.operand !== undefined && isContent(node.operand);
  if (node.kind === "slice") return isContent(node.object);
  return nameOf(node)?.includes("content") ?? false;
}

/** Returns the last name of an expression: of a variable, an attribute or a key. */
function nameOf(node: Expression): string | undefined {
  if (node.kind === "name" || node.kind === "attribute") return node.name;
  if (node.kind !== "item" || node.index.kind !== "literal") return undefined;
  return typeof node.index.value === "string" ? node.index.value : undefined;
}
