// The editor for YAML and CEL. It lives in a shadow root, where its styles are allowed without loosening our policy.
import { html, useEffect, useRef } from "../vendor/preact.js";
import * as codemirror from "../vendor/codemirror.js";

const given = codemirror.Annotation.define(); // of a change that was not typed
const NONE = []; // always the same, so that nothing is marked anew with every letter

/**
 * `value` and `onChange(text)`. `language`: "yaml" or "text". `complete`: (context) => completions, as CodeMirror has them.
 * `findings`: [{line, column, message, severity}]. `place`: {line, column} to go to, when it changes. Undo and redo are
 * the editor's own.
 */
export default function Editor({ value, onChange, language = "yaml", complete, findings = NONE, place: goal = null, label, readOnly = false }) {
  const place = useRef(null);
  const editor = useRef(null);
  const latest = useRef({});
  const told = useRef([]); // what was typed, and has not come back as `value` yet
  latest.current = { complete, onChange: (text) => (told.current.push(text), onChange?.(text)) };
  useEffect(() => {
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    editor.current = new codemirror.EditorView({
      parent: root,
      root,
      state: codemirror.EditorState.create({ doc: value, extensions: extensions({ language, label, readOnly, latest }) }),
    });
    return () => editor.current.destroy();
  }, [language, readOnly]);
  useEffect(() => {
    // what comes back late is older than what stands there now, and must not replace it
    const own = told.current.indexOf(value);
    told.current.splice(0, own + 1);
    const now = editor.current.state.doc.toString();
    if (own < 0 && value !== now) editor.current.dispatch({ changes: { from: 0, to: now.length, insert: value }, annotations: given.of(true) });
  }, [value]);
  useEffect(() => {
    const { state } = editor.current;
    editor.current.dispatch(codemirror.setDiagnostics(state, findings.map((finding) => diagnostic(state.doc, finding))));
  }, [findings]);
  useEffect(() => {
    if (!goal) return;
    const { from } = diagnostic(editor.current.state.doc, goal);
    editor.current.dispatch({ selection: { anchor: from }, scrollIntoView: true });
    editor.current.focus();
  }, [goal]);
  return html`<div ref=${place} class="editor"></div>`;
}

function extensions({ language, label, readOnly, latest }) {
  const { EditorView, keymap } = codemirror;
  return [
    codemirror.lineNumbers(),
    codemirror.history(),
    codemirror.drawSelection(),
    codemirror.indentOnInput(),
    codemirror.bracketMatching(),
    codemirror.closeBrackets(),
    codemirror.highlightActiveLine(),
    codemirror.syntaxHighlighting(codemirror.HighlightStyle.define(colours())),
    codemirror.autocompletion({ icons: false, override: [(context) => latest.current.complete?.(context) ?? null] }),
    keymap.of([...codemirror.closeBracketsKeymap, ...codemirror.defaultKeymap, ...codemirror.historyKeymap, ...codemirror.searchKeymap, ...codemirror.completionKeymap, ...codemirror.lintKeymap]),
    ...(language === "yaml" ? [codemirror.yaml()] : []),
    EditorView.lineWrapping,
    EditorView.editable.of(!readOnly),
    EditorView.contentAttributes.of({ "aria-label": label }),
    EditorView.updateListener.of((update) => update.docChanged && !update.transactions.some((one) => one.annotation(given)) && latest.current.onChange?.(update.state.doc.toString())),
    EditorView.theme({
      "&": { color: "var(--ink)", backgroundColor: "var(--field)", fontSize: "13px" },
      ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)" },
      ".cm-gutters": { backgroundColor: "transparent", color: "var(--dim)", border: "none" },
      ".cm-activeLine": { backgroundColor: "var(--hover)" },
      ".cm-cursor": { borderLeftColor: "var(--ink)" },
      "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--chosen)" },
      ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)" },
      ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--chosen)", color: "var(--ink)" },
      ".cm-completionDetail": { color: "var(--dim)", fontStyle: "normal" },
      ".cm-completionMatchedText": { color: "var(--accent-text)", textDecoration: "none", fontWeight: "600" },
      ".cm-completionInfo": { maxWidth: "min(320px, 60vw)", fontFamily: "var(--sans)" },
      ".cm-lintRange-error": { backgroundImage: "none", borderBottom: "2px solid var(--bad)" },
      ".cm-lintRange-warning": { backgroundImage: "none", borderBottom: "2px solid var(--warn)" },
    }),
  ];
}

function colours() {
  const { tags } = codemirror;
  return [
    { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent-text)" },
    { tag: [tags.string, tags.content], color: "var(--ink)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
    { tag: tags.comment, color: "var(--dim)" },
    { tag: tags.keyword, color: "var(--code-keyword)" },
  ];
}

function diagnostic(document, { line, column, message, severity = "error" }) {
  const found = document.line(Math.min(Math.max(1, line), document.lines));
  const from = Math.min(found.from + Math.max(0, column - 1), found.to);
  return { from, to: found.to, message, severity };
}
