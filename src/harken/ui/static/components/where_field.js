// A filter in CEL that is applied as it is typed, and stands in the address. Harken checks it, so its errors are in words.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { query, setQuery } from "../router.js";

const TYPING_MS = 350;

/** `name`: the parameter in the address. `error`: what Harken said of the filter, if it is wrong. `example`: shown while it is empty, as one. */
export function WhereField({ name = "where", error, example, label = "Filter" }) {
  const kept = query.value[name] ?? "";
  const [text, setText] = useState(kept);
  const waiting = useRef(0);
  useEffect(() => {
    // it was changed elsewhere: by back and forward, or by a click on a value
    if (!waiting.current) setText(kept);
  }, [kept]);
  useEffect(() => () => {
    clearTimeout(waiting.current);
    waiting.current = 0;
  }, []);
  const apply = (value) => {
    waiting.current = 0;
    setQuery({ [name]: value.trim() });
  };
  const onInput = (event) => {
    const { value } = event.currentTarget;
    setText(value);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => apply(value), TYPING_MS);
  };
  const applyNow = () => {
    clearTimeout(waiting.current);
    apply(text);
  };
  // who goes on to a button means what stands in the field
  const onBlur = () => waiting.current && applyNow();
  const wrong = isAboutFilter(error) ? error : null;
  return html`<div class="where">
    <label class="sr" for="where-${name}">${label}, in CEL</label>
    <input id="where-${name}" class="mono" data-search type="text" value=${text} placeholder=${`${label}, such as ${example}`} spellcheck=${false} autocomplete="off"
      autocapitalize="off" aria-invalid=${Boolean(wrong)} aria-describedby="where-${name}-error" onInput=${onInput} onBlur=${onBlur} onKeyDown=${(event) => event.key === "Enter" && applyNow()} />
    <p id="where-${name}-error" class="wrong" role="status">${wrong && `${wrong.message}${wrong.fix ? `. ${wrong.fix}` : ""}`}</p>
  </div>`;
}

/** Whether an error is about what the caller wrote; other errors hide the list. */
export const isAboutFilter = (error) => [400, 409, 422].includes(error?.status);
