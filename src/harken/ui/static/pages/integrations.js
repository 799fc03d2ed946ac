// Accounts at services: which there are, whether they work, whose they are, and what they may still call.
import { html, useState } from "../vendor/preact.js";
import { at, get, getAll, post } from "../api.js";
import { Action } from "../components/action.js";
import { Advice } from "../components/advice.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Table } from "../components/table.js";
import { toast } from "../components/toast.js";
import { count, line, number } from "../format.js";
import { useResource } from "../resource.js";
import { href } from "../router.js";
import { may } from "../session.js";

export default function Integrations() {
  const found = useResource(load, []);
  return html`<div class="page-head"><h1>Integrations</h1></div>
    <${Shown} of=${found} what="integrations" show=${(data) => html`<${Whole} ...${data} reload=${found.reload} />`} />`;
}

async function load(signal) {
  const [accounts, services, budgets] = await Promise.all([
    getAll("/api/integrations", {}, { signal }),
    getAll("/api/services", {}, { signal }),
    may("budget.list") ? get("/api/budget", { limit: 500 }, { signal }).then((page) => page.items) : [],
  ]);
  return { accounts, services, budgets };
}

function Whole({ accounts, services, budgets, reload }) {
  const present = accounts.filter((account) => account.source !== "missing" || account.error);
  const absent = accounts.filter((account) => account.source === "missing" && !account.error);
  // brokers and stores of files are among the accounts only when harken.yaml has one
  const others = services.filter((service) => service.needs_account && !accounts.some((account) => account.kind === service.kind));
  const possible = [...absent, ...others.map(({ kind }) => ({ name: kind, kind }))]
    .map((row) => ({ ...row, summary: services.find((service) => service.kind === row.kind)?.summary }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  const free = services.filter((service) => !service.needs_account);
  return html`<div class="stack">
    <section class="card" aria-labelledby="configured"><h2 id="configured">Configured</h2>
      ${present.length
        ? html`<ul class="attention">${present.map((account) => html`<${Account} key=${account.name} account=${account} budget=${budgetOf(account, budgets)} reload=${reload} />`)}</ul>`
        : html`<${Empty} title="No account is configured."><p>Webhooks, feeds, JSON over HTTP, files and clocks need none. For the others, see below.</p><//>`}
    </section>
    <section class="card" aria-labelledby="possible"><h2 id="possible">Could be configured</h2>
      <p class="dim">Credentials are given to the command line, where no browser sees them.</p>
      <${Table} label="Services without an account" columns=${POSSIBLE} rows=${possible} keyOf=${(row) => row.name} />
    </section>
    <section class="card" aria-labelledby="free"><h2 id="free">Need no account of their own</h2>
      <dl class="facts">${free.map((service) => html`<dt key=${service.kind}><strong>${service.kind}</strong></dt><dd class="dim">${service.summary}</dd>`)}</dl>
    </section>
  </div>`;
}

const POSSIBLE = [
  { name: "name", words: "Service", cell: (row) => html`<strong>${row.name}</strong><br /><span class="dim">${row.summary}</span>` },
  { name: "how", words: "How", cell: (row) => html`<${Advice} text=${`harken integrations ${row.name} configure`} />` },
];

function budgetOf(account, budgets) {
  return budgets.find((budget) => budget.credential === account.name || account.feeds.some((feed) => budget.feeds.includes(feed)));
}

function Account({ account, budget, reload }) {
  const [answer, setAnswer] = useState(null);
  const ask = async (verb) => {
    const told = await post(at`/api/integrations/${account.name}/` + verb);
    setAnswer(told);
    if (told.problems?.length) toast(told.problems[0], { tone: "bad" });
    return told.problems?.length ? "" : `${account.name} works`;
  };
  return html`<li>
    <div>
      <p><span class="name">${account.name}</span><${Pill} status=${account.status}>${STATES[account.status]}<//></p>
      <p class="dim">${account.kind}${account.base_url && ` at ${line(account.base_url)}`}; the credential is from ${SOURCES[account.source] ?? account.source};
        ${" "}${account.feeds.length ? html`read by ${account.feeds.map((feed, each) => html`${each > 0 && ", "}<a href=${href("/triggers", { where: `feed == ${JSON.stringify(feed)}` })}>${line(feed)}</a>`)}` : "no feed reads it"}</p>
      ${account.error && html`<p class=${account.status === "failing" ? "wrong" : "dim"}>${line(account.error, 400)}</p>`}
      ${budget?.remaining != null && budget.limit > 0 && html`<p class="dim">${number(budget.remaining)} of ${count(budget.limit, "call")} left</p>`}
      ${answer && html`<${Answer} answer=${answer} />`}
    </div>
    <div class="buttons">
      <${Action} operation="integrations.test" act=${() => ask("test")} then=${reload}>Test<//>
      ${account.whoami && html`<${Action} operation="integrations.whoami" act=${() => ask("whoami")}>Who am I?<//>`}
    </div>
  </li>`;
}

/** A service that asked for fewer calls works, and so does one that this machine, being offline, cannot reach. */
const STATES = { ok: "configured", waiting: "has to wait", failing: "does not work" };
const SOURCES = { stored: "Harken's own encrypted store", environment: "the environment", config: "harken.yaml", missing: "nowhere" };

function Answer({ answer }) {
  const who = Object.entries(answer.who ?? {});
  return html`<div role="status">
    ${who.length > 0 && html`<p>It belongs to ${who.map(([name, value], at) => html`${at > 0 && ", "}<span class="dim">${name}</span> ${line(String(value))}`)}.</p>`}
    ${(answer.problems ?? []).map((problem) => html`<p class="wrong">${line(problem, 400)}</p>`)}
  </div>`;
}
