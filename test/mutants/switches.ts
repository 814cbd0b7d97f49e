/**
 * Puts switches into TypeScript: a switch turns an expression or a statement into a mutant at run
 * time, so that one process judges thousands.
 */
import ts from "typescript";

/** A switch in a file. */
export interface Switch {
  readonly id: number;
  readonly file: string;
  /** Line in the file, from 1. */
  readonly line: number;
  readonly before: string;
  /** Text that replaces `before`; empty if it is removed. */
  readonly after: string;
}

/** A source with switches. */
export interface Placed {
  readonly source: string;
  /** All switches that it may contain. */
  readonly switches: readonly Switch[];
}

const { SyntaxKind } = ts;
const SWAPPED_OPERATORS: Readonly<Partial<Record<ts.SyntaxKind, string>>> = {
  [SyntaxKind.LessThanToken]: "<=",
  [SyntaxKind.LessThanEqualsToken]: "<",
  [SyntaxKind.GreaterThanToken]: ">=",
  [SyntaxKind.GreaterThanEqualsToken]: ">",
  [SyntaxKind.EqualsEqualsEqualsToken]: "!==",
  [SyntaxKind.ExclamationEqualsEqualsToken]: "===",
  [SyntaxKind.PlusToken]: "-",
  [SyntaxKind.MinusToken]: "+",
  [SyntaxKind.AsteriskToken]: "+",
  [SyntaxKind.AmpersandToken]: "|",
  [SyntaxKind.BarToken]: "&",
};
/** Operators of which an operand may be all. */
const DROPPED_OPERATORS: ReadonlySet<ts.SyntaxKind> = new Set([
  ...[SyntaxKind.AmpersandAmpersandToken, SyntaxKind.BarBarToken, SyntaxKind.QuestionQuestionToken],
  ...[SyntaxKind.SlashToken, SyntaxKind.PercentToken],
  ...[SyntaxKind.LessThanLessThanToken, SyntaxKind.GreaterThanGreaterThanToken],
  SyntaxKind.GreaterThanGreaterThanGreaterThanToken,
]);
const SWAPPED_METHODS: ReadonlyMap<string, string> = new Map([
  ["Math.min", "Math.max"],
  ["Math.max", "Math.min"],
  ["Math.floor", "Math.ceil"],
  ["Math.ceil", "Math.floor"],
  ["Math.round", "Math.floor"],
  ["some", "every"],
  ["every", "some"],
]);
const DROPPED_METHODS: ReadonlySet<string> = new Set([
  ...["filter", "sort", "toSorted", "reverse", "toReversed"],
  ...["trim", "trimStart", "trimEnd", "toLowerCase"],
]);

/** Returns the texts that an expression may become by a mistake. */
function mistakes(node: ts.Node, text: (node: ts.Node) => string): string[] {
  const { parent } = node;
  if (ts.isIfStatement(parent) && node === parent.expression) {
    return ["false", "true", ...ownMistakes(node, text)];
  }
  if (ts.isWhileStatement(parent) && node === parent.expression) {
    return ["false", ...ownMistakes(node, text)];
  }
  return ownMistakes(node, text);
}

