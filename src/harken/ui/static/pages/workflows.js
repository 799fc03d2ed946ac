// All workflows, what starts them, and a way to start one by hand.
import { html } from "../vendor/preact.js";
import { at, getAll, post } from "../api.js";
import { Action } from "../components/action.js";
import { Link, triggerPath, workflowPath } from "../components/link.js";
import { Empty, FilteredOut, Shown } from "../components/states.js";
import { Table } from "../components/table.js";
import { count, line } from "../format.js";
import { useResource } from "../resource.js";
import { navigate, query, setQuery } from "../router.js";

export default function Workflows() {
  const found = useResource((signal) => getAll("/api/workflows", {}, { signal }), []);
  return html`<div class="page-head"><h1>Workflows</h1></div>
    <${Shown} of=${found} what="workflows" show=${(rows) => html`<${List} rows=${rows} />`} />`;
}

function List({ rows }) {
  const typed = query.value.q ?? "";
  const kept = rows.filter((row) => `${row.name} ${row.description}`.toLowerCase().includes(typed.toLowerCase()));
  if (!rows.length) {
    return html`<${Empty} title="There are no workflows yet.">
      <p>A workflow is a file in <code>workflows/</code> beside harken.yaml. Begin with one: <code>harken init</code>, or <code>harken recipes list</code>.</p>
    <//>`;
  }
  const columns = [
    { name: "name", words: "Workflow", cell: (row) => html`<${Link} to=${workflowPath(row.name)}>${row.name}<//><div class="dim">${line(row.description)}</div>` },
    { name: "triggers", words: "Started by", cell: (row) => (row.triggers.length ? row.triggers.map((name, each) => html`${each > 0 && ", "}<${Link} to=${triggerPath(name)}>${name}<//>`) : "nothing but a person") },
    { name: "steps", words: "Steps", number: true, cell: (row) => count(row.steps, "step") },
    { name: "run", words: "By hand", cell: (row) => html`<${Action} operation="workflows.run" act=${() => start(row.name)}>Run now<//>` },
  ];
  return html`<section class="card stack">
    <label class="sr" for="workflow-search">Find a workflow</label>
    <input id="workflow-search" data-search type="search" placeholder="Find a workflow" value=${typed} onInput=${(event) => setQuery({ q: event.target.value })} />
    ${kept.length
      ? html`<${Table} label="Workflows" columns=${columns} rows=${kept} keyOf=${(row) => row.name} />`
      : html`<${FilteredOut} what="workflows" total=${rows.length} clear=${() => setQuery({ q: "" })} />`}
  </section>`;
}

async function start(name) {
  const { id } = await post(at`/api/workflows/${name}/run`);
  navigate(`/runs/${id}`);
  return `${name} was started`;
}
