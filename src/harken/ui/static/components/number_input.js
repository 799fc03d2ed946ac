// A number as somebody types it: `-` and `2.` stay as they are until they are one.
import { html, useState } from "../vendor/preact.js";

/** The number that a text is, undefined if it is none. An integer that a number cannot hold exactly is a BigInt. */
export function readNumber(text) {
  const plain = text.trim();
  const found = plain === "" ? NaN : Number(plain);
  if (!Number.isFinite(found)) return undefined;
  return Number.isSafeInteger(found) || !/^-?\d+$/.test(plain) ? found : BigInt(plain);
}

/** `read(text)`: what `onChange` is told of a text, where that is not the number or undefined. */
export function NumberInput({ value, onChange, read = readNumber, ...attributes }) {
  const [text, setText] = useState(String(value ?? ""));
  // it is changed elsewhere too, such as by undo
  const shown = Object.is(read(text), value) ? text : String(value ?? "");
  return html`<input ...${attributes} type="text" inputmode="decimal" value=${shown} onInput=${({ currentTarget: { value: written } }) => {
    setText(written);
    onChange(read(written));
  }} />`;
}
