// What the palette offers beside the pages: each part of the UI adds its own.
import { useEffect } from "./vendor/preact.js";

const sources = new Set();

/** `source` returns (or promises) [{words, hint, call}] for what was typed; what is only for when nothing else fits has `otherwise`. Returns how to take it back. */
export function addCommands(source) {
  sources.add(source);
  return () => sources.delete(source);
}

export function useCommands(source) {
  useEffect(() => addCommands(source), []);
}

/** What fits: every word of `typed` is in the words or the hint. */
export async function commandsFor(typed) {
  const found = (await Promise.all([...sources].map((source) => source(typed)))).flat();
  const wanted = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = found.filter(({ words, hint = "" }) => wanted.every((word) => `${words} ${hint}`.toLowerCase().includes(word)));
  const usual = fitting.filter((command) => !command.otherwise);
  return usual.length ? usual : fitting;
}
