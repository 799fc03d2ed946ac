// Tokens, the audit log, how long records are kept, and the configuration as it runs.
import { html, useState } from "../vendor/preact.js";
import { at, get, getAll, post } from "../api.js";
import { Action } from "../components/action.js";
import { Advice } from "../components/advice.js";
import { copy } from "../components/copy.js";
import { Link, workflowPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, FilteredOut, Shown } from "../components/states.js";
import { Table } from "../components/table.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago, Clock } from "../components/time_text.js";
import { count, line, number, words } from "../format.js";
import { useDraft, useResource } from "../resource.js";
import { query, setQuery } from "../router.js";
import { may, me, signOut } from "../session.js";

const TABS = [["health", "Health", "doctor"], ["configuration", "Configuration", "config.check"], ["retention", "Retention", "store.retention"], ["tokens", "Tokens and roles", "tokens.list"], ["audit", "Audit", "audit.list"], ["you", "You", "me"]];
const VIEWS = { health: Health, configuration: Configuration, retention: Retention, tokens: Tokens, audit: Audit, you: You };

export default function Settings() {
  const allowed = TABS.filter(([, , operation]) => may(operation));
  const tab = useTab("tab", allowed);
  const View = VIEWS[tab];
  return html`<div class="page-head"><h1>Settings</h1></div>
    <div class="stack">
      <div><${Tabs} name="tab" tabs=${allowed} label="Settings" panel="settings-panel" /></div>
      <div id="settings-panel" role="tabpanel" aria-label=${allowed.find(([name]) => name === tab)[1]} class="stack"><${View} /></div>
    </div>`;
}

function Health() {
  const found = useResource((signal) => get("/api/doctor", {}, { signal }), []);
  const columns = [
    { name: "name", words: "What", cell: (row) => html`<strong>${row.name}</strong>` },
    { name: "state", words: "State", cell: (row) => html`<${Pill} status=${{ fail: "failed", warn: "late" }[row.state] ?? row.state}>${row.state}<//>` },
    { name: "message", words: "Found", cell: (row) => html`${line(row.message, 400)}${row.fix && html`<div class="dim"><${Advice} text=${row.fix} /></div>`}` },
  ];
  return html`<section class="card" aria-labelledby="health"><h2 id="health">What the doctor says</h2>
    <${Shown} of=${found} what="the checks" show=${(data) => html`<${Table} label="Checks" columns=${columns} rows=${data.items} keyOf=${(row) => row.name} />`} /></section>`;
}

function Configuration() {
  const found = useResource(async (signal) => {
    const [findings, diff] = await Promise.all([get("/api/config/check", { }, { signal }), get("/api/diff", {}, { signal })]);
    return { findings: findings.items, diff };
  }, []);
  return html`<${Shown} of=${found} what="the configuration" show=${({ findings, diff }) => html`
    <section class="card" aria-labelledby="findings"><h2 id="findings">Findings in the files</h2>
      ${findings.length
        ? html`<ul class="plain">${findings.map((one) => html`<li key=${one.text}><${Pill} status=${one.severity === "error" ? "error" : "late"}>${one.severity}<//> <code>${one.text}</code></li>`)}</ul>`
        : html`<p>None: everything in the files can be used.</p>`}
    </section>
    <section class="card" aria-labelledby="running"><div class="card-head"><h2 id="running">What runs, beside the files</h2>
      <${Action} operation="reload" act=${async () => (await post("/api/reload"), "The files were read again")} then=${found.reload}>Read the files again<//></div>
      ${["add", "replace", "remove", "refused"].map((kind) => diff[kind].length > 0 && html`<h3>${WORDS[kind]}</h3><ul class="tags">${diff[kind].map((name) => html`<li key=${name}><${Part} name=${name} /></li>`)}</ul>`)}
      <p class="dim">${diff.add.length + diff.replace.length + diff.remove.length === 0 ? `The files are what runs: ${count(diff.keep.length, "part")}.` : `${count(diff.keep.length, "part")} stay as they are.`}</p>
    </section>`} />`;
}

/** A part of the configuration: a workflow has a page, also one that is refused, to be corrected there. */
function Part({ name }) {
  const [kind, ...rest] = name.split(":");
  return kind === "workflow" ? html`<${Link} to=${workflowPath(rest.join(":"))}>${name}<//>` : name;
}