function ownMistakes(node: ts.Node, text: (node: ts.Node) => string): string[] {
  if (ts.isConditionalExpression(node)) return [text(node.whenTrue), text(node.whenFalse)];
  if (ts.isBinaryExpression(node)) {
    const [left, right] = [text(node.left), text(node.right)];
    const operator = node.operatorToken.kind;
    if (DROPPED_OPERATORS.has(operator)) {
      const isLogical = operator === SyntaxKind.AmpersandAmpersandToken ||
        operator === SyntaxKind.BarBarToken || operator === SyntaxKind.QuestionQuestionToken;
      return isLogical ? [left, right] : [left];
    }
    // Strings joined in another way are mostly sentences.
    if (operator === SyntaxKind.PlusToken && /["'`]/.test(left + right)) return [];
    const swapped = SWAPPED_OPERATORS[operator];
    return swapped === undefined ? [] : [`${left} ${swapped} ${right}`];
  }
  if (ts.isNumericLiteral(node)) {
    const value = Number(node.text);
    return [Number.isInteger(value) ? String(value + 1) : `${node.text} * 1.1`];
  }
  if (node.kind === SyntaxKind.TrueKeyword) return ["false"];
  if (node.kind === SyntaxKind.FalseKeyword) return ["true"];
  if (ts.isPrefixUnaryExpression(node) && node.operator === SyntaxKind.ExclamationToken) {
    return [text(node.operand)];
  }
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    const { expression, name } = node.expression;
    const object = text(expression);
    const swapped = SWAPPED_METHODS.get(`${object}.${name.text}`) ??
      SWAPPED_METHODS.get(name.text);
    const args = text(node).slice(text(node.expression).length);
    if (swapped?.startsWith("Math.")) return [`${swapped}${args}`];
    if (swapped !== undefined) return [`${object}.${swapped}${args}`];
    if (DROPPED_METHODS.has(name.text) && !ts.isExpressionStatement(node.parent)) return [object];
  }
  return [];
}

/** True for a statement that can be removed: a call, an assignment or a step. */
function isRemovable(node: ts.Node): node is ts.ExpressionStatement {
  if (!ts.isExpressionStatement(node)) return false;
  const expression = ts.isAwaitExpression(node.expression)
    ? node.expression.expression
    : node.expression;
  if (ts.isCallExpression(expression)) {
    return expression.expression.kind !== SyntaxKind.SuperKeyword;
  }
  return ts.isPostfixUnaryExpression(expression) || ts.isPrefixUnaryExpression(expression) ||
    ts.isBinaryExpression(expression) &&
      expression.operatorToken.kind >= SyntaxKind.FirstAssignment &&
      expression.operatorToken.kind <= SyntaxKind.LastAssignment;
}

/** True for nodes in which nothing is evaluated, and for errors, of which tests check the kind. */
function isLeftAlone(node: ts.Node): boolean {
  return ts.isTypeNode(node) || ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) || ts.isImportDeclaration(node) ||
    ts.isExportDeclaration(node) || ts.isTypeParameterDeclaration(node) ||
    ts.isThrowStatement(node) ||
    ts.isNewExpression(node) && /Error$/.test(node.expression.getText());
}

/** True for the name of a property, as the number in `{ 0: first }`. */
function isName(node: ts.Node): boolean {
  const { name, propertyName } = node.parent as { name?: ts.Node; propertyName?: ts.Node };
  return name === node || propertyName === node;
}

/**
 * Returns the source with switches, on the same lines, and all switches.
 *
 * @param firstId id of the first switch; the others follow
 * @param isPlaced true for the id of a switch that the source shall contain
 * @param prelude a statement that defines `__on(id)`, which says if a switch is on
 */
export function withSwitches(
  file: string,
  source: string,
  firstId: number,
  isPlaced: (id: number) => boolean,
  prelude: string,
): Placed {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const switches: Switch[] = [];
  const text = (node: ts.Node) => source.slice(node.getStart(tree), node.end);
  const add = (node: ts.Node, after: string): number => {
    const id = firstId + switches.length;
    const line = tree.getLineAndCharacterOfPosition(node.getStart(tree)).line + 1;
    switches.push({ id, file, line, before: text(node), after });
    return id;
  };
  const children = (node: ts.Node): string => {
    let result = "", end = node.getStart(tree);
    node.forEachChild((child) => {
      if (child.end <= end) return;
      result += source.slice(end, child.getStart(tree)) + switched(child);
      end = child.end;
    });
    return result + source.slice(end, node.end);
  };
  const switched = (node: ts.Node): string => {
    if (isLeftAlone(node) || isName(node)) return text(node);
    if (isRemovable(node)) {
      const id = add(node, "");
      return isPlaced(id) ? `{if(!__on(${id})){${children(node)}}}` : children(node);
    }
    return mistakes(node, text).reduce((result, after) => {
      const id = add(node, after);
      return isPlaced(id) ? `(__on(${id})?(${after}):${result})` : result;
    }, children(node));
  };
  const [begin, body] = [source.slice(0, tree.getStart(tree)), children(tree)];
  const isChanged = switches.some(({ id }) => isPlaced(id));
  return { source: isChanged ? begin + prelude + body : source, switches };
}
