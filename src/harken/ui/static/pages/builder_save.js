// How a draft is kept: as a row in the store; as a file, see builder_file.js.
import { html, useState } from "../vendor/preact.js";
import { at, get, post, put } from "../api.js";
import { Action } from "../components/action.js";
import { copy } from "../components/copy.js";
import { triggerPath } from "../components/link.js";
import { fieldId } from "../components/schema_form.js";
import { count } from "../format.js";
import { navigate } from "../router.js";
import { checked } from "./builder_draft.js";
import { AsFile } from "./builder_file.js";

export function Save({ draft, change, check, finish, refused }) {
  const { answer, error } = check;
  const problems = answer?.problems ?? [];
  const errors = problems.filter((one) => one.severity === "error");
  const [conflict, setConflict] = useState(null);
  const isNew = !draft.replaces;
  const save = async () => {
    const { row } = await checked(draft);
    try {
      if (isNew) await post("/api/triggers", { ...row, enabled: draft.enabled });
      else await put(at`/api/triggers/${draft.replaces}`, { ...withoutName(row), enabled: draft.enabled }, draft.revision);
    } catch (failure) {
      refused(failure.problems);
      if (failure.status !== 412) throw failure;
      setConflict(failure);
      return "";
    }
    finish();
    navigate(triggerPath(row.name));
    return isNew ? `${row.name} is made, and listens` : `${row.name} is changed`;
  };
  const wrong = problems.filter((one) => one.path[0] === "name");
  return html`<section class="card stack save" aria-labelledby="save"><h2 id="save">${isNew ? "Name and save it" : "Save the changes"}</h2>
    <div class="field"><label for=${fieldId(["name"])}>Name<span class="needed" title="required"> *</span></label>
      <input id=${fieldId(["name"])} value=${draft.name} readonly=${!isNew} spellcheck=${false} autocomplete="off" placeholder="late-deploys" aria-invalid=${wrong.length > 0} aria-describedby="name-about"
        onInput=${(event) => change({ name: event.currentTarget.value }, "name")} />
      <div id="name-about" class="about">${wrong.map((one) => html`<p key=${one.message} class="wrong">${one.message}${one.fix && `. ${one.fix}`}</p>`)}<p class="dim">${isNew ? "What it is called everywhere; no other trigger or workflow has it." : "A name stays as it is."}</p></div></div>
    <${Problems} problems=${problems} errors=${errors} draft=${draft} />
    ${conflict && html`<${Conflict} draft=${draft} change=${change} done=${() => setConflict(null)} error=${conflict} />`}
    <div class="buttons save-buttons"><button onClick=${() => copy(answer?.yaml ?? "", "The YAML")} disabled=${!answer?.yaml}>Copy as YAML</button>
      <${Action} operation=${isNew ? "triggers.create" : "triggers.replace"} tone="primary" disabled=${conflict !== null} act=${save}>${isNew ? "Create the trigger" : "Save the trigger"}<//></div>
    ${error && html`<p class="dim">What you typed is kept until Harken answers again.</p>`}
    <${AsFile} answer=${answer} draft=${draft} finish=${finish} />
  </section>`;
}

const withoutName = ({ name, ...rest }) => rest;

/** Everything that is wrong, each with the way to its field. */
function Problems({ problems, errors, draft }) {
  if (!draft.provider || !problems.length) return null;
  const focus = (path) => {
    for (let size = path.length; size > 0; size -= 1) {
      const field = document.getElementById(fieldId(path.slice(0, size)));
      if (field) return field.focus();
    }
    return document.getElementById(path[0] === "trigger" ? "when" : "runs")?.scrollIntoView();
  };
  return html`<div class="problems"><p>${errors.length ? html`<strong>${count(errors.length, "thing")} to correct</strong>` : "It can be saved. Odd is only:"}</p>
    <ul>${problems.map((one) => html`<li key=${one.text}><button class="quiet" onClick=${() => focus(one.path)}>${one.path.filter((part) => part !== "trigger").join(".") || "it"}: ${one.message}</button></li>`)}</ul></div>`;
}

/** Somebody else saved meanwhile: nothing is overwritten without a word, and nothing is saved until it is decided what becomes of it. */
function Conflict({ draft, change, done, error }) {
  const overwrite = async () => {
    const { revision } = await get(at`/api/triggers/${draft.replaces}`);
    change({ revision });
    done();
    return "Save once more: it replaces what is there now";
  };
  const take = () => {
    sessionStorage.removeItem(`harken.draft.trigger.edit.${draft.replaces}`);
    location.reload();
  };
  return html`<div class="conflict" role="alert"><p><strong>${error.message}</strong>. Your edits are still here, and nothing was saved.</p>
    <p class="buttons"><button onClick=${take}>Show what is there now</button><${Action} operation="triggers.replace" act=${overwrite}>Keep mine<//></p></div>`;
}
