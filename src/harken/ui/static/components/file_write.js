// What all pages share that write a workflow file: the findings in it, its diff before, and what the reload made of it.
import { html } from "../vendor/preact.js";
import { count, line } from "../format.js";
import { Action } from "./action.js";
import { Dialog } from "./dialog.js";
import { TextDiff } from "./text_diff.js";

const isError = (finding) => finding.severity === "error";

/** Each finding at its place; `go({line, column})` leads to those of this file, where there is a text to go to. */
export function Findings({ findings, file, go }) {
  const errors = findings.filter(isError).length;
  const place = (finding) => `${finding.file}:${finding.line}:${finding.column}`;
  return html`<p><strong>${errors ? `${count(errors, "error")}: it cannot be written yet` : `${count(findings.length, "warning")}: it can be written`}</strong></p>
    <ul class="file-findings">${findings.map((finding, index) => html`<li key=${index} class=${finding.severity}>
      ${go && finding.file === file
        ? html`<button class="quiet mono" onClick=${() => go({ line: finding.line, column: finding.column })}>${place(finding)}</button>`
        : html`<span class="mono">${place(finding)}</span>`}
      <span>${finding.severity === "warning" && "warning: "}${line(finding.message, 400)}${finding.fix && `. ${line(finding.fix, 300)}`}</span>
      ${finding.excerpt && html`<pre>${finding.excerpt}</pre>`}</li>`)}</ul>`;
}

/** The last look before a file is written. `children` stand above the diff; where they name an error, `write` is left out. */
export function WriteDialog({ file, diff, write, close, children }) {
  return html`<${Dialog} title="Write ${file}?" wide=${true} onClose=${close}>
    ${children}<${TextDiff} text=${diff} label="What changes in ${file}" />
    <p class="buttons"><button onClick=${close}>Go on editing</button>
      ${write && html`<${Action} operation="workflows.write" tone="primary" act=${write}>Write and load it<//>`}</p>
  <//>`;
}

/** What the reload said of this file. */
const toldOf = ({ file, reload }) => (reload.findings ?? []).filter((text) => text.startsWith(`${file}:`));
const isRefused = (written) => toldOf(written).some((text) => !/^\S+: warning: /.test(text));

/** Whether the file that was written is what runs now. */
export const isLoaded = (written) => written.reload.done && !isRefused(written);

/** What the reload after the write made of it. */
export function Outcome({ written }) {
  const { reload, file } = written;
  const moved = [["add", "new"], ["replace", "changed"], ["remove", "gone"]].flatMap(([name, words]) => (reload.done ? reload[name] : []).map((item) => `${item.replace(":", " ")} ${words}`));
  const told = toldOf(written);
  return html`<div class="card notice" role="status">
    <p class="what"><strong>${file} is written.</strong> ${!reload.done ? "It is not loaded yet: " + reload.reason : isLoaded(written) ? "Harken took it." : "It was refused, and the version before runs on:"}</p>
    ${told.length > 0 && html`<ul class="plain">${told.map((text) => html`<li key=${text} class="mono">${line(text, 600)}</li>`)}</ul>`}
    ${moved.length > 0 && html`<p class="dim">${moved.join(", ")}</p>`}</div>`;
}
