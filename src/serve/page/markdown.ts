/// <reference lib="dom" />
/** Markdown as elements of the page. No HTML is parsed, so that a text cannot bring any. */
import { lexer, type MarkedToken, type Token, type Tokens } from "marked";

/** Shows a text as Markdown, or as it is if it nests deeper than the parser can follow. */
export function renderMarkdown(text: string): Node {
  try {
    return fragment(lexer(text));
  } catch {
    return document.createTextNode(text);
  }
}

function fragment(tokens: readonly Token[]): DocumentFragment {
  const parent = document.createDocumentFragment();
  for (const token of tokens) parent.append(render(token as MarkedToken));
  return parent;
}

function render(token: MarkedToken): Node | string {
  switch (token.type) {
    case "heading":
      // The page and its messages have the first two levels.
      return element(`h${Math.min(6, token.depth + 2)}`, fragment(token.tokens));
    case "paragraph":
      return element("p", fragment(token.tokens));
    case "blockquote":
      return element("blockquote", fragment(token.tokens));
    case "strong":
      return element("strong", fragment(token.tokens));
    case "em":
      return element("em", fragment(token.tokens));
    case "del":
      return element("del", fragment(token.tokens));
    case "code":
      return codeBlock(token);
    case "codespan":
      return element("code", token.text);
    case "hr":
      return element("hr");
    case "br":
      return element("br");
    case "list":
      return list(token);
    case "table":
      return table(token);
    case "link":
      return link(token);
    case "image":
      // Showing it would ask another host.
      return link({ ...token, type: "link" });
    case "text":
      return token.tokens === undefined ? decoded(token.text) : fragment(token.tokens);
    case "escape":
      return token.text;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "space":
    case "def":
      return "";
    default:
      return token.raw;
  }
}

function element(name: string, ...children: (Node | string)[]): HTMLElement {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function codeBlock({ text, lang = "" }: Tokens.Code): HTMLElement {
  const copy = element("button", "Copy") as HTMLButtonElement;
  copy.type = "button";
  copy.addEventListener("click", () => void navigator.clipboard.writeText(text));
  const caption = element("figcaption", element("span", lang.split(/\s/)[0] || "code"), copy);
  const pre = element("pre", element("code", text));
  // A long line scrolls, which the keyboard must be able to do.
  pre.tabIndex = 0;
  return element("figure", caption, pre);
}

function list({ ordered, start, items }: Tokens.List): HTMLElement {
  const node = element(
    ordered ? "ol" : "ul",
    ...items.map((item) => (
      element("li", fragment(item.tokens))
    )),
  );
  if (ordered && start !== "") (node as HTMLOListElement).start = start;
  return node;
}

function table({ header, rows }: Tokens.Table): HTMLElement {
  const row = (name: string, cells: readonly Tokens.TableCell[]) =>
    element("tr", ...cells.map(({ tokens }) => element(name, fragment(tokens))));
  const node = element(
    "table",
    element("thead", row("th", header)),
    element("tbody", ...rows.map((cells) => row("td", cells))),
  );
  node.tabIndex = 0;
  return node;
}

/** Links to web and mail addresses; others, such as `javascript:`, are shown as text. */
function link({ href, text, raw }: Tokens.Link): Node | string {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return raw;
  const node = element("a", decoded(text === "" ? href : text)) as HTMLAnchorElement;
  node.href = href;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&amp;": "&",
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&#39;": "'",
};

function decoded(text: string): string {
  return text.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => ENTITIES[entity]!);
}