const WORDS = { add: "Would be added", replace: "Would be replaced", remove: "Would be removed", refused: "Refused; see the findings" };

function Retention() {
  const found = useResource((signal) => get("/api/store/retention", {}, { signal }), []);
  const columns = [
    { name: "what", words: "What", cell: (row) => html`${row.what}<div class="dim"><code>${row.name}</code></div>` },
    { name: "keeps", words: "Kept for", cell: (row) => row.keeps },
    { name: "stored", words: "Stored now", cell: (row) => (row.stored === null ? html`<span class="dim">not counted</span>` : number(row.stored)) },
  ];
  return html`<section class="card" aria-labelledby="retention"><h2 id="retention">How long records are kept</h2>
    <${Shown} of=${found} what="how long records are kept" show=${(page) => html`<${Table} label="Retention" columns=${columns} rows=${page.items} keyOf=${(row) => row.name} />`} />
    <p class="dim below">Change it under <code>retention:</code> in harken.yaml. What is starred, or needed by an open run, stays; what a feed remembers of its items does not depend on it.</p></section>`;
}

function Tokens() {
  const found = useResource((signal) => getAll("/api/tokens", {}, { signal }), []);
  const [shown, setShown] = useState(null);
  const columns = [
    { name: "name", words: "Token", cell: (row) => html`<strong>${line(row.name)}</strong><div class="dim">${row.id}</div>` },
    { name: "role", words: "Role", cell: (row) => row.role + (row.owner ? `, owner ${row.owner}` : "") },
    { name: "limits", words: "May", cell: (row) => (row.operations.length || row.triggers.length ? `only ${[...row.operations, ...row.triggers].join(", ")}` : "all that its role may") },
    { name: "status", words: "Status", cell: (row) => html`<${Pill} status=${row.status} />` },
    { name: "expires", words: "Expires", cell: (row) => html`<${Ago} at=${row.expires_at} />` },
    { name: "act", words: "Actions", cell: (row) => row.status === "valid" && html`<div class="buttons">
      <${Action} operation="tokens.rotate" ask=${{ title: `Make a new secret for ${row.name}?`, text: "The old one works for a while, so that programs can change over.", yes: "Rotate", tone: "primary" }}
        act=${async () => (setShown(await post(at`/api/tokens/${row.id}/rotate`)), `${row.name} has a new secret`)} then=${found.reload}>Rotate<//>
      <${Action} operation="tokens.revoke" tone="danger" ask=${{ title: `Revoke ${row.name}?`, text: "Whatever uses it is refused from now on. This cannot be taken back.", yes: "Revoke" }}
        act=${async () => (await post(at`/api/tokens/${row.id}/revoke`), `${row.name} is revoked`)} then=${found.reload}>Revoke<//></div>` },
  ];
  return html`${shown && html`<${NewSecret} token=${shown} close=${() => setShown(null)} />`}
    ${may("tokens.create") && html`<${NewToken} made=${(token) => (setShown(token), found.reload())} />`}
    <section class="card" aria-labelledby="tokens"><h2 id="tokens">Tokens</h2>
      <${Shown} of=${found} what="tokens" show=${(rows) => (rows.length
        ? html`<${Table} label="Tokens" columns=${columns} rows=${rows} keyOf=${(row) => row.id} />`
        : html`<${Empty} title="There are no tokens."><p>On this machine none is needed. For any other address Harken asks for one.</p><//>`)} />
    </section>`;
}

function NewSecret({ token, close }) {
  return html`<section class="card notice" role="status"><h2>The secret of ${line(token.name)}, shown only now</h2>
    <p><code class="secret">${token.token}</code></p>
    <p class="buttons"><button onClick=${() => copy(token.token, "The token")}>Copy it</button><button class="primary" onClick=${close}>I have it</button></p></section>`;
}

/** `reason: the bank is closed`; nothing where there is nothing to tell. */
function detailWords(detail) {
  const parts = Object.entries(detail ?? {}).map(([name, value]) => `${words(name)}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return parts.length > 0 && line(parts.join(", "), 160);
}

