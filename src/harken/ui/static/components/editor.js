// The editor for YAML and CEL. It lives in a shadow root, where its styles are allowed without loosening our policy.
import { html, useEffect, useRef } from "../vendor/preact.js";
import * as codemirror from "../vendor/codemirror.js";

const NONE = []; // always the same, so that nothing is marked anew with every letter

/**
 * `value` and `onChange(text)`. `language`: "yaml" or "text". `complete`: (context) => completions, as CodeMirror has them.
 * `findings`: [{line, column, message, severity}]. Undo and redo are the editor's own.
 */
export default function Editor({ value, onChange, language = "yaml", complete, findings = NONE, label, readOnly = false }) {
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
    if (own < 0 && value !== now) editor.current.dispatch({ changes: { from: 0, to: now.length, insert: value } });
  }, [value]);
  useEffect(() => {
    const { state } = editor.current;
    editor.current.dispatch(codemirror.setDiagnostics(state, findings.map((finding) => diagnostic(state.doc, finding))));
  }, [findings]);
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
    codemirror.autocompletion({ override: latest.current.complete ? [(context) => latest.current.complete(context)] : null }),
    keymap.of([...codemirror.closeBracketsKeymap, ...codemirror.defaultKeymap, ...codemirror.historyKeymap, ...codemirror.searchKeymap, ...codemirror.completionKeymap, ...codemirror.lintKeymap]),
    ...(language === "yaml" ? [codemirror.yaml()] : []),
    EditorView.lineWrapping,
    EditorView.editable.of(!readOnly),
    EditorView.contentAttributes.of({ "aria-label": label }),
    EditorView.updateListener.of((update) => update.docChanged && latest.current.onChange?.(update.state.doc.toString())),
    EditorView.theme({
      "&": { color: "var(--ink)", backgroundColor: "var(--field)", fontSize: "13px" },
      ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)" },
      ".cm-gutters": { backgroundColor: "transparent", color: "var(--dim)", border: "none" },
      ".cm-activeLine": { backgroundColor: "var(--hover)" },
      ".cm-cursor": { borderLeftColor: "var(--ink)" },
      "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--chosen)" },
      ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)" },
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
