// Ctrl-K: go somewhere or do something by typing. `?`: which keys there are.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Dialog } from "./dialog.js";
import { commandsFor } from "../commands.js";
import { boundKeys, overlay } from "../keys.js";

const MOST = 12;
const close = () => (overlay.value = "");

export function Palette() {
  const [typed, setTyped] = useState("");
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(0);
  const input = useRef(null);
  useLayoutEffect(() => input.current?.focus(), []);
  useEffect(() => {
    let current = true;
    commandsFor(typed).then((commands) => {
      if (!current) return;
      setFound(commands.slice(0, MOST));
      setAt(0);
    });
    return () => (current = false);
  }, [typed]);
  const run = (command) => {
    close();
    command?.call();
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) setAt((at + step + found.length) % found.length);
    else if (event.key === "Enter") run(found[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to or do" onClose=${close}>
    <input ref=${input} class="palette-input" role="combobox" aria-expanded="true" aria-controls="palette-list"
      aria-activedescendant=${found.length ? `palette-${at}` : undefined} aria-label="What to go to or do"
      placeholder="Type a page, a name or an action" value=${typed}
      onInput=${(event) => setTyped(event.target.value)} onKeyDown=${onKeyDown} />
    <ul id="palette-list" class="palette" role="listbox" aria-label="What fits">
      ${found.map(
        (command, index) => html`<li key=${index} id="palette-${index}" role="option" aria-selected=${index === at}
          onClick=${() => run(command)}><span>${command.words}</span><span class="dim">${command.hint}</span></li>`,
      )}
    </ul>
    ${found.length === 0 && html`<p class="dim" role="status">Nothing fits.</p>`}
  <//>`;
}

const ALWAYS = [
  ["j k", "Next and previous row"],
  ["Enter", "Open the chosen row"],
  ["Esc", "Close, or leave the field"],
];

export function HelpDialog() {
  const listed = [...boundKeys().map(({ keys, words }) => [keys, words]), ...ALWAYS];
  return html`<${Dialog} title="Keys" onClose=${close}>
    <table class="keys"><tbody>
      ${listed.map(
        ([keys, words]) => html`<tr key=${keys}><th scope="row">${keys.split(" ").map((key) => html`<kbd>${key.replace("Ctrl-k", "Ctrl K")}</kbd> `)}</th><td>${words}</td></tr>`,
      )}
    </tbody></table>
    <p class="buttons"><button onClick=${close}>Close</button></p>
  <//>`;
}
