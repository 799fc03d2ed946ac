// A draft kept as a workflow file: written from here after a look at its diff, or as YAML to copy where that cannot be.
import { html, useState } from "../vendor/preact.js";
import { at, put } from "../api.js";
import { Action } from "../components/action.js";
import { copy } from "../components/copy.js";
import { Findings, isLoaded, Outcome, WriteDialog } from "../components/file_write.js";
import { Editor } from "../components/lazy.js";
import { triggerPath } from "../components/link.js";
import { fieldId } from "../components/schema_form.js";
import { Failed, Loading } from "../components/states.js";
import { toast } from "../components/toast.js";
import { line } from "../format.js";
import { useResource } from "../resource.js";
import { navigate } from "../router.js";
import { may } from "../session.js";
import { checked } from "./builder_draft.js";

const NEW = "new"; // the version of a file that is not there yet
const FILE_NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/; // other names cannot be files from here, says workflows.write

const send = (name, body, options) => put(at`/api/workflows/${name}/source`, body, NEW, options);

/** `finish` ends the draft, once its file is what runs. */
export function AsFile({ answer, draft, finish }) {
  const [open, setOpen] = useState(false);
  if (!answer?.yaml) return null;
  return html`<details class="as-file" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>Keep it as a file instead</summary>
    ${open && html`<${File} yaml=${answer.yaml} name=${answer.row?.name ?? ""} draft=${draft} finish=${finish} />`}</details>`;
}

function File({ yaml, name, draft, finish }) {
  const [plan, setPlan] = useState(null);
  const [written, setWritten] = useState(null);
  const [existing, setExisting] = useState(""); // the name of a file that is there already
  const unlessThere = async (wanted, call) => {
    try {
      await call();
    } catch (error) {
      if (error.code !== "outdated") throw error;
      setPlan(null);
      setExisting(wanted);
    }
  };
  const look = async () => {
    const { row, yaml: text } = await checked(draft);
    await unlessThere(row.name, async () => setPlan({ ...(await send(row.name, { text, dry_run: true })), text }));
  };
  const write = () => unlessThere(plan.name, async () => {
    const made = await send(plan.name, { text: plan.text });
    setPlan(null);
    if (!isLoaded(made)) return setWritten(made);
    finish();
    navigate(triggerPath(made.name));
    return toast(`${made.file} is written, and Harken took it`);
  });
  const canWrite = plan?.writable && !plan.findings.some((finding) => finding.severity === "error");
  const copyIt = () => copy(yaml, "The YAML");
  return html`<div class="stack"><p class="dim">Harken loads <code>workflows/${name || "NAME"}.yaml</code> by itself. Secrets are references there: store them with <code>harken secrets set</code>.</p>
    <${Editor} value=${yaml} readOnly=${true} label="YAML of the trigger" />
    ${written?.name === name ? html`<${Outcome} written=${written} />` : html`<${Ways} key=${name} name=${name} replaces=${draft.replaces} yaml=${yaml} exists=${existing === name} look=${look} copyIt=${copyIt} />`}
    ${plan && html`<${WriteDialog} file=${plan.file} diff=${plan.diff} write=${canWrite && write} close=${() => setPlan(null)}>
      ${!plan.writable && html`<p role="alert"><strong>It cannot be written from here:</strong> ${line(plan.reason, 300)}.</p>`}
      ${plan.findings.length > 0 && html`<div role="status"><${Findings} findings=${plan.findings} file=${plan.file} /></div>`}<//>`}</div>`;
}

/** The button that writes the file, or why there is none and what to do. */
function Ways({ name, replaces, exists, ...rest }) {
  const why = withoutAsking(name, replaces);
  if (why) return html`<${OnlyCopy} name=${name} why=${why} copyIt=${rest.copyIt} />`;
  return exists ? html`<${Exists} name=${name} copyIt=${rest.copyIt} />` : html`<${Asked} name=${name} ...${rest} />`;
}

function withoutAsking(name, replaces) {
  if (!may("workflows.write")) return "files are written by admins, and your token is not one's";
  if (replaces) return `${replaces} is a row in the store, and a file of the same name would clash with it. Delete the row first`;
  if (!name) return "it has no name yet, and the file is called after it";
  if (!FILE_NAME.test(name)) return "the file is called after the trigger, and may only have letters, digits, - and _ in its name";
  return "";
}

function Asked({ name, yaml, look, copyIt }) {
  const found = useResource((signal) => send(name, { text: yaml, dry_run: true }, { signal }), [name]);
  if (found.error?.code === "outdated") return html`<${Exists} name=${name} copyIt=${copyIt} />`;
  if (found.error) return html`<${Failed} error=${found.error} retry=${found.reload} /><p class="buttons"><button onClick=${copyIt}>Copy the YAML</button></p>`;
  if (!found.data) return html`<${Loading} what="whether it can be written" />`;
  if (!found.data.writable) return html`<${OnlyCopy} name=${name} why=${found.data.reason} copyIt=${copyIt} />`;
  return html`<p class="buttons"><button onClick=${copyIt}>Copy the YAML</button>
    <${Action} operation="workflows.write" tone="primary" act=${look}>Write to ${found.data.file}<//></p>`;
}

function OnlyCopy({ name, why, copyIt }) {
  return html`<p class="notice-line"><strong>It cannot be written from here:</strong> ${line(why, 300)}. Copy it, and put it into <code>workflows/${name || "NAME"}.yaml</code> on its machine.</p>
    <p class="buttons"><button class="primary" onClick=${copyIt}>Copy the YAML</button></p>`;
}

/** There is such a file: it is never overwritten from a form that does not show what is in it. */
function Exists({ name, copyIt }) {
  return html`<div class="conflict" role="alert"><p><strong>There is a file workflows/${name}.yaml already.</strong> It was left as it is. Give the trigger another name, or change that file.</p>
    <p class="buttons"><button onClick=${() => document.getElementById(fieldId(["name"])).focus()}>Give it another name</button><button onClick=${copyIt}>Copy the YAML</button></p></div>`;
}