const ROLES = { viewer: "sees, and changes nothing", operator: "pauses, retries, runs and edits triggers", admin: "everything, also tokens and the audit log" };

function NewToken({ made }) {
  const [draft, change, clear] = useDraft("new-token", { name: "", role: "viewer", owner: "", expires: "90d" });
  const field = (name) => (event) => change({ ...draft, [name]: event.target.value });
  const create = async () => {
    const given = Object.fromEntries(Object.entries(draft).filter(([, value]) => value));
    made(await post("/api/tokens", given));
    clear();
    return `${draft.name} was made`;
  };
  return html`<section class="card" aria-labelledby="new-token"><h2 id="new-token">Make a token</h2>
    <div class="form-row">
      <label>Name<input value=${draft.name} onInput=${field("name")} placeholder="ci" /></label>
      <label>Role<select value=${draft.role} onChange=${field("role")}>${Object.keys(ROLES).map((role) => html`<option key=${role} value=${role}>${role}</option>`)}</select></label>
      <label>Owner<input value=${draft.owner} onInput=${field("owner")} placeholder="everyone's things" /></label>
      <label>Works for<input value=${draft.expires} onInput=${field("expires")} placeholder="90d" /></label>
      <${Action} operation="tokens.create" tone="primary" act=${create}>Make it<//>
    </div>
    <p class="dim below">${draft.role}: ${ROLES[draft.role]}.</p></section>`;
}

function Audit() {
  const wanted = { who: query.value.who ?? "", did: query.value.did ?? "", since: query.value.since ?? "" };
  const filtered = Object.values(wanted).some(Boolean);
  const found = useResource((signal) => get("/api/audit", { ...wanted, limit: 200 }, { signal }), [wanted.who, wanted.did, wanted.since]);
  const columns = [
    { name: "at", words: "When", cell: (row) => html`<${Clock} at=${row.at} />` },
    { name: "who", words: "Who", cell: (row) => html`<button class="command who" title="Only what ${row.who} did" onClick=${() => setQuery({ who: row.who }, { push: true })}>${line(row.who)}</button>` },
    { name: "did", words: "Did", cell: (row) => html`<code class="whole">${row.did}</code>` },
    { name: "what", words: "To", cell: (row) => line(row.what) },
    { name: "detail", words: "With", cell: (row) => detailWords(row.detail) },
  ];
  const field = (name, words, hint) => html`<label>${words}<input value=${wanted[name]} placeholder=${hint} onChange=${(event) => setQuery({ [name]: event.target.value }, { push: true })} /></label>`;
  return html`<section class="card stack" aria-labelledby="audit"><h2 id="audit">Who did what</h2>
    <div class="form-row">${field("who", "Who", "anyone")}${field("did", "Did", "triggers.pause")}${field("since", "Since", "24h")}</div>
    <${Shown} of=${found} what="the audit log" show=${(page) => (page.items.length
      ? html`<${Table} label="Audit log" columns=${columns} rows=${page.items} keyOf=${(row) => `${row.at} ${row.did} ${row.what}`} />
        ${page.next && html`<p class="dim">The newest 200 are shown. All: <${Advice} text="harken audit --all" /></p>`}`
      : filtered ? html`<${FilteredOut} what="entries" clear=${() => setQuery({ who: "", did: "", since: "" })} />` : html`<${Empty} title="Nobody has changed anything yet." />`)} />
    ${found.error && found.data && html`<p class="wrong" role="alert">${found.error.message}</p>`}
  </section>`;
}

function You() {
  const { name, role, owner, way, operations } = me.value;
  return html`<section class="card" aria-labelledby="you"><h2 id="you">${way === "local" ? "You are on this machine" : `You are ${line(name)}`}</h2>
    <p>${way === "local" ? html`That needs no token. The audit log names you <code>${line(name)}</code>.` : "Signed in."} Role ${role}${owner ? `, limited to what belongs to ${owner}` : ""}: ${ROLES[role]}.</p>
    <details><summary>${count(operations.length, "operation")} that you may use</summary><ul class="tags">${operations.map((one) => html`<li key=${one}><code>${one}</code></li>`)}</ul></details>
    ${way !== "local" && html`<p class="buttons"><button onClick=${signOut}>Sign out</button></p>`}</section>`;
}
