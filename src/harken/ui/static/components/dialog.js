// A dialog of the browser's own kind: it takes the focus, gives it back, and Esc closes it.
import { html, render, useLayoutEffect, useRef } from "../vendor/preact.js";

export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  // at once: after the next picture, keys and clicks that follow fast would still go to the page
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  const onClick = (event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onClick=${onClick}>
    <div class="dialog">
      <h2>${title}</h2>
      ${children}
    </div>
  </dialog>`;
}

/** Ask a question; resolves to true or false. `question`: a text, or {title, text, yes, tone}. */
export function confirm(question) {
  const { title, text, yes = "Yes, do it", tone = "danger" } = typeof question === "string" ? { title: question } : question;
  const place = document.body.appendChild(document.createElement("div"));
  return new Promise((resolve) => {
    const end = (answer) => {
      render(null, place);
      place.remove();
      resolve(answer);
    };
    render(
      html`<${Dialog} title=${title} onClose=${() => end(false)}>
        ${text && html`<p>${text}</p>`}
        <p class="buttons">
          <button onClick=${() => end(false)}>Cancel</button>
          <button class=${tone} onClick=${() => end(true)}>${yes}</button>
        </p>
      <//>`,
      place,
    );
  });
}
