// What may stand at the cursor of a YAML file, by its JSON Schema: keys, values of a choice, and what each is for.
// The text is looked at line by line, because YAML that somebody is still typing cannot be parsed.

/** A source of completions for the editor. `schema`: as GET /api/config/schema gives it. */
export function completeBySchema(schema) {
  return (context) => {
    const lines = context.state.doc.toString().split("\n");
    const line = context.state.doc.lineAt(context.pos);
    const found = suggest(schema, lines, line.number - 1, context.pos - line.from);
    if (!found || (!context.explicit && !found.typed && !found.always)) return null;
    return { from: context.pos - found.typed.length, options: found.options, validFor: PLAIN };
  };
}

/** {typed, options} for the cursor in this line and column; null where nothing is known. */
export function suggest(schema, lines, row, column) {
  const before = lines[row].slice(0, column);
  if (/(^|\s)#/.test(before)) return null;
  const place = locate(lines, row, column);
  if (!place) return null;
  const { typed, key, levels } = place;
  const shapes = descend(schema, schema, levels);
  const last = levels.at(-1);
  if (key === null) return { typed, options: keys(schema, shapes, last.values, lines[row].slice(column)) };
  const values = shapes.flatMap((shape) => inside(shape, key, schema)).flatMap((one) => expand(schema, one, {}));
  const options = choices(values);
  return options.length ? { typed, options, always: true } : null;
}

// A level is one mapping or list on the way from the top to the cursor: {via, values}. `via` is the key that leads to it,
// or "[]" for an item of a list; `values` are the plain values of its keys, which decide what else it may have.

function locate(lines, row, column) {
  const text = lines[row].slice(0, column);
  const start = parse(text);
  const levels = blockLevels(lines.with(row, text), row, start.blank ? column : start.indent);
  const flow = flowLevels(start.value);
  if (flow) {
    // `- {` is the item itself, `key: {` is what stands below the key
    const outer = start.key === null ? [...levels.slice(0, -1), { via: "[]", values: flow.values }] : [...levels, { via: start.key, values: flow.values }];
    return { typed: flow.typed, key: flow.key, levels: [...outer, ...flow.levels] };
  }
  if (start.key !== null) return start.spaced && PLAIN.test(start.value) ? { typed: start.value, key: start.key, levels } : null;
  return PLAIN.test(start.rest) ? { typed: start.rest, key: null, levels } : null;
}

const PLAIN = /^[\w.-]*$/;
const LINE = /^( *)((?:- +|-$)*)(?:("[^"]*"|'[^']*'|[^\s#"'{[&*!|>%@][^:#]*?)\s*:(?=\s|$)(\s*)(.*))?(.*)$/;

/** One line: where its content begins, its dashes, and its key and value if it has them. */
function parse(text) {
  const [, spaces, dashes, key, gap, value, rest] = LINE.exec(text);
  const indent = spaces.length + dashes.length;
  return {
    indent, dash: dashes ? spaces.length : -1, key: key === undefined ? null : key.replace(/^["']|["']$/g, ""),
    value: (value ?? rest ?? "").trim(), rest: rest ?? "", spaced: Boolean(gap) || Boolean(value), blank: !text.trim() || /^ *#/.test(text),
  };
}

/** The levels around a mapping that has a line at `row` and begins at column `indent`, the outermost first. */
function blockLevels(lines, row, indent) {
  const levels = [];
  for (let [at, depth] = [row, indent]; ; ) {
    const values = siblings(lines, at, depth, row);
    const begin = above(lines, at + 1, (one) => one.indent < depth || (one.indent === depth && one.dash >= 0));
    const isItem = begin?.line.indent === depth;
    // a list may stand as far left as the key that has it
    const { dash } = begin?.line ?? {};
    const parent = isItem ? above(lines, begin.at, (one) => one.indent < dash || (one.indent === dash && one.dash < 0)) : begin;
    levels.unshift({ via: isItem ? "[]" : (parent?.line.key ?? ""), values });
    if (!parent) return levels;
    if (isItem) levels.unshift({ via: parent.line.key ?? "", values: {} });
    [at, depth] = [parent.at, parent.line.indent];
  }
}

/** The nearest line before `row` that fits. */
function above(lines, row, fits) {
  for (let at = row - 1; at >= 0; at -= 1) {
    const line = parse(lines[at]);
    if (!line.blank && fits(line)) return { at, line };
  }
  return null;
}

/** The plain values of the keys that stand in the same mapping as the row. */
function siblings(lines, row, indent, cursor) {
  const found = {};
  const take = (at) => {
    const one = parse(lines[at]);
    if (one.blank) return true;
    if (one.indent < indent) return false;
    if (one.indent === indent && one.key !== null && at !== cursor) found[one.key] = one.value.replace(/\s+#.*$/, "").replace(/^["']|["']$/g, "");
    return true;
  };
  const begins = (at) => parse(lines[at]).indent === indent && parse(lines[at]).dash >= 0;
  for (let at = row; at >= 0 && take(at) && !begins(at); ) at -= 1;
  for (let at = row + 1; at < lines.length && !begins(at) && take(at); ) at += 1;
  return found;
}

/** Where the cursor is in {a: 1, b: [ … of the same line; null outside of such. */
function flowLevels(text) {
  if (!/^[[{]/.test(text)) return null;
  const open = [];
  let [word, quoted] = ["", ""];
  const end = () => {
    const top = open.at(-1);
    if (top?.key && word.trim()) top.values[top.key] = word.trim().replace(/^["']|["']$/g, "");
    word = "";
  };
  for (const letter of text) {
    if (quoted) {
      if (letter === quoted) quoted = "";
      word += letter;
    } else if (letter === '"' || letter === "'") [quoted, word] = [letter, word + letter];
    else if (letter === "{" || letter === "[") {
      open.push({ list: letter === "[", key: null, values: {} });
      word = "";
    } else if (letter === "}" || letter === "]") {
      end();
      open.pop();
    } else if (letter === ",") {
      end();
      if (open.length) open.at(-1).key = null;
    } else if (letter === ":" && open.length && !open.at(-1).list && open.at(-1).key === null) {
      open.at(-1).key = word.trim().replace(/^["']|["']$/g, "");
      word = "";
    } else word += letter;
  }
  if (!open.length || quoted) return null;
  const typed = word.trimStart();
  if (!PLAIN.test(typed)) return null;
  const levels = [];
  open.forEach((one, index) => {
    // the outermost is the value of the line's own key
    if (index) levels.push({ via: open[index - 1].list ? "[]" : open[index - 1].key, values: one.values });
  });
  return { typed, key: open.at(-1).list ? "[]" : open.at(-1).key, levels, values: open[0].values };
}

/** The shapes that the innermost level may have. */
function descend(root, schema, levels) {
  let shapes = [schema];
  levels.forEach((level, index) => {
    if (index > 0 || level.via) shapes = shapes.flatMap((shape) => inside(shape, level.via, root));
    shapes = shapes.flatMap((shape) => expand(root, shape, level.values));
  });
  return shapes;
}

function inside(shape, via, root) {
  if (via === "[]") return shape.items && typeof shape.items === "object" ? [shape.items] : [];
  const own = shape.properties?.[via];
  if (own !== undefined) return own === true ? [] : [own];
  return shape.additionalProperties && typeof shape.additionalProperties === "object" ? [shape.additionalProperties] : [];
}

/** The shape itself and all that it may be, or is because of these values. */
function expand(root, shape, values, depth = 0) {
  if (!shape || typeof shape !== "object" || depth > 12) return [];
  const parts = [...(shape.allOf ?? []), ...(shape.anyOf ?? []), ...(shape.oneOf ?? [])];
  if (shape.$ref) parts.push(shape.$ref.slice(2).split("/").reduce((found, name) => found?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root));
  if (shape.if) parts.push(applies(shape.if, values) ? shape.then : shape.else);
  return [shape, ...parts.flatMap((part) => expand(root, part, values, depth + 1))];
}

function applies(condition, values) {
  return Object.entries(condition.properties ?? {}).every(([name, { const: wanted }]) => values[name] === wanted);
}

function keys(root, shapes, taken, rest) {
  const known = {};
  for (const shape of shapes) {
    for (const [name, one] of Object.entries(shape.properties ?? {})) {
      if (!(name in taken) && (!known[name] || known[name] === true)) known[name] = one;
    }
  }
  const needed = new Set(shapes.flatMap((shape) => shape.required ?? []));
  return Object.entries(known).map(([name, one]) => {
    const all = one === true ? [] : expand(root, one, {});
    return {
      label: name, type: "property", detail: words(all), info: text(all), boost: needed.has(name) ? 2 : 0,
      apply: /^\s*:/.test(rest) ? name : `${name}: `,
    };
  });
}

function choices(shapes) {
  const found = new Map();
  for (const shape of shapes) {
    const values = [...(shape.enum ?? []), ...("const" in shape ? [shape.const] : []), ...([shape.type].flat()[0] === "boolean" ? [true, false] : [])];
    for (const value of values) if (value !== null) found.set(String(value), { label: String(value), type: "enum", info: text([shape]) });
  }
  return [...found.values()];
}

function text(shapes) {
  return shapes.find((shape) => shape.description)?.description;
}

const WORDS = { object: "mapping", array: "list", string: "text", integer: "number", number: "number", boolean: "true or false" };

/** What kind of value it takes, in a word. */
function words(shapes) {
  if (shapes.some((shape) => shape.enum)) return "choice";
  const types = [...new Set(shapes.flatMap((shape) => [shape.type].flat()).filter(Boolean))].filter((one) => one !== "null");
  // any value may be a text instead: a reference or a template
  const own = types.filter((one) => one !== "string");
  return WORDS[(own[0] && types[0] !== "string" ? own : types)[0]] ?? "";
}
