// Many at once, by plan: first the exact ids with samples, then those and nothing else, whatever the filter would find by then.
import { html, useState } from "../vendor/preact.js";
import { at, get, post } from "../api.js";
import { Action } from "./action.js";
import { Dialog } from "./dialog.js";
import { Pill } from "./pill.js";
import { Shown } from "./states.js";
import { Ago } from "./time_text.js";
import { count, line, number } from "../format.js";
import { useResource } from "../resource.js";
import { query, setQuery } from "../router.js";

const NOUNS = { retry: "run", cancel: "run", release: "run", drop: "dead letter", replay: "event" };
const DOES = { retry: "Retry", cancel: "Cancel", release: "Release", drop: "Drop", replay: "Replay" };
const DID = { retry: "retried", cancel: "cancelled", release: "released", drop: "dropped", replay: "replayed" };
const IDS_SHOWN = 500;

/** A button that makes a plan of `action` for what `where()` (or a promise of it) chooses; the plan's id then stands in the address. */
export function PlanButton({ action, where, trigger, since, children }) {
  const plan = async () => {
    const made = await post("/api/bulk/plan", dropEmpty({ action, where: await where(), trigger, since }));
    setQuery({ plan: made.id }, { push: true });
  };
  return html`<${Action} operation="bulk.plan" act=${plan}>${children}<//>`;
}

function dropEmpty(given) {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}

/** Shows the plan that stands in the address. `then` is called when it was executed. */
export function BulkPlan({ then }) {
  const id = query.value.plan;
  if (!id) return null;
  const close = () => setQuery({ plan: "" });
  return html`<${Dialog} key=${id} title="Plan" onClose=${close} wide><${Plan} id=${id} close=${close} then=${then} /><//>`;
}

function Plan({ id, close, then }) {
  const found = useResource((signal) => get(at`/api/bulk/${id}`, {}, { signal }), [id]);
  return html`<${Shown} of=${found} what="the plan" show=${(plan) => html`<${Planned} plan=${plan} reload=${async () => (await found.reload(), await then?.())} />
    <p class="buttons">
      <button onClick=${close}>Close</button>
      ${plan.state === "planned" && plan.count > 0 && html`<${Action} operation="bulk.execute" tone=${plan.action === "drop" ? "danger" : "primary"}
        act=${() => execute(plan)} then=${async () => (await found.reload(), await then?.())}>${DOES[plan.action]} ${count(plan.count, NOUNS[plan.action])}<//>`}
      ${plan.state === "executed" && plan.action === "replay" && plan.started.length > 0 && html`<${Action} operation="bulk.undo" then=${found.reload}
        act=${async () => `${count((await post(at`/api/bulk/${plan.id}/undo`)).cancelled, "run")} did not begin and will not`}>Undo<//>`}
    </p>`} />`;
}

async function execute(plan) {
  const done = await post(at`/api/bulk/${plan.id}/execute`);
  return `${count(done.done, NOUNS[plan.action])} ${done.done === 1 ? "is" : "are"} ${DID[plan.action]}${done.refused.length ? `, ${number(done.refused.length)} refused` : ""}`;
}

function Planned({ plan }) {
  const noun = NOUNS[plan.action];
  if (!plan.count) return html`<p>Nothing fits <code>${line(plan.where)}</code>, so there is nothing to ${plan.action}.</p>`;
  return html`<p>${plan.state === "planned" ? `This will ${plan.action} exactly ` : "This was for exactly "}<strong>${count(plan.count, noun)}</strong>,
      chosen by <code>${line(plan.where, 400)}</code>. What comes later is not touched. <${Pill} status=${plan.state} /></p>
    <ul class="samples">${plan.samples.map((row) => html`<li key=${row.id}><code>${line(String(row.id), 14)}</code> <strong>${line(row.trigger)}</strong>
      ${" "}${line(row.title || row.key || "", 80)} <span class="dim">${line(row.error || row.reason || "", 160)}</span></li>`)}
      ${plan.count > plan.samples.length && html`<li class="dim">and ${number(plan.count - plan.samples.length)} more</li>`}
    </ul>
    <${Ids} ids=${plan.ids} />
    ${plan.state === "planned"
      ? html`<p class="dim">The plan expires <${Ago} at=${plan.expires_at} />, and is executed at most once.</p>`
      : html`<p>${count(plan.done, noun)} ${DID[plan.action]}${plan.started.length ? `, ${count(plan.started.length, "run")} started` : ""}.</p>`}
    ${plan.refused.length > 0 && html`<h3>${count(plan.refused.length, "refusal")}</h3>
      <ul class="samples">${plan.refused.slice(0, 20).map((one) => html`<li key=${one.id}><code>${line(String(one.id), 14)}</code> ${line(one.reason)} <span class="dim">${one.fix}</span></li>`)}</ul>`}`;
}

function Ids({ ids }) {
  const [open, setOpen] = useState(false);
  return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${ids.length === 1 ? "Its id" : `All ${number(ids.length)} ids`}</summary>
    ${open && html`<pre class="ids" tabindex="0">${ids.slice(0, IDS_SHOWN).join("\n")}${ids.length > IDS_SHOWN ? `\n… ${number(ids.length - IDS_SHOWN)} more: harken bulk show` : ""}</pre>`}
  </details>`;
}
